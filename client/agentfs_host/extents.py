"""Where the data of a file with holes lies."""

import errno
import os
from collections.abc import Iterator


def extents(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each stretch of data between two offsets."""
    while start < end:
        try:
            start = os.lseek(fd, start, os.SEEK_DATA)
            stop = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # only a hole is left
                return
            if exc.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            stop = end  # no such seeking here: all of it is data
        if start >= end:
            return
        yield start, min(stop, end)
        start = stop
