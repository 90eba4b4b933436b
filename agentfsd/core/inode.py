"""What is said of an inode, as plain records: what stat(2) shows, and how an object of the lower is told from another."""

from typing import NamedTuple

ROOT_ID = 1

# Numbers of what was made in the overlay start here: above any that a lower hands out, below 2**53, so that
# programs which hold inode numbers in a double (Node.js) can still tell two files apart.
NEW_INO_BASE = 1 << 52


class Attributes(NamedTuple):
    """What stat(2) shows; times in ns, ``blocks`` of 512 bytes."""

    ino: int
    mode: int
    nlink: int
    uid: int
    gid: int
    rdev: int
    size: int
    blocks: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    btime_ns: int


class LowerIdentity(NamedTuple):
    """How a lower object is told from whatever stands at its path later. ``dev`` is 0 for the lower root's own device."""

    ino: int
    dev: int
    size: int
    mtime_ns: int
    ctime_ns: int


NO_LOWER = LowerIdentity(0, 0, 0, 0, 0)
