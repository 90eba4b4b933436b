"""Copying a whole file's content as cheaply as the file systems allow: reflink, else in the kernel, else by hand.

Holes stay holes. It knows descriptors only; times, names and undoing are the caller's business.
"""

import errno
import fcntl
import mmap
import os

from agentfs_client.sparse import extents

_FICLONE = 0x40049409
_CHUNK = 64 << 20
_HAND_CHUNK = 1 << 20
_NEVER = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY)  # from there to here it will not work next time either
_NOT_THIS_FILE = (errno.EINVAL, errno.EPERM, errno.ETXTBSY)


def copy_content(source_fd: int, target_fd: int, no_reflink: set[int], max_copy_bytes: int | None = None) -> None:
    """Fills an empty file by sharing the source's blocks, else by copying them. EFBIG for more than *max_copy_bytes* to copy.

    *no_reflink* holds the devices (st_dev) whose files cannot share blocks with the target's; one found out here is added.
    """
    device = os.fstat(source_fd).st_dev
    if device not in no_reflink:
        try:
            fcntl.ioctl(target_fd, _FICLONE, source_fd)
        except OSError as exc:
            if exc.errno in _NEVER:
                no_reflink.add(device)
            elif exc.errno not in _NOT_THIS_FILE:
                raise
        else:
            return
    if max_copy_bytes is not None and data_bytes(source_fd) > max_copy_bytes:
        raise OSError(errno.EFBIG, f"blocks cannot be shared here, and more than {max_copy_bytes} bytes would have to be copied")
    copy(source_fd, target_fd)


def copy(source_fd: int, target_fd: int) -> None:
    """Fills an empty file with the source's data, hole by hole. The file offset of the source is not kept."""
    size = os.fstat(source_fd).st_size
    for start, end in extents(source_fd, 0, size):
        _copy_range(source_fd, target_fd, start, end)
    os.ftruncate(target_fd, size)


def data_bytes(fd: int) -> int:
    """Whole pages of memory that a copy would need. st_blocks does not say: compressed and delayed blocks count less."""
    return sum(round_up(end) - start // mmap.PAGESIZE * mmap.PAGESIZE for start, end in extents(fd, 0, os.fstat(fd).st_size))


def round_up(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _copy_range(source_fd: int, target_fd: int, start: int, end: int) -> None:
    offset = start
    while offset < end:
        try:
            done = os.copy_file_range(source_fd, target_fd, min(_CHUNK, end - offset), offset, offset)
        except OSError as exc:
            if exc.errno not in (*_NEVER, *_NOT_THIS_FILE):
                raise
            done = 0
        if done == 0:  # it also says 0 where it cannot (files of /proc), or the source was cut meanwhile
            done = _copy_by_hand(source_fd, target_fd, offset, min(_HAND_CHUNK, end - offset))
            if done == 0:
                return
        offset += done


def _copy_by_hand(source_fd: int, target_fd: int, offset: int, length: int) -> int:
    return write_all(target_fd, os.pread(source_fd, length, offset), offset)


def touch_atime(fd: int) -> bool:
    """Has the kernel move the access time of a file that is open with O_NOATIME; utime() would move ctime as well."""
    before = os.fstat(fd).st_atime_ns
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_NOATIME)
    try:
        os.pread(fd, 1, 0)
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
    return os.fstat(fd).st_atime_ns != before


def write_all(fd: int, data: bytes | memoryview, offset: int) -> int:
    """Bytes written, as write(2) has it: fewer than asked when the room ran out midway; an error when nothing fitted."""
    done = os.pwrite(fd, data, offset)
    if done == len(data):
        return done
    view = memoryview(data)
    try:
        while done < len(data):
            done += os.pwrite(fd, view[done:], offset + done)
    except OSError:
        if not done:
            raise
    return done
