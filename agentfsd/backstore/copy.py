"""Copying a whole file's content as cheaply as the file systems allow: reflink, else in the kernel, else by hand.

Holes stay holes. Times are the caller's business.
"""

import errno
import fcntl
import os
from collections.abc import Iterator

_FICLONE = 0x40049409
_CHUNK = 64 << 20
_HAND_CHUNK = 1 << 20
_NOT_THIS_WAY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ETXTBSY)


def reflink(source_fd: int, target_fd: int) -> bool:
    """Shares the blocks; False where the file systems cannot."""
    try:
        fcntl.ioctl(target_fd, _FICLONE, source_fd)
    except OSError as exc:
        if exc.errno in (*_NOT_THIS_WAY, errno.ENOTTY, errno.EBADF, errno.EISDIR):
            return False
        raise
    return True


def copy(source_fd: int, target_fd: int) -> None:
    """Fills an empty file with the source's data, hole by hole; its offset stays where it was."""
    size = os.fstat(source_fd).st_size
    for start, end in _extents(source_fd, size):
        _copy_range(source_fd, target_fd, start, end)
    os.ftruncate(target_fd, size)


def _extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each stretch of data."""
    start = 0
    while start < size:
        try:
            start = os.lseek(fd, start, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # only a hole is left
                return
            if exc.errno == errno.EINVAL:  # no such seeking here: all of it is data
                start, end = start, size
            else:
                raise
        yield start, end
        start = end


def _copy_range(source_fd: int, target_fd: int, start: int, end: int) -> None:
    offset = start
    while offset < end:
        try:
            done = os.copy_file_range(source_fd, target_fd, min(_CHUNK, end - offset), offset, offset)
        except OSError as exc:
            if exc.errno not in _NOT_THIS_WAY:
                raise
            done = _copy_by_hand(source_fd, target_fd, offset, min(_HAND_CHUNK, end - offset))
        if done == 0:  # copy_file_range also says 0 where it cannot (files of /proc); or the source was cut meanwhile
            done = _copy_by_hand(source_fd, target_fd, offset, min(_HAND_CHUNK, end - offset))
            if done == 0:
                return
        offset += done


def _copy_by_hand(source_fd: int, target_fd: int, offset: int, length: int) -> int:
    chunk = os.pread(source_fd, length, offset)
    write_all(target_fd, chunk, offset)
    return len(chunk)


def write_all(fd: int, data: bytes, offset: int) -> int:
    """pwrite until everything is written; ENOSPC and the like raise."""
    done = os.pwrite(fd, data, offset)
    if done == len(data):
        return done
    view = memoryview(data)
    while done < len(data):
        done += os.pwrite(fd, view[done:], offset + done)
    return done
