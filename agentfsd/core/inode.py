"""Plain records of an inode: the attributes that stat(2) shows, and the identity of an object of the lower."""

from typing import NamedTuple

ROOT_ID = 1

# Inode numbers of files made in the overlay start here: above any number that a lower uses, and below 2**53. Programs that
# keep inode numbers in a double (Node.js) can then still tell two files apart.
NEW_INO_BASE = 1 << 52
_FOREIGN_INO_BASE = 1 << 51  # those shown for objects of the lower on other devices than that of its root start here


class Attributes(NamedTuple):
    """The attributes that stat(2) shows: ``size`` in bytes, ``blocks`` of 512 bytes, times in ns since the epoch."""

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
    """Identifies an object of the lower and its state, to detect later that its path leads to another object or state.

    ``dev`` is 0 for the device of the lower's root, ``size`` is in bytes, times are in ns since the epoch.
    """

    ino: int
    dev: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @property
    def shown_ino(self) -> int:
        """The inode number that the overlay shows for the object."""
        if self.dev == 0:
            return self.ino
        return _FOREIGN_INO_BASE | (hash((self.ino, self.dev)) & (_FOREIGN_INO_BASE - 1))


NO_LOWER = LowerIdentity(0, 0, 0, 0, 0)
