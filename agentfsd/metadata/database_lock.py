"""Keeps other programs out of the database while we have it open.

SQLite locks the file for the process (fcntl, F_SETLK), and the kernel drops such locks as soon as the process closes any
descriptor of the file, as it does when it has synced or copied it. Somebody who then reads the live database with `sqlite3`
is alone with it, as far as SQLite can see: when that program ends, it copies the log into the file and removes the log, which we
still write to. So we hold the same bytes by a lock that belongs to a descriptor (F_OFD_SETLK).

Source: fcntl_locking(2); SQLite's file format, "locking bytes".
"""

import fcntl
import os

from agentfs_host import record_locks

_PENDING_BYTE = 0x4000_0000  # then the reserved byte, and 510 shared ones
_LOCKING_BYTES = 512


def hold(path: str) -> int:
    """Lock a database that SQLite of this process has locked as its own (locking_mode = EXCLUSIVE).

    Args:
        path: The database file.

    Returns:
        The descriptor that holds the lock. The lock ends when it is closed.

    Raises:
        BlockingIOError: Another process has locked it meanwhile.
        OSError: The file cannot be opened.
    """
    os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))  # drops SQLite's locks, which would be in the way of ours
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        record_locks.set_lock(fd, fcntl.F_WRLCK, _PENDING_BYTE, _LOCKING_BYTES)
    except OSError:
        os.close(fd)
        raise
    return fd
