"""Addresses of Unix sockets, which may be 107 bytes long, for paths that are longer."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_MAX_BYTES = 107


@contextmanager
def unix_address(path: str) -> Iterator[str]:
    """What to bind or connect to instead of *path*: itself, or a way through its directory's descriptor while this lasts."""
    if len(os.fsencode(path)) <= _MAX_BYTES:
        yield path
        return
    directory, name = os.path.split(path)
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
