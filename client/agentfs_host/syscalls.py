"""System calls of Linux that Python lacks. This is the one place of the three client packages and of `lower/` that uses ctypes.

Every function raises OSError with the kernel's errno. Each names the manual page that says what it does.
"""

import ctypes
import errno
import os
import struct
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000

# -- opening and renaming

RESOLVE_NO_MAGICLINKS: Final = 0x02  # openat2(2)
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08
_SYS_OPENAT2 = 437  # the same on every architecture, as all numbers here
_OPENAT2_TRIES: Final = 16

NOREPLACE: Final = 1  # renameat2(2)
EXCHANGE: Final = 2


class OpenHow(ctypes.Structure):
    """struct open_how of openat2(2): ``flags`` and ``mode`` as open(2) takes them, ``resolve`` of RESOLVE_*."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW_BYTES: Final = ctypes.sizeof(OpenHow)
_openat2: Final = _libc["syscall"]  # a function object of its own: its types are those of one call
_openat2.restype = ctypes.c_long
_openat2.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(OpenHow), ctypes.c_size_t)
_renameat2 = getattr(_libc, "renameat2", None)  # glibc 2.28
if _renameat2 is not None:
    _renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)


def openat2(dir_fd: int, path: bytes, how: OpenHow) -> int:
    """Open *path* beneath a directory, resolved as *how* says. See openat2(2), Linux 5.6.

    Returns:
        A descriptor, which the caller closes.

    Raises:
        OSError: ENOSYS or EPERM where the kernel or a sandbox does not know the call; EAGAIN when names on the way were renamed
            during each of several tries.
    """
    for _ in range(_OPENAT2_TRIES):
        fd = int(_openat2(_SYS_OPENAT2, dir_fd, path, ctypes.byref(how), _HOW_BYTES))
        if fd >= 0:
            return fd
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    raise _failure(path)


def rename(source_fd: int, source: bytes, target_fd: int, target: bytes, flags: int = 0) -> None:
    """Rename a name of one directory to a name of another. See renameat2(2).

    Args:
        flags: 0, NOREPLACE or EXCHANGE.

    Raises:
        OSError: EINVAL where the file system or the C library does not know a flag.
    """
    if flags == 0:
        os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)
        return
    if _renameat2 is None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fsdecode(target))
    _check(_renameat2(source_fd, source, target_fd, target, flags), target)


def exchange(one: str, two: str) -> None:
    """Have two names change places, at once. EINVAL where the file system cannot. See renameat2(2)."""
    rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(two), EXCHANGE)


# -- what stat does not say

_STATX_BTIME: Final = 0x800  # statx(2)
_STATX_DONT_SYNC: Final = 0x4000
_STATX_BYTES: Final = 256
_MASK, _BIRTH, _DEVICE = struct.Struct("=I"), struct.Struct("=qI"), struct.Struct("=2I")  # the last: major, minor
_BIRTH_AT, _DEVICE_AT = 0x50, 136
_STATFS_BYTES: Final = 256  # more than any machine's struct statfs
_statx = getattr(_libc, "statx", None)  # glibc 2.28, musl 1.2.5
if _statx is not None:
    _statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)
_libc.fstatfs.argtypes = (ctypes.c_int, ctypes.c_void_p)


def birth_time(fd: int) -> float | None:
    """Return when a file was made, in seconds since 1970; None where the file system does not keep it. See statx(2)."""
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx is None or _statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, answer) or not _MASK.unpack_from(answer)[0] & _STATX_BTIME:
        return None
    seconds, nanoseconds = _BIRTH.unpack_from(answer, _BIRTH_AT)
    return float(seconds + nanoseconds / 1e9)


def device_of(fd: int) -> int:
    """Return st_dev of an open file without asking its file system, which may hang. See statx(2), Linux 4.11."""
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    _check(_statx(fd, b"", _AT_EMPTY_PATH | _STATX_DONT_SYNC, 0, answer))
    return os.makedev(*_DEVICE.unpack_from(answer, _DEVICE_AT))


def filesystem_type(fd: int) -> int:
    """Return f_type of the file system that a file is on. See fstatfs(2)."""
    answer = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
    _check(_libc.fstatfs(fd, answer))
    return int(answer[0]) & 0xFFFFFFFF


# -- contents

KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16  # fallocate(2)
_SYNC_FILE_RANGE_WRITE: Final = 2
_libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def allocate(fd: int, mode: int, offset: int, length: int) -> None:
    """Allocate, punch or zero a range of a file, all in bytes. See fallocate(2).

    Where the file system knows no ZERO_RANGE (tmpfs), a hole is punched and allocated again.
    """
    try:
        _check(_libc.fallocate(fd, mode, offset, length))
    except OSError as exc:
        if exc.errno != errno.EOPNOTSUPP or not mode & ZERO_RANGE:
            raise
        _check(_libc.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, offset, length))
        _check(_libc.fallocate(fd, mode & KEEP_SIZE, offset, length))


def start_writeback(fd: int) -> None:
    """Have the kernel begin to write a file's dirty pages, without waiting. Errors are ignored. See sync_file_range(2)."""
    _libc.sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)


