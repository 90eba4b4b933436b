"""Which mount a command means: the one named, the one around the current directory, or the only one there is.

It must never talk to a daemon; it reads the registry, the mount table and the state directories.
"""

import errno
import os
from dataclasses import dataclass

from agentfsd import mounts, runtime
from agentfsd.cli import start
from agentfsd.config import is_within
from agentfsd.errors import Refusal
from agentfsd.runtime import DaemonRecord
from agentfsd.types import CONTROL_DIR


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount and how to reach its daemon: by socket, or (inside a sandbox that hides it) by the control file alone.

    ``record`` is missing then, and for a mount that belongs to another user.
    """

    mountpoint: str
    record: DaemonRecord | None

    @property
    def lower(self) -> str:
        return self.record.lower if self.record else ""

    def covers(self, path: str) -> bool:
        """True when *path* is seen through this mount."""
        return is_within(path, self.mountpoint)


def find(named: str | None, revive: bool = False) -> Mount:
    """The mount that the user means; Refusal with the candidates when that is not clear.

    *revive* starts the one-step overlay of the current directory again when it has gone idle.
    """
    if named is not None:
        return _named(named, "-m", revive)
    inherited = os.environ.get("AGENTFS_MOUNT")
    if inherited:
        return _named(inherited, "AGENTFS_MOUNT", revive)
    live = runtime.live_daemons()
    return around(_cwd(), live, revive) or _only(live)


def around(directory: str, live: list[DaemonRecord], revive: bool) -> Mount | None:
    """The mount that shows *directory*, or whose workspace holds it."""
    mounted = mounts.mount_of(directory)
    if mounted is not None and mounted.fstype == mounts.FSTYPE:
        return _at(mounted, live)
    for ancestor in _ancestors(directory):
        holding = [record for record in live if record.lower == ancestor]
        if holding:
            return _only(holding)
        state = runtime.default_state(ancestor)
        if revive and os.path.lexists(state.hidden_mountpoint):
            record = start.join_hidden(ancestor, state)
            return Mount(record.mountpoint, record)
    return None


def in_workspace(mount: Mount, path: bytes) -> bytes:
    """A path of the command line relative to the workspace's root; Refusal for one outside.

    It starts from the current directory if that is in the mount or in the workspace itself, else from the root.
    """
    roots = sorted({root for root in (mount.mountpoint, mount.lower) if root}, key=len, reverse=True)
    here = _cwd()
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


def _named(path: str, how: str, revive: bool) -> Mount:
    resolved = os.path.realpath(path)
    live = runtime.live_daemons()
    mounted = mounts.mount_of(resolved)
    if mounted is not None and mounted.fstype == mounts.FSTYPE:
        return _at(mounted, live)
    record = _record_at(resolved, live)
    state = runtime.default_state(resolved)
    if record is None and revive and os.path.lexists(state.hidden_mountpoint):
        record = start.join_hidden(resolved, state)
    if record is None:
        raise Refusal(errno.ENOENT, "no-mount", f"{path} (from {how}) is not in an agentfsd mount", _candidates(live))
    return Mount(record.mountpoint, record)


def _at(mounted: mounts.Mounted, live: list[DaemonRecord]) -> Mount:
    if mounts.is_dead(mounted):
        raise Refusal(
            errno.ENOTCONN, "dead-mount", f"the daemon of {mounted.mountpoint} has died",
            f"mount it again (nothing acknowledged is lost), or 'agentfsd umount {mounted.mountpoint}'",
        )  # fmt: skip
    return Mount(mounted.mountpoint, _record_at(mounted.mountpoint, live))


def _only(live: list[DaemonRecord]) -> Mount:
    if len(live) == 1:
        return Mount(live[0].mountpoint, live[0])
    if not live:
        raise Refusal(errno.ENOENT, "no-mount", "there is no agentfsd mount here", _candidates(live))
    raise Refusal(
        errno.EINVAL, "which-mount", f"{len(live)} mounts are live and any of them could be meant", _candidates(live)
    )  # fmt: skip


def _candidates(live: list[DaemonRecord]) -> str:
    if not live:
        return "'agentfsd mount DIR MOUNTPOINT' makes one; 'agentfsd run -- COMMAND' overlays the current directory"
    return "choose one with -m: " + ", ".join(f"{record.mountpoint} (of {record.lower})" for record in live)


def _record_at(mountpoint: str, live: list[DaemonRecord]) -> DaemonRecord | None:
    """By mount point; else by workspace, since a private namespace shows a one-step overlay there. None in doubt."""
    exact = [record for record in live if record.mountpoint == mountpoint]
    found = exact or [record for record in live if record.lower == mountpoint]
    return found[0] if len(found) == 1 else None


def _ancestors(directory: str) -> list[str]:
    found = [directory]
    while found[-1] != "/":
        found.append(os.path.dirname(found[-1]))
    return found


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"  # it was deleted: no mount holds it
