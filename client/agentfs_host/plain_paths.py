"""Open a directory beneath another by a plain path without following symlinks: by openat2(2), or on older kernels
name by name.
"""

import errno
import os

from agentfs_host import syscalls

_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
NOT_NAMES = frozenset((b"", b".", b".."))
_HOW = syscalls.OpenHow(_FLAGS, 0, syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS)
_NO_CALL = (errno.ENOSYS, errno.EPERM, errno.ENAMETOOLONG, errno.EAGAIN)  # EPERM: a sandbox that does not know the call


def is_plain(path: bytes) -> bool:
    """Tell whether a path consists of names and single slashes only. Such a path leads downwards and has only one spelling."""
    return b"\0" not in path and NOT_NAMES.isdisjoint(path.split(b"/"))


def directory_beneath(root_fd: int, path: bytes) -> int:
    """Open the directory at a plain *path* and follow no symlink in any part of it.

    Returns:
        An O_PATH descriptor, which the caller closes.

    Raises:
        OSError: ENOTDIR if a part is a symlink or not a directory.
    """
    try:
        return syscalls.openat2(root_fd, path, _HOW)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.EXDEV):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        if exc.errno not in _NO_CALL:
            raise
    return _name_by_name(root_fd, path)


def _name_by_name(root_fd: int, path: bytes) -> int:
    """Do the same with one openat(2) for each name, also for paths longer than PATH_MAX."""
    fd = os.dup(root_fd)
    try:
        for name in path.split(b"/"):
            next_fd = os.open(name, _FLAGS, dir_fd=fd)
            os.close(fd)
            fd = next_fd
    except BaseException:
        os.close(fd)
        raise
    return fd
