"""System calls on files, directory trees and mounts that Python lacks. (Those on processes: agentfsd/linux/process_syscalls.py.)

No other module of `client/` uses ctypes. Every function raises OSError with the kernel's errno, and names the manual page that
says what it does. System call numbers are the same on every architecture, except for those that say otherwise.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Mapping
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000

# -- opening and renaming

RESOLVE_NO_MAGICLINKS: Final = 0x02  # openat2(2)
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08
_SYS_OPENAT2 = 437
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
    check_result(_renameat2(source_fd, source, target_fd, target, flags), target)


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
    check_result(_statx(fd, b"", _AT_EMPTY_PATH | _STATX_DONT_SYNC, 0, answer))
    return os.makedev(*_DEVICE.unpack_from(answer, _DEVICE_AT))


def filesystem_type(fd: int) -> int:
    """Return f_type of the file system that a file is on. See fstatfs(2)."""
    answer = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
    check_result(_libc.fstatfs(fd, answer))
    return int(answer[0]) & 0xFFFFFFFF


# -- contents

KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16  # fallocate(2)
_SYNC_FILE_RANGE_WRITE: Final = 2
_SYNC_FILE_RANGE_WAIT: Final = 1 | 4  # for what is on its way, before; for all, after
_libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def allocate(fd: int, mode: int, offset: int, length: int) -> None:
    """Allocate, punch or zero a range of a file, all in bytes. See fallocate(2).

    Where the file system knows no ZERO_RANGE (tmpfs), a hole is punched and allocated again.
    """
    try:
        check_result(_libc.fallocate(fd, mode, offset, length))
    except OSError as exc:
        if exc.errno != errno.EOPNOTSUPP or not mode & ZERO_RANGE:
            raise
        check_result(_libc.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, offset, length))
        check_result(_libc.fallocate(fd, mode & KEEP_SIZE, offset, length))


def start_writeback(fd: int) -> None:
    """Have the kernel begin to write a file's dirty pages, without waiting. Errors are ignored. See sync_file_range(2)."""
    _libc.sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)


def write_pages(fd: int) -> None:
    """Write a file's dirty pages and wait, with no promise that they are safe on the disk. Errors are ignored.

    A store through a mapping of a page that was written changes the file's times, one of a page that is still dirty does not.
    See sync_file_range(2).
    """
    _libc.sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE | _SYNC_FILE_RANGE_WAIT)


def sync_filesystem(fd: int) -> None:
    """Write the dirty pages of the file system that *fd* is on, and wait. *fd* must not be one of O_PATH. See syncfs(2)."""
    check_result(_libc.syncfs(fd))


# -- mounts

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_SYNCHRONOUS = 1, 2, 4, 8, 16  # mount(2)
MS_REMOUNT, MS_DIRSYNC, MS_NOATIME, MS_BIND, MS_REC, MS_PRIVATE = 32, 128, 1024, 4096, 16384, 1 << 18
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOATIME = 1, 2, 4, 8, 16  # mount_setattr(2)
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000  # unshare(2), setns(2)
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442
_SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT = 430, 431, 432
_FSOPEN_CLOEXEC, _FSMOUNT_CLOEXEC = 1, 1
_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 0, 1, 6
_SYS_PIVOT_ROOT: Final = {"x86_64": 155}.get(os.uname().machine, 41)  # the other number is that of all newer machines
_OPEN_TREE_CLONE: Final = 1
_AT_RECURSIVE: Final = 0x8000
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_MOVE_MOUNT_BENEATH: Final = 0x200
_MNT_FORCE, _MNT_DETACH, _UMOUNT_NOFOLLOW = 1, 2, 8
_MOUNT_ATTR = struct.Struct("=QQQQ")  # to set, to clear, propagation, user namespace


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    """Mount a file system of type *kind*, or change a mount, as *flags*, MS_*, say. See mount(2)."""
    check_result(_libc.mount(source, target, kind, ctypes.c_ulong(flags), options), target)


def unmount(target: bytes, *, lazy: bool = False, force: bool = False) -> None:
    """Unmount *target*, which is not followed if it is a symlink. See umount2(2).

    Args:
        lazy: Detach it at once; it ends with its last user.
        force: End the connection of a network or FUSE file system first, whether it is in use or not.

    Raises:
        OSError: EBUSY while a process uses it (never with *lazy*), EINVAL when nothing is mounted there.
    """
    check_result(_libc.umount2(target, _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0) | (_MNT_FORCE if force else 0)), target)


