"""Find the data in a file with holes."""

import errno
import os
from collections.abc import Iterator


def extents(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) in bytes of each stretch of data between two offsets."""
    while start < end:
        try:
            start = os.lseek(fd, start, os.SEEK_DATA)
            stop = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # only a hole follows
                return
            if exc.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            stop = end  # SEEK_DATA is not supported here: treat everything as data
        if start >= end:
            return
        yield start, min(stop, end)
        start = stop
