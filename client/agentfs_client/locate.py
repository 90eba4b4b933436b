"""Find the mount that a command means: the one named, the one around the current directory, or the only one.

This module reads the registry and the mount table. It must never talk to a daemon.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from agentfs_client.control import ControlClient
from agentfs_client.errors import DaemonGoneError, InvalidRequestError, NotFoundError
from agentfs_client.registry import DaemonRecord, given_up, live_daemons
from agentfs_host import mount_table
from agentfs_host.mount_table import Mounted, is_dead, is_within, mount_of, shows_branches

MOUNT_VARIABLE = "AGENTFS_MOUNT"
_SHOWN = 3  # mounts that a hint names

Revive = Callable[[str], DaemonRecord | None]  # restarts the idle overlay of a directory, if it had one


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount and the way to its daemon: the socket, or inside a sandbox that hides the socket, only the control file.

    ``record`` is None in that case, and for a mount of another user.
    """

    mountpoint: str
    record: DaemonRecord | None

    @property
    def lower(self) -> str:
        return self.record.lower if self.record else ""

    def covers(self, path: str) -> bool:
        """Tell whether *path* is seen through this mount."""
        return is_within(path, self.mountpoint)

    @property
    def socket(self) -> str | None:
        """Path of the daemon's socket, None if this process cannot reach it."""
        return self.record.socket if self.record is not None and os.access(self.record.socket, os.W_OK) else None

    def connect(self, timeout_s: float | None = None) -> ControlClient:
        """Connect by socket if possible, else through the mount. The control file ignores *timeout_s*, the time limit for each
        reply in seconds.
        """
        socket = self.socket
        return ControlClient.open_mount(self.mountpoint) if socket is None else ControlClient.connect(socket, timeout_s)


def _nobody(directory: str) -> DaemonRecord | None:
    return None


def find(mount: str | None = None, revive: Revive = _nobody) -> Mount:
    """Return the mount that is named; else that of AGENTFS_MOUNT; else the one around the current directory; else the only live
    one.

    Raises:
        NotFoundError: there is no such mount.
        InvalidRequestError: several mounts are possible; the message lists them.
        DaemonGoneError: the daemon of the mount has died.
    """
    if mount is not None:
        return _named(mount, "", revive)
    inherited = os.environ.get(MOUNT_VARIABLE)
    if inherited:
        return _named(inherited, f" (from {MOUNT_VARIABLE})", revive)
    live = live_daemons()
    several = f"the current directory is in no workspace, and {len(live)} are mounted"
    return around(current_directory(), live, revive) or _only(live, several)


def around(directory: str, live: list[DaemonRecord], revive: Revive = _nobody) -> Mount | None:
    """Return the mount that shows *directory*, or whose workspace contains it."""
    mounted = mount_of(directory)
    if mounted is not None and shows_branches(mounted):
        return at(mounted, live)
    for ancestor in _ancestors(directory):
        holding = [record for record in live if record.lower == ancestor]
        if holding:
            return _only(holding, f"{ancestor} is mounted at {len(holding)} places")
        record = revive(ancestor)
        if record is not None:
            return Mount(record.mountpoint, record)
    return None


def current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"  # the directory was deleted, so no mount shows it


def _named(path: str, origin: str, revive: Revive) -> Mount:
    resolved = mount_table.resolved(path)
    live = live_daemons()
    mounted = mount_of(resolved)
    if mounted is not None and shows_branches(mounted):
        return at(mounted, live)
    record = _record_at(resolved, live) or revive(resolved)
    if record is None:
        raise NotFoundError(errno.ENOENT, "no-mount", f"{path}{origin} is not in an agentfsd mount", _candidates(live))
    return Mount(record.mountpoint, record)


def at(mounted: Mounted, live: list[DaemonRecord] | None = None) -> Mount:
    """Return the Mount for a line of the mount table.

    Raises:
        DaemonGoneError: its daemon has died.
    """
    if is_dead(mounted):
        raise DaemonGoneError(
            errno.ENOTCONN, "dead-mount", f"the daemon of {mounted.mountpoint} has died{_how_often(mounted.mountpoint)}",
            f"mount it again (a systemd unit: systemctl restart), and all is there; or 'agentfsd umount {mounted.mountpoint}'",
        )  # fmt: skip
    return Mount(mounted.mountpoint, _record_at(mounted.mountpoint, live_daemons() if live is None else live))


def _how_often(mountpoint: str) -> str:
    why = given_up(mountpoint)
    return f": {why}" if why else ""


def _only(live: list[DaemonRecord], several: str) -> Mount:
    if len(live) == 1:
        return Mount(live[0].mountpoint, live[0])
    if not live:
        raise NotFoundError(errno.ENOENT, "no-mount", "there is no agentfsd mount here", _candidates(live))
    raise InvalidRequestError(errno.EINVAL, "which-mount", several, _candidates(live))


def _candidates(live: list[DaemonRecord]) -> str:
    if not live:
        return "'agentfsd mount DIR MOUNTPOINT' makes one; 'agentfsd run -- COMMAND' overlays the current directory"
    more = f", and {len(live) - _SHOWN} more (`agentfsd status` lists them)" if len(live) > _SHOWN else ""
    return "choose one with -m: " + ", ".join(f"{record.mountpoint} (of {record.lower})" for record in live[:_SHOWN]) + more


def _record_at(mountpoint: str, live: list[DaemonRecord]) -> DaemonRecord | None:
    """Find the record by mount point; else by workspace, since a private namespace mounts a one-step overlay over the workspace.
    Return None if in doubt.
    """
    exact = [record for record in live if record.mountpoint == mountpoint]
    records = exact or [record for record in live if record.lower == mountpoint]
    return records[0] if len(records) == 1 else None


def _ancestors(directory: str) -> list[str]:
    directories = [directory]
    while directories[-1] != "/":
        directories.append(os.path.dirname(directories[-1]))
    return directories