def sync_filesystem(fd: int) -> None:
    """Write the dirty pages of the file system that *fd* is on, and wait. *fd* must not be one of O_PATH. See syncfs(2)."""
    _check(_libc.syncfs(fd))


# -- mounts

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_PRIVATE = 1, 32, 4096, 1 << 18  # mount(2)
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4  # mount_setattr(2)
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000  # unshare(2)
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE: Final = 1
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_UMOUNT_NOFOLLOW: Final = 8
_MOUNT_ATTR = struct.Struct("=QQQQ")  # to set, to clear, propagation, user namespace


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    """Mount a file system of type *kind*. See mount(2)."""
    _check(_libc.mount(source, target, kind, ctypes.c_ulong(flags), options), target)


def unmount(target: bytes) -> None:
    """Unmount *target*, which is not followed if it is a symlink. EBUSY while a process uses it. See umount2(2)."""
    _check(_libc.umount2(target, _UMOUNT_NOFOLLOW), target)


def copy_mount(path: bytes) -> int:
    """Return a descriptor that keeps the mount at *path* alive after it was unmounted there. See open_tree(2), Linux 5.2."""
    return _check(_libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, path, _OPEN_TREE_CLONE | os.O_CLOEXEC), path)


def place_mount(fd: int, path: bytes) -> None:
    """Mount at *path* what copy_mount() returned. See move_mount(2), Linux 5.2."""
    _check(_libc.syscall(_SYS_MOVE_MOUNT, fd, b"", _AT_FDCWD, path, _MOVE_MOUNT_F_EMPTY_PATH), path)


def set_mount_attributes(fd: int, attributes: int) -> None:
    """Set MOUNT_ATTR_* on the mount behind a descriptor. See mount_setattr(2), Linux 5.12."""
    packed = _MOUNT_ATTR.pack(attributes, 0, 0, 0)
    _check(_libc.syscall(_SYS_MOUNT_SETATTR, fd, b"", _AT_EMPTY_PATH, packed, len(packed)))


def unshare(flags: int) -> None:
    """Give this process namespaces of its own, CLONE_*. See unshare(2)."""
    _check(_libc.unshare(flags))


# -- inotify

_libc.inotify_init1.argtypes = (ctypes.c_int,)
_libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
_libc.inotify_rm_watch.argtypes = (ctypes.c_int, ctypes.c_int)


def inotify_init() -> int:
    """Return a new queue, which does not block. EMFILE: fs.inotify.max_user_instances. See inotify_init1(2)."""
    return _check(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add_watch(fd: int, path: bytes, mask: int) -> int:
    """Return a watch's number, the same for the same inode. ENOSPC: fs.inotify.max_user_watches. See inotify_add_watch(2)."""
    return _check(_libc.inotify_add_watch(fd, path, mask))


def inotify_rm_watch(fd: int, watch: int) -> None:
    """End a watch; no error when the kernel has ended it already. See inotify_rm_watch(2)."""
    _libc.inotify_rm_watch(fd, watch)


def _check(result: int, path: bytes | None = None) -> int:
    if result < 0:
        raise _failure(path)
    return result


def _failure(path: bytes | None) -> OSError:
    number = ctypes.get_errno()
    if path is None:
        return OSError(number, os.strerror(number))
    return OSError(number, os.strerror(number), os.fsdecode(path))
