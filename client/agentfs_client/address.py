"""Addresses of Unix sockets for paths longer than the 107 bytes that an address holds."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_MAX_BYTES = 107


@contextmanager
def unix_address(path: str) -> Iterator[str]:
    """Yield the address to bind or connect to for *path*: the path itself, or a short path through a descriptor of its directory.
    The address is valid inside the context.
    """
    if len(os.fsencode(path)) <= _MAX_BYTES:
        yield path
        return
    directory, name = os.path.split(path)
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
