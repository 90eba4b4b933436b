"""What a daemon takes over from the one before it, and what it keeps for the next one."""

import os
import socket
import sys
from dataclasses import dataclass

import msgspec

from agentfs_host.mount_table import is_within
from agentfsd.fuse import keeper
from agentfsd.fuse.keeper import Place
from agentfsd.process.kept_descriptors import KeeperLink, KeptDescriptors, received
from agentfsd.state.daemon_config import DaemonConfig
from agentfsd.state.state_directory import StateDirectory


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a daemon takes over.

    Attributes:
        kept: The descriptors.
        keeper: The socket to the process that kept them, and has started this daemon; None where it was started by a person or by the
            service manager.
    """

    kept: KeptDescriptors
    keeper: KeeperLink | None

    @classmethod
    def of(cls, kept_fd: int) -> "Inheritance":
        """Receive it. *kept_fd*: a socket to the keeper; -1 for none. OSError."""
        if kept_fd < 0:
            return cls(KeptDescriptors(), None)
        connection = socket.socket(fileno=kept_fd)
        return cls(KeptDescriptors(received(connection)), KeeperLink(connection))


def why_not_restarted(config: DaemonConfig, *, persistent: bool) -> str:
    """Return why no daemon could go on in the place of this one if it is killed; "" if one can.

    Args:
        config: The daemon's config.
        persistent: Its contents outlive it.
    """
    if not config.restarts:
        return "--no-restart"
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
    fd = os.memfd_create("agentfsd-config", os.MFD_CLOEXEC)
    os.write(fd, msgspec.json.encode(config))
    kept.keep(keeper.CONFIG, fd)


def keeper_place(config: DaemonConfig) -> Place:
    """Return where a keeper writes to."""
    return Place(StateDirectory(config.state).log, config.mountpoint)
