"""The kernel's mount table, read: what is mounted where, and whether an agentfsd mount still has its daemon.

It must never look at what lies inside a mount: one whose daemon hangs would take the caller with it.
"""

import errno
import os
import threading
from dataclasses import dataclass

FSTYPE = "fuse.agentfsd"

_ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class Mounted:
    """One line of /proc/self/mountinfo."""

    mountpoint: str
    fstype: str
    device: int  # as st_dev of the root directory
    root: str  # what part of the file system is shown; "/" for all of it
    options: frozenset[str]  # of the mount and of its file system, such as ro, nosuid, allow_other
    source: str = ""  # whatever was named as that when it was mounted


def mount_table(pid: int | str = "self") -> list[Mounted]:
    """The mounts a process sees, in the order they were made."""
    found = []
    with open(f"/proc/{pid}/mountinfo", "rb") as file:
        for line in file:
            left, _, right = line.partition(b" - ")
            fields = left.split()
            major, _, minor = fields[2].partition(b":")
            device = os.makedev(int(major), int(minor))
            kind, source, its_own = right.split(maxsplit=2)
            options = frozenset(b",".join([fields[5], its_own.split()[-1]]).decode().split(","))
            found.append(Mounted(unescape(fields[4]), kind.decode(), device, unescape(fields[3]), options, unescape(source)))
    return found


def mount_at(path: str) -> Mounted | None:
    """The topmost mount exactly at a resolved path."""
    matching = [mounted for mounted in mount_table() if mounted.mountpoint == path]
    return matching[-1] if matching else None


def mount_of(path: str) -> Mounted | None:
    """The mount that a resolved path lies in, by names alone."""
    best: Mounted | None = None
    for mounted in mount_table():
        if is_within(path, mounted.mountpoint) and (best is None or len(mounted.mountpoint) >= len(best.mountpoint)):
            best = mounted
    return best


def is_dead(mounted: Mounted) -> bool:
    """True for an agentfsd mount whose daemon has died. What stat(2) would show may still be in the kernel's cache.

    One that does not answer hangs, and is not dead; who asks it waits beyond any signal, so a thread of its own does.
    """
    if mounted.fstype != FSTYPE:
        return False
    found: list[bool] = []
    asking = threading.Thread(target=lambda: found.append(_is_unconnected(mounted.mountpoint)), daemon=True)
    asking.start()
    asking.join(_ANSWER_S)
    return found == [True]


def _is_unconnected(mountpoint: str) -> bool:
    try:
        os.statvfs(mountpoint)
    except OSError as exc:
        return exc.errno == errno.ENOTCONN
    return False


def resolved(path: str) -> str:
    """realpath(3) that asks no agentfsd mount named exactly for its own root: its daemon may hang."""
    absolute = os.path.abspath(path)
    mounted = mount_at(absolute) if ".." not in path.split("/") else None
    return absolute if mounted is not None and mounted.fstype == FSTYPE else os.path.realpath(path)


def is_within(path: str, directory: str) -> bool:
    """True when *path* is *directory* or lies beneath it (both absolute and resolved)."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def unescape(field: bytes) -> str:
    """Undoes the octal escapes of proc_pid_mountinfo(5); every escape is one byte."""
    return os.fsdecode(field.decode("unicode_escape").encode("latin-1") if b"\\" in field else field)


def mounts_beneath(root_fd: int) -> set[bytes]:
    """Return the paths beneath a directory at which something is mounted, as this process sees it."""
    root = os.readlink(f"/proc/self/fd/{root_fd}")
    points = (mount.mountpoint for mount in mount_table())
    return {os.fsencode(os.path.relpath(point, root)) for point in points if point != root and is_within(point, root)}
