"""Which mount a command means, as agentfs_client/locate.py finds it; idle one-step overlays are started again."""

import errno
import os

from agentfs_client import locate
from agentfs_client.locate import Mount as Mount
from agentfs_client.registry import DaemonRecord
from agentfs_host.mount_table import is_within
from agentfsd.cli.connect import daemon_start
from agentfsd.domain_errors import Refusal
from agentfsd.state import state_directory
from agentfsd.types import CONTROL_DIR


def find(named: str | None, revive: bool = False) -> Mount:
    """The mount that the user means; AgentFSError with the candidates when that is not clear.

    *revive* starts the one-step overlay of the current directory again when it has gone idle.
    """
    return locate.find(named, _revive if revive else _leave)


def around(directory: str, live: list[DaemonRecord], revive: bool) -> Mount | None:
    """The mount that shows *directory*, or whose workspace holds it."""
    return locate.around(directory, live, _revive if revive else _leave)


def _revive(directory: str) -> DaemonRecord | None:
    state = state_directory.default_state(directory)
    return daemon_start.join_hidden(directory, state) if os.path.lexists(state.hidden_mountpoint) else None


def _leave(directory: str) -> DaemonRecord | None:
    return None


def in_workspace(mount: Mount, path: bytes) -> bytes:
    """A path of the command line relative to the workspace's root; Refusal for one outside.

    It starts from the current directory if that is in the mount or in the workspace itself, else from the root.
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
    """Without .agentfs/branches/NAME or .agentfs/snapshots/NAME before it."""
    parts = path.split("/")
    if parts[0] == os.fsdecode(CONTROL_DIR) and len(parts) > 2 and parts[1] in ("branches", "snapshots"):
        return "/".join(parts[3:]) or "."
    return path
