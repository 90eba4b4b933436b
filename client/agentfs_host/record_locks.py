"""Record locks that belong to an open file description instead of a process. Source: fcntl_locking(2)."""

import fcntl
import os
import struct

F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW = 36, 37, 38
FLOCK = struct.Struct("hhqqi4x")  # struct flock of a 64-bit machine: type, whence, start, length, pid


def set_lock(fd: int, kind: int, start: int, length: int) -> None:
    """Set or remove a lock, without waiting.

    Args:
        fd: A descriptor of the file; for F_WRLCK it is open for writing.
        kind: fcntl.F_RDLCK, F_WRLCK or F_UNLCK.
        start: The first byte.
        length: In bytes; 0: until the end of the file, however long it gets.

    Raises:
        BlockingIOError: Somebody else holds a lock that excludes it.
    """
    fcntl.fcntl(fd, F_OFD_SETLK, packed(kind, start, length))


def packed(kind: int, start: int, length: int) -> bytes:
    """Return a struct flock for fcntl(2). The arguments are those of set_lock()."""
    return FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
