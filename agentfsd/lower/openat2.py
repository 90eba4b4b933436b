"""Opening a directory beneath another without ever leaving it: openat2(2), or name by name on older kernels."""

import ctypes
import errno
import os

_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW = _OpenHow(_FLAGS, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
_libc = ctypes.CDLL(None, use_errno=True)


def directory_beneath(root_fd: int, path: bytes) -> int:
    """An O_PATH descriptor of the directory at a relative *path*; no symlink is followed in any part of it.

    ENOTDIR where a part is a symlink or no directory: that is what it has become for somebody who names it.
    """
    for _ in range(8):
        fd = _libc.syscall(_SYS_OPENAT2, root_fd, path, ctypes.byref(_HOW), ctypes.sizeof(_HOW))
        if fd >= 0:
            return int(fd)
        number = ctypes.get_errno()
        if number == errno.EAGAIN:  # something was renamed during the walk: the kernel could not vouch for "beneath"
            continue
        if number in (errno.ENOSYS, errno.EPERM):
            break
        if number in (errno.ELOOP, errno.EXDEV):
            number = errno.ENOTDIR
        raise OSError(number, os.strerror(number))
    return _name_by_name(root_fd, path)


def _name_by_name(root_fd: int, path: bytes) -> int:
    fd = os.dup(root_fd)
    try:
        for name in path.split(b"/"):
            if name in (b"..", b"."):
                raise PermissionError(errno.EACCES, "a path must not contain . or ..")
            next_fd = os.open(name, _FLAGS, dir_fd=fd)
            os.close(fd)
            fd = next_fd
    except OSError as exc:
        os.close(fd)
        if exc.errno == errno.ELOOP:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        raise
    return fd
