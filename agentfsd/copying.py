"""Copying a whole file's content as cheaply as the file systems allow: reflink, else in the kernel, else by hand.

Holes stay holes. It knows descriptors only; times, names and undoing are the caller's business.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator

from agentfs_host.extents import extents

_FICLONE = 0x40049409
_CHUNK = 64 << 20
_HAND_CHUNK = 1 << 20
_NEVER = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY)  # from there to here it will not work next time either
_NOT_THIS_FILE = (errno.EINVAL, errno.EPERM, errno.ETXTBSY)


def reflink_error(directory: str) -> str:
    """Why files of a directory cannot share blocks, found by having two without names do it; "" when they can."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as source, tempfile.TemporaryFile(dir=directory) as target:
            with contextlib.suppress(OSError):  # on a full disk an empty file has to do
                source.write(bytes(mmap.PAGESIZE))
            fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError as exc:
        return exc.strerror or "failed"
    return ""


def _go_on() -> None:
    """Between two parts."""


def copy_content(
    source_fd: int, target_fd: int, no_reflink: set[int] | None, max_copy_bytes: int | None = None,
    *, between: Callable[[], object] = _go_on,
) -> None:  # fmt: skip
    """Fills an empty file by sharing the source's blocks, else by copying them. EFBIG for more than *max_copy_bytes* to copy.

    *no_reflink* holds the devices (st_dev) whose files cannot share blocks with the target's; one found out here is added.
    None: blocks are not to be shared at all. *between*: called after each part that is copied; what it raises ends the copying.
    """
    if no_reflink is not None and _reflink(source_fd, target_fd, no_reflink):
        return
    if max_copy_bytes is not None and data_bytes(source_fd) > max_copy_bytes:
        raise OSError(errno.EFBIG, f"blocks cannot be shared here, and more than {max_copy_bytes} bytes would have to be copied")
    copy(source_fd, target_fd, share=no_reflink is not None, between=between)


def _reflink(source_fd: int, target_fd: int, no_reflink: set[int]) -> bool:
    device = os.fstat(source_fd).st_dev
    if device in no_reflink:
        return False
    try:
        fcntl.ioctl(target_fd, _FICLONE, source_fd)
    except OSError as exc:
        if exc.errno in _NEVER:
            no_reflink.add(device)
        elif exc.errno not in _NOT_THIS_FILE:
            raise
        return False
    return True


def copy(source_fd: int, target_fd: int, *, share: bool = True, between: Callable[[], object] = _go_on) -> None:
    """Fills an empty file with the source's data, hole by hole. The file offset of the source is not kept.

    *share*: where the kernel can, it may have the two share blocks; copy_file_range(2) does so by itself.
    """
    size = os.fstat(source_fd).st_size
    for start, end in extents(source_fd, 0, size):
        for _ in _copy_range(source_fd, target_fd, start, end, share):
            between()
    os.ftruncate(target_fd, size)


def data_bytes(fd: int) -> int:
    """Whole pages of memory that a copy would need. st_blocks does not say: compressed and delayed blocks count less."""
    return sum(round_up(end) - start // mmap.PAGESIZE * mmap.PAGESIZE for start, end in extents(fd, 0, os.fstat(fd).st_size))


def round_up(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def copy_part(source_fd: int, target_fd: int, from_offset: int, to_offset: int, length: int, *, share: bool) -> int:
    """copy_file_range(2), or without *share* some of it by hand: bytes copied, perhaps fewer than *length*."""
    if share:
        return os.copy_file_range(source_fd, target_fd, length, from_offset, to_offset)
    return write_all(target_fd, os.pread(source_fd, min(_HAND_CHUNK, length), from_offset), to_offset)


def _copy_range(source_fd: int, target_fd: int, start: int, end: int, share: bool) -> Iterator[int]:
    """Yields after each part where it ended."""
    offset = start
    while offset < end:
        try:
            done = copy_part(source_fd, target_fd, offset, offset, min(_CHUNK, end - offset), share=share)
        except OSError as exc:
            if exc.errno not in (*_NEVER, *_NOT_THIS_FILE):
                raise
            done = 0
        if done == 0:  # it also says 0 where it cannot (files of /proc), or the source was cut meanwhile
            done = copy_part(source_fd, target_fd, offset, offset, end - offset, share=False)
            if done == 0:
                return
        offset += done
        yield offset


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
