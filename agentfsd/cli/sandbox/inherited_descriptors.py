"""Descriptors that a command inherits: none shall lead to what the run covers, or give more than it was opened for.

The kernel opens a file anew by a descriptor of it (/proc/self/fd), also for writing if it was opened for reading only.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator

from agentfs_host import mount_table
from agentfsd.linux import namespaces


def reopen_files_to_read() -> None:
    """Open inherited files that are open for reading only anew, through read-only mounts. Nobody can write to them by those.

    Call it in the command's mount namespace before anything is covered. What has no name there stays as it is.
    """
    own = {mounted.device for mounted in mount_table.mount_table() if mounted.fstype == mount_table.FSTYPE}  # the daemon decides
    for fd, status in _inherited():
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        if stat.S_ISREG(status.st_mode) and not flags & (os.O_ACCMODE | os.O_PATH) and status.st_dev not in own:
            with contextlib.suppress(OSError):
                _reopen(fd, status, flags)


def _reopen(fd: int, status: os.stat_result, flags: int) -> None:
    mount = namespaces.copy_tree(os.readlink(f"/proc/self/fd/{fd}"))
    try:
        if not os.path.samestat(os.fstat(mount), status):
            return
        namespaces.make_read_only(mount)
        again = os.open(f"/proc/self/fd/{mount}", os.O_RDONLY | flags & (os.O_NONBLOCK | os.O_DIRECT | os.O_APPEND))
    finally:
        os.close(mount)
    os.lseek(again, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
    os.dup2(again, fd)
    os.close(again)


def close_ways_out() -> None:
    """Close inherited descriptors of directories and namespaces, and those that are there to open or enter something by them."""
    namespaces_device = os.stat("/proc/self/ns/mnt").st_dev
    for fd, status in _inherited():
        is_way = stat.S_ISDIR(status.st_mode) or fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_PATH
        if not is_way and status.st_dev != namespaces_device:
            continue
        if fd > 2:
            os.close(fd)
        else:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, fd)
            os.close(null)


def _inherited() -> Iterator[tuple[int, os.stat_result]]:
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with contextlib.suppress(OSError):
            if os.get_inheritable(fd):
                yield fd, os.fstat(fd)
