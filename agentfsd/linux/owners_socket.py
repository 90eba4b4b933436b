"""A listening Unix socket that only its owner may use."""

import contextlib
import os
import socket

from agentfs_client.address import unix_address
from agentfs_client.registry import DaemonRecord as DaemonRecord
from agentfs_client.registry import live_daemons as live_daemons
from agentfs_client.registry import process_start_ticks as process_start_ticks


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
