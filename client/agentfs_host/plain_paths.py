"""Opening a directory beneath another without ever leaving it: openat2(2), or name by name on older kernels."""

import ctypes
import errno
import os

_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
NOT_NAMES = frozenset((b"", b".", b".."))


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW = _OpenHow(_FLAGS, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.syscall.argtypes = (
    ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t,
)  # fmt: skip


def is_plain(path: bytes) -> bool:
    """Whether a path is names and single slashes only: then it is the one way to write it, and leads downwards."""
    return b"\0" not in path and NOT_NAMES.isdisjoint(path.split(b"/"))


def directory_beneath(root_fd: int, path: bytes) -> int:
    """An O_PATH descriptor of the directory at a plain *path*; no symlink is followed in any part of it.

    ENOTDIR where a part is a symlink or no directory: that is what it has become for somebody who names it.
    """
    for _ in range(8):
        fd = _libc.syscall(_SYS_OPENAT2, root_fd, path, ctypes.byref(_HOW), ctypes.sizeof(_HOW))
        if fd >= 0:
            return int(fd)
        number = ctypes.get_errno()
        if number in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a rename during the walk, "beneath" cannot be vouched for
            continue
        if number in (errno.ENOSYS, errno.EPERM, errno.ENAMETOOLONG):  # EPERM: a sandbox that does not know the call
            break
        if number in (errno.ELOOP, errno.EXDEV):
            number = errno.ENOTDIR
        raise OSError(number, os.strerror(number))
    return _name_by_name(root_fd, path)


def _name_by_name(root_fd: int, path: bytes) -> int:
    """The same with one openat(2) for each name, also for paths longer than PATH_MAX."""
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
