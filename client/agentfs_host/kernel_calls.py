"""System calls of Linux that Python lacks."""

import ctypes
import errno
import os
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_OPEN_TREE, _MOVE_MOUNT = 428, 429  # the same on every architecture
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_MOVE_MOUNT_F_EMPTY_PATH = 4
_OPEN_TREE_CLONE = 1
EXCHANGE: Final = 2  # renameat2(2)
MS_RDONLY: Final = 1
MS_BIND: Final = 4096
MS_PRIVATE: Final = 1 << 18
MS_REMOUNT: Final = 32


def rename(source_fd: int, source: bytes, target_fd: int, target: bytes, flags: int = 0) -> None:
    """renameat2(2) from a name in one directory to a name in another; EINVAL where the file system does not know a flag."""
    if flags == 0:
        os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)
        return
    call = getattr(_libc, "renameat2", None)  # glibc 2.28
    if call is None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    _check(call(source_fd, source, target_fd, target, flags), target)


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    """mount(2)"""
    _check(_libc.mount(source, target, kind, ctypes.c_ulong(flags), options), target)


def unmount(target: bytes) -> None:
    """umount2(2): EBUSY while a file is open there or a process stands there. Does not follow a symlink."""
    _check(_libc.umount2(target, 8), target)


def pick_mount(path: bytes) -> int:
    """open_tree(2): a descriptor that keeps what is mounted at *path* alive after it was unmounted there."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    return _check(_libc.syscall(_OPEN_TREE, _AT_FDCWD, path, flags), path)


def place_mount(fd: int, path: bytes) -> None:
    """move_mount(2): mounts what pick_mount() has kept."""
    _check(_libc.syscall(_MOVE_MOUNT, fd, b"", _AT_FDCWD, path, _MOVE_MOUNT_F_EMPTY_PATH), path)


def _check(result: int, path: bytes) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(path))
    return result
