"""A listening Unix socket that only its owner may use."""

import contextlib
import os
import socket
import stat

from agentfs_client.address import unix_address
from agentfs_client.registry import DaemonRecord as DaemonRecord
from agentfs_client.registry import live_daemons as live_daemons
from agentfs_client.registry import process_start_ticks as process_start_ticks


def _former_socket(path: str, fd: int) -> socket.socket | None:
    """Return the listening socket that the daemon before has left, None if it is not at *path* any more."""
    listener = socket.socket(fileno=fd)
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            listener.setblocking(False)
            return listener
    listener.close()
    return None


def owners_socket(path: str, kind: socket.SocketKind, backlog: int, former: int | None = None) -> socket.socket:
    """Return a non-blocking Unix socket that listens at *path*, for its owner alone. A dead daemon's socket is replaced.

    Args:
        path: Where it listens.
        kind: Its kind.
        backlog: See listen(2).
        former: The listening socket that the daemon before has left. The path may be mounted into the namespaces of runs, where
            it leads to that socket for good; so that one goes on.
    """
    listener = _former_socket(path, former) if former is not None else None
    if listener is not None:
        return listener
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
