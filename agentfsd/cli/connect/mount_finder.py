"""Finds the mount that a command means, by agentfs_client/locate.py, and starts idle one-step overlays again."""

import errno
import os

from agentfs_client import locate
from agentfs_client.locate import Mount as Mount
from agentfs_client.registry import DaemonRecord
from agentfs_host.mount_table import is_within
from agentfsd.domain_errors import Refusal
from agentfsd.state import state_directory
from agentfsd.types import CONTROL_DIR


def find(named: str | None, revive: bool = False) -> Mount:
    """Return the mount that the user means.

    Args:
        named: The value of -m; None: find it by the environment and the current directory.
        revive: Start the one-step overlay of the current directory again if its idle daemon has ended.

    Raises:
        AgentFSError: There is none, or there are several; the hint names them.
    """
    return locate.find(named, _revive if revive else _leave)


def around(directory: str, live: list[DaemonRecord], revive: bool) -> Mount | None:
    """Return the mount that shows *directory*, or whose workspace holds it."""
    return locate.around(directory, live, _revive if revive else _leave)


def _revive(directory: str) -> DaemonRecord | None:
    state = state_directory.default_state(directory)
    if not os.path.lexists(state.hidden_mountpoint):
        return None
    from agentfsd.cli.connect import daemon_start  # only here: most commands start no daemon, and importing it takes long

    return daemon_start.join_hidden(directory, state)


def _leave(directory: str) -> DaemonRecord | None:
    return None


def in_workspace(mount: Mount, path: bytes) -> bytes:
    """Convert a path of the command line to one relative to the workspace's root.

    A relative path starts from the current directory if that is in the mount or in the real directory, else from the root.

    Raises:
        Refusal: The path is outside of the workspace.
    """
    roots = sorted({root for root in (mount.mountpoint, mount.lower) if root}, key=len, reverse=True)
    here = locate.current_directory()
    base = here if any(is_within(here, root) for root in roots) else mount.mountpoint
    full = os.path.normpath(os.path.join(base, os.fsdecode(path)))
    directory, name = os.path.split(full)
    for place in (full, os.path.join(os.path.realpath(directory), name)):
        for root in roots:
            if is_within(place, root):
                return os.fsencode(_below_view(os.path.relpath(place, root)))
    shown = os.fsdecode(path).encode("utf-8", "backslashreplace").decode()
    raise Refusal(
        errno.EINVAL, "outside", f"{shown} is outside of the workspace", f"name paths below {mount.mountpoint}, or relative ones"
    )


def _below_view(path: str) -> str:
    """Remove a leading .agentfs/branches/NAME or .agentfs/snapshots/NAME."""
    parts = path.split("/")
    if parts[0] == os.fsdecode(CONTROL_DIR) and len(parts) > 2 and parts[1] in ("branches", "snapshots"):
        return "/".join(parts[3:]) or "."
    return path
