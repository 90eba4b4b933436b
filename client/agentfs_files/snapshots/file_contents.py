"""Read and write the content of a file by descriptor, in parts."""

import os
from collections.abc import Iterable, Iterator

CHUNK = 1 << 20
_BLOCK = 4096


def chunks(fd: int) -> Iterator[bytes]:
    """Yield a file from its offset to its end."""
    while data := os.read(fd, CHUNK):
        yield data


def write(fd: int, parts: Iterable[bytes], *, is_sparse: bool) -> int:
    """Write an empty file and return the number of bytes. With *is_sparse*, blocks of zeros become holes."""
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
    """Tell whether two files hold the same bytes."""
    offset = 0
    while data := os.pread(one, CHUNK, offset):
        if data != os.pread(two, len(data), offset):
            return False
        offset += len(data)
    return not os.pread(two, 1, offset)


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
