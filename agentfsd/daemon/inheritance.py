"""What a daemon takes over from the one before it, and what it keeps for the next one."""

import errno
import os
import socket
import sys
from dataclasses import dataclass

from agentfs_host.mount_table import is_within
from agentfsd.daemon import handover
from agentfsd.fuse import keeper
from agentfsd.fuse.keeper import KeeperPlace
from agentfsd.process.kept_descriptors import KeeperLink, KeptDescriptors, received
from agentfsd.process.stored_descriptors import take_stored
from agentfsd.state import daemon_config
from agentfsd.state.daemon_config import DaemonConfig
from agentfsd.state.state_directory import StateDirectory


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a daemon takes over.

    Attributes:
        kept: The descriptors.
        keeper: The socket to the process that keeps them for the next daemon; None where there is none yet, or the service
            manager keeps them.
        keeper_pid: The process id of that process.
    """

    kept: KeptDescriptors
    keeper: KeeperLink | None = None
    keeper_pid: int = 0

    @classmethod
    def receive(cls, kept_fd: int, keeper_pid: int, state: str, *, waits: bool) -> "Inheritance":
        """Receive it from the keeper, from the daemon that this one replaces, or from the service manager.

        Args:
            kept_fd: A socket to one of the first two; -1 for none.
            keeper_pid: The keeper's process id.
            state: The state directory.
            waits: This daemon is to replace one that serves.

        Raises:
            OSError: There is nothing to take over any more.
        """
        if kept_fd < 0:
            return cls(KeptDescriptors(take_stored()))
        connection = socket.socket(fileno=kept_fd)
        if waits:
            handover.report_ready(connection, StateDirectory(state))
            if "WATCHDOG_PID" in os.environ:
                os.environ["WATCHDOG_PID"] = str(os.getpid())
        former = received(connection)
        if not former:
            raise OSError(errno.ECONNRESET, "the daemon that was to be replaced has ended")
        if waits:
            fd = former.pop(handover.KEEPER, None)
            connection.close()
            return cls(KeptDescriptors(former), KeeperLink(socket.socket(fileno=fd)) if fd is not None else None, keeper_pid)
        return cls(KeptDescriptors(former), KeeperLink(connection), keeper_pid)


def why_not_restarted(config: DaemonConfig, *, persistent: bool, has_manager: bool) -> str:
    """Return why no daemon could go on in the place of this one if it is killed; "" if one can.

    Args:
        config: The daemon's config.
        persistent: Its contents outlive it.
        has_manager: A service manager keeps descriptors for it.
    """
    if not config.restarts:
        return "--no-restart"
    if config.foreground and not has_manager:
        return "it is in the foreground, for whoever started it to start again"
    if not persistent:
        return "contents in memory go with the daemon"
    program = os.path.realpath(sys.executable)
    inside = [path for path in (program, sys.prefix, *sys.path) if is_within(os.path.realpath(path), config.mountpoint)]
    if inside:
        return f"agentfsd itself lies in the mount: {inside[0]}"
    return ""


def keep_config(config: DaemonConfig, kept: KeptDescriptors) -> None:
    """Keep the daemon's config for the next daemon."""
    if kept.take(keeper.CONFIG) is not None:
        return
    kept.keep(keeper.CONFIG, daemon_config.descriptor(config))


def keeper_place(config: DaemonConfig) -> KeeperPlace:
    """Return where a keeper writes to."""
    state = StateDirectory(config.state)
    return KeeperPlace(state.log, state.given_up, config.mountpoint)
