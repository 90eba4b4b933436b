"""Wait until directories and file systems are on disk, and find out whether anybody else has a file open."""

import errno
import fcntl
import os

from agentfs_host.syscalls import sync_filesystem

_F_SETLEASE = 1024  # fcntl(2)


def sync_directory(path: str, dir_fd: int | None = None) -> None:
    """Wait until the names of new files in a directory would survive a power failure. See fsync(2)."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_mount(mountpoint: str) -> None:
    """Write the dirty pages of the file system mounted there, and wait. See syncfs(2)."""
    fd = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_filesystem(fd)
    finally:
        os.close(fd)


def is_open_elsewhere(fd: int) -> bool:
    """Tell by a write lease whether a file is open or mapped through any other open file description.

    If a process opens the file during the check, the kernel sends SIGIO to this process, which must ignore that signal.

    Args:
        fd: a descriptor that is open for writing.

    Returns:
        True also if the file system does not support leases.
    """
    try:
        fcntl.fcntl(fd, _F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return True
    fcntl.fcntl(fd, _F_SETLEASE, fcntl.F_UNLCK)
    return False


def is_written_elsewhere(fd: int) -> bool:
    """Tell by a read lease whether a file is open or mapped for writing through any other open file description.

    See is_open_elsewhere() about SIGIO.

    Args:
        fd: a descriptor that is open for reading only.

    Returns:
        False also where we may take no lease.
    """
    try:
        fcntl.fcntl(fd, _F_SETLEASE, fcntl.F_RDLCK)
    except OSError as exc:
        return exc.errno == errno.EAGAIN
    fcntl.fcntl(fd, _F_SETLEASE, fcntl.F_UNLCK)
    return False