def copy_mount(path: bytes, *, recursive: bool = False) -> int:
    """Return the descriptor of a detached copy of what is mounted at *path*; it lives on when *path* is unmounted.

    See open_tree(2), Linux 5.2.

    Args:
        recursive: Copy the mounts inside, too. *path* can then be any directory or file.
    """
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    return check_result(_libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, path, flags), path)


def new_mount(kind: bytes, options: Mapping[bytes, bytes | None], attributes: int) -> int:
    """Return the descriptor of a detached mount of a new file system. See fsopen(2), Linux 5.2.

    Args:
        kind: The type of the file system.
        options: Its options, and b"source"; None for an option without a value.
        attributes: MOUNT_ATTR_* of the mount.
    """
    context = check_result(_libc.syscall(_SYS_FSOPEN, kind, _FSOPEN_CLOEXEC))
    try:
        for name, text in options.items():
            command = _FSCONFIG_SET_FLAG if text is None else _FSCONFIG_SET_STRING
            check_result(_libc.syscall(_SYS_FSCONFIG, context, command, name, text, 0))
        check_result(_libc.syscall(_SYS_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0))
        return check_result(_libc.syscall(_SYS_FSMOUNT, context, _FSMOUNT_CLOEXEC, attributes))
    finally:
        os.close(context)


def place_mount(fd: int, path: bytes, *, beneath: bool = False) -> None:
    """Mount at *path* what copy_mount() or new_mount() returned, in any mount namespace. See move_mount(2), Linux 5.2.

    Args:
        fd: The detached mount.
        path: The mount point.
        beneath: Mount it below the topmost mount there, which hides it until that is unmounted (Linux 6.5).
    """
    flags = _MOVE_MOUNT_F_EMPTY_PATH | (_MOVE_MOUNT_BENEATH if beneath else 0)
    check_result(_libc.syscall(_SYS_MOVE_MOUNT, fd, b"", _AT_FDCWD, path, flags), path)


def set_mount_attributes(place: bytes | int, to_set: int, *, to_clear: int = 0, recursive: bool = False) -> None:
    """Set and clear MOUNT_ATTR_* on a mount. See mount_setattr(2), Linux 5.12.

    Args:
        place: Its path, or a descriptor of copy_mount().
        recursive: Do so with every mount beneath, too.

    Raises:
        OSError: EPERM, for one, when a namespace's owner cleared what was set before the namespace was created.
    """
    at, path = (place, b"") if isinstance(place, int) else (_AT_FDCWD, place)
    flags = (_AT_RECURSIVE if recursive else 0) | (_AT_EMPTY_PATH if isinstance(place, int) else 0)
    packed = _MOUNT_ATTR.pack(to_set, to_clear, 0, 0)
    check_result(_libc.syscall(_SYS_MOUNT_SETATTR, at, path, flags, packed, len(packed)), path or None)


def pivot_root(new_root: bytes, put_old: bytes) -> None:
    """Make *new_root* the root mount; the old root is mounted at *put_old*. See pivot_root(2)."""
    check_result(_libc.syscall(_SYS_PIVOT_ROOT, new_root, put_old), new_root)


def unshare(flags: int) -> None:
    """Give this process namespaces of its own, CLONE_*. See unshare(2)."""
    check_result(_libc.unshare(flags))


def enter_namespace(fd: int, kind: int) -> None:
    """Enter the namespace behind a descriptor of /proc/PID/ns; *kind*: one of CLONE_*. See setns(2)."""
    check_result(_libc.setns(fd, kind))


# -- inotify

_libc.inotify_init1.argtypes = (ctypes.c_int,)
_libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
_libc.inotify_rm_watch.argtypes = (ctypes.c_int, ctypes.c_int)


def inotify_init() -> int:
    """Return a new queue, which does not block. EMFILE: fs.inotify.max_user_instances. See inotify_init1(2)."""
    return check_result(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add_watch(fd: int, path: bytes, mask: int) -> int:
    """Return a watch's number, the same for the same inode. ENOSPC: fs.inotify.max_user_watches. See inotify_add_watch(2)."""
    return check_result(_libc.inotify_add_watch(fd, path, mask))


def inotify_rm_watch(fd: int, watch: int) -> None:
    """End a watch; no error when the kernel has ended it already. See inotify_rm_watch(2)."""
    _libc.inotify_rm_watch(fd, watch)


def check_result(result: int, path: bytes | None = None) -> int:
    """Return what a function of the C library returned. OSError with ctypes' errno, about *path*, when that is negative."""
    if result < 0:
        raise _failure(path)
    return result


def _failure(path: bytes | None) -> OSError:
    number = ctypes.get_errno()
    if path is None:
        return OSError(number, os.strerror(number))
    return OSError(number, os.strerror(number), os.fsdecode(path))
