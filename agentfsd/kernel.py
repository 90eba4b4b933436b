"""System calls that Python does not offer. It knows nothing of agentfsd."""

import ctypes
import errno
import fcntl
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
_SYNC_FILE_RANGE_WRITE = 2

_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16  # fallocate(2)

_F_SETLEASE = 1024  # fcntl(2)

_AT_EMPTY_PATH, _AT_STATX_DONT_SYNC = 0x1000, 0x4000  # statx(2)
_STATX_BYTES, _DEVICE_AT = 256, 136
_DEVICE = struct.Struct("=2I")  # major, minor

NOREPLACE, EXCHANGE = 1, 2  # renameat2(2)
_AT_FDCWD = -100
_renameat2 = getattr(_libc, "renameat2", None)  # glibc 2.28
if _renameat2 is not None:
    _renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]


def is_open_elsewhere(fd: int) -> bool:
    """Whether a file is open or mapped through any other open than this one, which must be for writing, too: a write lease tells.

    True where the file system knows no leases. Whoever opens it in that instant has SIGIO sent to us: ignore that signal.
    """
    try:
        fcntl.fcntl(fd, _F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return True
    fcntl.fcntl(fd, _F_SETLEASE, fcntl.F_UNLCK)
    return False


def device_of(fd: int) -> int:
    """st_dev of an open file, without asking its file system, which may hang. statx(2), Linux 4.11; OSError."""
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if _libc.statx(fd, b"", _AT_EMPTY_PATH | _AT_STATX_DONT_SYNC, 0, answer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return os.makedev(*_DEVICE.unpack_from(answer, _DEVICE_AT))


def sync_directory(path: str, dir_fd: int | None = None) -> None:
    """fsync(2) of a directory, so that the names of new files in it survive power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def start_writeback(fd: int) -> None:
    """sync_file_range(2): has what was written to a file begin its way to the disk; does not wait."""
    _libc.sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)


def exchange(one: str, two: str) -> None:
    """renameat2(2): two names change places, at once. EINVAL where the file system cannot."""
    rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(two), EXCHANGE)


def sync_mount(mountpoint: str) -> None:
    """syncfs(2): writes the dirty pages of one file system, and waits."""
    fd = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_filesystem(fd)
    finally:
        os.close(fd)


def sync_filesystem(fd: int) -> None:
    """Likewise by any descriptor in it, but not one of O_PATH."""
    if _libc.syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def rename(source_fd: int, source: bytes, target_fd: int, target: bytes, flags: int) -> None:
    """renameat2(2) from a name in one directory to a name in another. EINVAL where a flag is unknown."""
    if _renameat2 is None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if _renameat2(source_fd, source, target_fd, target, flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(target))


def allocate(fd: int, mode: int, offset: int, length: int) -> None:
    """fallocate(2); zeroes by way of a hole where the file system knows no zero range (tmpfs)."""
    try:
        _fallocate(fd, mode, offset, length)
    except OSError as exc:
        if exc.errno != errno.EOPNOTSUPP or not mode & ZERO_RANGE:
            raise
        _fallocate(fd, PUNCH_HOLE | KEEP_SIZE, offset, length)
        _fallocate(fd, mode & KEEP_SIZE, offset, length)


def _fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    if _libc.fallocate(fd, mode, offset, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
