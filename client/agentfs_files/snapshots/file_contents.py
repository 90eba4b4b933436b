"""What is in a file, moved from descriptor to descriptor: shared where the file system can, else copied with its holes."""

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator

from agentfs_host.extents import extents

CHUNK = 1 << 20
_FICLONE = 0x40049409
_BLOCK = 4096
NO_REFLINK = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY)  # between these two places never
NOT_THIS_FILE = (errno.EINVAL, errno.EPERM, errno.ETXTBSY)  # a swap file, one without copy-on-write


def share(source: int, target: int) -> None:
    """Has an empty file share the blocks of another, FICLONE; OSError with one of NO_REFLINK or NOT_THIS_FILE where it cannot."""
    fcntl.ioctl(target, _FICLONE, source)


def copy(source: int, target: int) -> None:
    """Fills an empty file with what another has now; holes stay holes."""
    size = os.fstat(source).st_size
    for start, end in extents(source, 0, size):
        _copy_range(source, target, start, end)
    if os.fstat(target).st_size != size:
        os.ftruncate(target, size)


def share_or_copy(source: int, target: int) -> None:
    try:
        share(source, target)
    except OSError as exc:
        if exc.errno not in (*NO_REFLINK, *NOT_THIS_FILE):
            raise
        copy(source, target)


def chunks(fd: int) -> Iterator[bytes]:
    """A file from where it stands to its end."""
    while data := os.read(fd, CHUNK):
        yield data


def write(fd: int, parts: Iterable[bytes], *, is_sparse: bool) -> int:
    """Writes an empty file, and how many bytes that were. *is_sparse*: blocks of zeros become holes."""
    size = 0
    for data in parts:
        if is_sparse:
            _write_sparse(fd, data, size)
        else:
            _write_all(fd, data, size)
        size += len(data)
    if is_sparse:
        os.ftruncate(fd, size)
    return size


def is_same(one: int, two: int) -> bool:
    """Whether two files hold the same bytes."""
    offset = 0
    while data := os.pread(one, CHUNK, offset):
        if data != os.pread(two, len(data), offset):
            return False
        offset += len(data)
    return not os.pread(two, 1, offset)


def can_share(source_directory: str, target_directory: str) -> bool:
    """Tried with files that have no name, so that nobody sees it."""
    try:
        with open(_nameless(source_directory), "wb") as source, open(_nameless(target_directory), "wb") as target:
            source.write(bytes(_BLOCK))
            source.flush()
            share(source.fileno(), target.fileno())
    except OSError:
        return False
    return True


def _nameless(directory: str) -> int:
    return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        try:
            done = os.copy_file_range(source, target, end - start, start, start)
        except OSError as exc:
            if exc.errno not in (*NO_REFLINK, *NOT_THIS_FILE):
                raise
            done = 0
        if not done:  # it cannot, or the source was cut meanwhile
            data = os.pread(source, min(CHUNK, end - start), start)
            if not data:
                return
            _write_all(target, data, start)
            done = len(data)
        start += done


def _write_sparse(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    zeros = bytes(_BLOCK)
    for start in range(0, len(data), _BLOCK):
        block = view[start : start + _BLOCK]
        if block != zeros[: len(block)]:
            _write_all(fd, block, offset + start)


def _write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done
