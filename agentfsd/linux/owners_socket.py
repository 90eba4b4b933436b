"""A listening Unix socket that only its owner may use."""

import contextlib
import os
import socket
import stat

from agentfs_client.address import unix_address
from agentfs_client.registry import DaemonRecord as DaemonRecord
from agentfs_client.registry import live_daemons as live_daemons
from agentfs_client.registry import process_start_ticks as process_start_ticks


def inherited_socket(path: str, fd: int | None) -> socket.socket | None:
    """Return the listening socket that a daemon before has left, None if it is not at *path* any more.

    A path that is mounted into the namespaces of runs leads to one socket for good, so the next daemon must not make another.
    """
    if fd is None:
        return None
    listener = socket.socket(fileno=fd)
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            listener.setblocking(False)
            return listener
    listener.close()
    return None


def owners_socket(path: str, kind: socket.SocketKind, backlog: int) -> socket.socket:
    """Return a non-blocking Unix socket that listens at *path*, for its owner alone. A dead daemon's socket is replaced."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, kind)
    old = os.umask(0o177)
    try:
        with unix_address(path) as address:
            listener.bind(address)
    finally:
        os.umask(old)
    listener.listen(backlog)
    listener.setblocking(False)
    return listener
