"""Read the kernel's mount table: what is mounted where, and whether an agentfsd mount still has its daemon.

This module must never access anything inside a mount: if the daemon of that mount hangs, the caller would hang as well.
"""

import errno
import os
import threading
from typing import NamedTuple

FSTYPE = "fuse.agentfsd"
OVERLAY_SOURCE = "agentfsd-run-"  # what the sources of mounts begin with through which the kernel shows a run its branch

_ANSWER_S = 2.0


class Mounted(NamedTuple):
    """One line of /proc/self/mountinfo."""

    mountpoint: str
    fstype: str
    device: int  # st_dev of the root directory
    root: str  # the directory of the file system that is mounted; "/" for all of it
    options: frozenset[str]  # options of the mount and of its file system, such as ro, nosuid, allow_other
    source: str = ""  # the source that was given when it was mounted


def mount_table(pid: int | str = "self") -> list[Mounted]:
    """Return the mounts that a process sees, in the order in which they were made."""
    mounts = []
    with open(f"/proc/{pid}/mountinfo", "rb") as file:
        for line in file:
            left, _, right = line.partition(b" - ")
            fields = left.split()
            major, _, minor = fields[2].partition(b":")
            device = os.makedev(int(major), int(minor))
            kind, source, its_own = right.split(maxsplit=2)
            options = frozenset(b",".join([fields[5], its_own.split()[-1]]).decode().split(","))
            mounts.append(Mounted(unescape(fields[4]), kind.decode(), device, unescape(fields[3]), options, unescape(source)))
    return mounts


def mount_at(path: str) -> Mounted | None:
    """Return the topmost mount exactly at a resolved path."""
    matching = [mounted for mounted in mount_table() if mounted.mountpoint == path]
    return matching[-1] if matching else None


def mount_of(path: str) -> Mounted | None:
    """Return the mount that contains a resolved path, judging by names alone."""
    best: Mounted | None = None
    for mounted in mount_table():
        if is_within(path, mounted.mountpoint) and (best is None or len(mounted.mountpoint) >= len(best.mountpoint)):
            best = mounted
    return best


def shows_branches(mounted: Mounted) -> bool:
    """Tell whether a mount shows branches of agentfsd: a daemon's own, or one through which the kernel shows a run its branch."""
    return mounted.fstype == FSTYPE or (mounted.fstype == "overlay" and mounted.source.startswith(OVERLAY_SOURCE))


def is_dead(mounted: Mounted) -> bool:
    """Tell whether a mount belongs to an agentfsd daemon that has died. Does not use stat(2), which the kernel may answer from
    its cache.

    A daemon that does not answer counts as hanging and not as dead. The check then waits, and no signal interrupts it, so it runs
    in its own thread.
    """
    return mounted.fstype == FSTYPE and _look(mounted) == [True]


def is_silent(mounted: Mounted) -> bool:
    """Tell whether nobody answers at a mount of agentfsd: its daemon hangs, or has died while somebody holds the connection."""
    return mounted.fstype == FSTYPE and _look(mounted) == []


def _look(mounted: Mounted) -> list[bool]:
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(_is_unconnected(mounted.mountpoint)), daemon=True)
    asking.start()
    asking.join(_ANSWER_S)
    return answers


def _is_unconnected(mountpoint: str) -> bool:
    try:
        os.statvfs(mountpoint)
    except OSError as exc:
        return exc.errno in (errno.ENOTCONN, errno.ECONNABORTED)  # the latter if the daemon died while it was asked
    return False


def resolved(path: str) -> str:
    """Return realpath(3) of a path, without a request to the root of an agentfsd mount that the path names exactly: its daemon
    may hang.
    """
    absolute = os.path.abspath(path)
    mounted = mount_at(absolute) if ".." not in path.split("/") else None
    return absolute if mounted is not None and mounted.fstype == FSTYPE else os.path.realpath(path)


def is_within(path: str, directory: str) -> bool:
    """Tell whether *path* is *directory* or lies beneath it. Both must be absolute and resolved."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def unescape(field: bytes) -> str:
    """Undo the octal escapes of proc_pid_mountinfo(5). Each escape is one byte."""
    return os.fsdecode(field.decode("unicode_escape").encode("latin-1") if b"\\" in field else field)


def mounts_beneath(root_fd: int) -> set[bytes]:
    """Return the paths beneath a directory at which something is mounted, as this process sees it."""
    root = os.readlink(f"/proc/self/fd/{root_fd}")
    points = (mount.mountpoint for mount in mount_table())
    return {os.fsencode(os.path.relpath(point, root)) for point in points if point != root and is_within(point, root)}
