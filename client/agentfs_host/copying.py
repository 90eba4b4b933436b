"""Copy a file's content as cheaply as the file systems allow: by reflink, else in the kernel, else by reading and writing.

Holes stay holes. This module only knows descriptors. The caller handles times, names and undoing.
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
NO_REFLINK = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY)  # these will recur for this pair of file systems
NOT_THIS_FILE = (errno.EINVAL, errno.EPERM, errno.ETXTBSY)  # such as a swap file or a file without copy-on-write


def share(source_fd: int, target_fd: int) -> None:
    """Have an empty file share the blocks of another. See FICLONE in ioctl_ficlone(2).

    Raises:
        OSError: one of NO_REFLINK or NOT_THIS_FILE where the two cannot share blocks.
    """
    fcntl.ioctl(target_fd, _FICLONE, source_fd)


def share_or_copy(source_fd: int, target_fd: int) -> None:
    """Fill an empty file by sharing the source's blocks where possible, else by copying them."""
    try:
        share(source_fd, target_fd)
    except OSError as exc:
        if exc.errno not in (*NO_REFLINK, *NOT_THIS_FILE):
            raise
        copy(source_fd, target_fd)


def can_share(source_directory: str, target_directory: str) -> bool:
    """Tell whether files of two directories can share blocks. Tries it with two nameless files."""
    unnamed = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    try:
        with (
            open(os.open(source_directory, unnamed, 0o600), "wb", buffering=0) as source,
            open(os.open(target_directory, unnamed, 0o600), "wb", buffering=0) as target,
        ):
            source.write(bytes(mmap.PAGESIZE))
            share(source.fileno(), target.fileno())
    except OSError:
        return False
    return True


def reflink_error(directory: str) -> str:
    """Return why files of a directory cannot share blocks, as two temporary ones show; "" when they can."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as source, tempfile.TemporaryFile(dir=directory) as target:
            with contextlib.suppress(OSError):  # on a full disk, try with an empty file
                source.write(bytes(mmap.PAGESIZE))
            share(source.fileno(), target.fileno())
    except OSError as exc:
        return exc.strerror or "failed"
    return ""


def _go_on() -> None:
    """Do nothing between two parts of a copy."""


def copy_content(
    source_fd: int, target_fd: int, no_reflink: set[int] | None, max_copy_bytes: int | None = None,
    *, between: Callable[[], object] = _go_on,
) -> None:  # fmt: skip
    """Fill an empty file by sharing the source's blocks, else by copying them.

    Args:
        no_reflink: the devices (st_dev) whose files cannot share blocks with the target's; one found out here is added. None:
            blocks are not to be shared at all.
        max_copy_bytes: the most that may be copied.
        between: called after each part that is copied; what it raises ends the copying.

    Raises:
        OSError: EFBIG when more than *max_copy_bytes* would have to be copied.
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
        share(source_fd, target_fd)
    except OSError as exc:
        if exc.errno in NO_REFLINK:
            no_reflink.add(device)
        elif exc.errno not in NOT_THIS_FILE:
            raise
        return False
    return True


def copy(source_fd: int, target_fd: int, *, share: bool = True, between: Callable[[], object] = _go_on) -> None:
    """Fill an empty file with the source's data; holes stay holes. The file offset of the source is not kept.

    Args:
        share: the kernel may have the two share blocks; copy_file_range(2) does so by itself.
        between: called after each part that is copied.
    """
    size = os.fstat(source_fd).st_size
    for start, end in extents(source_fd, 0, size):
        for _ in _copy_range(source_fd, target_fd, start, end, share):
            between()
    os.ftruncate(target_fd, size)


def data_bytes(fd: int) -> int:
    """Return the bytes of whole pages that a copy needs. st_blocks would leave out compressed and delayed blocks."""
    return sum(round_up(end) - start // mmap.PAGESIZE * mmap.PAGESIZE for start, end in extents(fd, 0, os.fstat(fd).st_size))


def round_up(size: int) -> int:
    """Return *size* in bytes, rounded up to whole pages."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def copy_part(source_fd: int, target_fd: int, from_offset: int, to_offset: int, length: int, *, share: bool) -> int:
    """Copy by copy_file_range(2), or without *share* by hand; return the bytes copied, perhaps fewer than *length*."""
    if share:
        return os.copy_file_range(source_fd, target_fd, length, from_offset, to_offset)
    return write_all(target_fd, os.pread(source_fd, min(_HAND_CHUNK, length), from_offset), to_offset)


def _copy_range(source_fd: int, target_fd: int, start: int, end: int, share: bool) -> Iterator[int]:
    """Yield after each part the offset at which it ended."""
    offset = start
    while offset < end:
        try:
            done = copy_part(source_fd, target_fd, offset, offset, min(_CHUNK, end - offset), share=share)
        except OSError as exc:
            if exc.errno not in (*NO_REFLINK, *NOT_THIS_FILE):
                raise
            done = 0
        if done == 0:  # it also returns 0 for files it cannot copy (/proc), and for a source that was truncated meanwhile
            done = copy_part(source_fd, target_fd, offset, offset, end - offset, share=False)
            if done == 0:
                return
        offset += done
        yield offset


def touch_atime(fd: int) -> bool:
    """Have the kernel update the access time of a file that is open with O_NOATIME; utime() would change ctime as well."""
    before = os.fstat(fd).st_atime_ns
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_NOATIME)
    try:
        os.pread(fd, 1, 0)
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
    return os.fstat(fd).st_atime_ns != before


def write_all(fd: int, data: bytes | memoryview, offset: int) -> int:
    """Write at an offset and return the bytes written. The result is less than asked if the disk becomes full midway.

    Raises:
        OSError: nothing could be written.
    """
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
