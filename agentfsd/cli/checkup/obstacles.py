"""What is in the way of mounting here today, though the machine could: no room, no right to the state directory, dead mounts.

It must never wait for a mount, nor leave anything behind.
"""

import errno
import os
import shlex
import tempfile

from agentfs_client import registry
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfs_host import mount_table
from agentfsd.backstore import free_space
from agentfsd.backstore.hostfs import SET_ASIDE
from agentfsd.cli.checkup import remedies
from agentfsd.cli.checkup.capabilities import Finding
from agentfsd.control import status_text
from agentfsd.daemon import state_contents
from agentfsd.domain_errors import NO_ROOM
from agentfsd.state import state_directory

_PATIENCE_S = 2.0  # with a daemon that is asked how it is
_ELSEWHERE = "agentfsd mount --state DIR, on a disk that can be written"


def survey(state_parent: str) -> list[Finding]:
    """*state_parent*: where state directories are made unless somebody says otherwise."""
    return [_state(state_parent), _dead_mounts(), _damage(state_parent)]


def _state(parent: str) -> Finding:
    there = parent
    while not os.path.exists(there):
        there = os.path.dirname(there)
    cost = "nothing can be mounted, unless --state names another place"
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(1 << 16))
            file.flush()
    except OSError as exc:
        if exc.errno in NO_ROOM:
            return Finding("state directory", False, f"no room is left in {there}", cost, _make_room(there), True)
        return Finding("state directory", False, f"{there}: {exc.strerror}", cost, _gain_right(there, exc.errno), True)
    found = os.statvfs(there)
    if free_space.is_full(found):
        return Finding("state directory", False, f"no room is left in {there}", cost, _make_room(there), True)
    return Finding(
        "state directory", True, f"{status_text.size(free_space.free_bytes(found))} are free in {there}", cost, "", True
    )


def _make_room(path: str) -> str:
    """What takes it is somebody's to judge; the command shows where it is."""
    mounted = mount_table.mount_of(os.path.realpath(path))
    place = shlex.quote(mounted.mountpoint if mounted is not None else path)
    return f"remove what is not needed (du -xh -d 3 {place} | sort -h | tail shows what is large), or {_ELSEWHERE}"


def _gain_right(path: str, code: int | None) -> str:
    home = os.path.realpath(os.path.expanduser("~"))
    if code in (errno.EACCES, errno.EPERM) and os.path.realpath(path).startswith(f"{home}/"):
        return remedies.as_root(f"chown {os.geteuid()} {shlex.quote(path)}") + f" && chmod u+rwx {shlex.quote(path)}"
    return _ELSEWHERE


def _dead_mounts() -> Finding:
    """Those that a killed daemon has left to us."""
    ours = [mounted for mounted in mount_table.mount_table() if mounted.fstype == mount_table.FSTYPE]
    dead = [mounted.mountpoint for mounted in ours if mount_table.is_dead(mounted)]
    shown = " ".join(shlex.quote(path) for path in dead)
    detail = f"the daemon has died of {', '.join(dead)}" if dead else "none"
    cost = "programs get errors there (Transport endpoint is not connected); mounted again, it has all that was acknowledged"
    give_up = f"for each in {shown}; do agentfsd umount $each; done" if len(dead) > 1 else f"agentfsd umount {shown}"
    again = shown if len(dead) == 1 else "MOUNTPOINT"
    remedy = (
        f"mount it again (agentfsd mount LOWER {again}, with the options it had; a systemd unit: systemctl restart), and all is "
        f"there; or {give_up}"
    )
    return Finding("dead mounts", not dead, detail, cost, remedy)


def _damage(parent: str) -> Finding:
    """Of what is kept there, and by daemons that live."""
    live = _live_states()
    there = {entry.path for entry in os.scandir(parent) if entry.is_dir()} if os.path.isdir(parent) else set()
    found, remedies_of = [], []
    for path in sorted(live | there):
        said = _said_of(state_directory.StateDirectory(path), is_live=path in live)
        if said:
            found.append(f"{path}: {said}")
            remedies_of.append(f"agentfsd fsck --state {shlex.quote(path)}")
    cost = "files are lost or older than they were, or contents are kept that no name leads to"
    remedy = "; ".join(remedies_of) + (" (unmount first)" if any(path in live for path in there) and remedies_of else "")
    return Finding("damage", not found, "; ".join(found) or "none", cost, remedy)


def _live_states() -> set[str]:
    try:
        return {record.state for record in registry.live_daemons()}
    except PermissionError:  # where daemons are noted is somebody else's
        return set()


def _said_of(state: state_directory.StateDirectory, *, is_live: bool) -> str:
    """What is wrong, "" for nothing. What a daemon is using is not looked into: it is asked."""
    said = []
    try:
        if is_live:
            return ", ".join(_told_by_daemon(state))
        inspected = state_contents.inspect(state)
        lost = state_contents.count_lost(state, inspected)
        said += [*inspected.damage, *([f"{lost} content{'' if lost == 1 else 's'} of files lost"] if lost else [])]
        place = os.path.join(state.objects, SET_ASIDE)
        aside = len(os.listdir(place)) if os.path.isdir(place) else 0
        said += [f"{aside} contents were set aside"] if aside else []
    except OSError as exc:
        said.append(exc.strerror or str(exc))
    return ", ".join(said)


def _told_by_daemon(state: state_directory.StateDirectory) -> list[str]:
    """Nothing when it does not answer soon."""
    record = state.last_record()
    try:
        with ControlClient.connect(record.socket if record is not None else state.socket, _PATIENCE_S) as daemon:
            return daemon.status().damage
    except AgentFSError:
        return []
