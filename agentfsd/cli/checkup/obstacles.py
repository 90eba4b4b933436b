"""Finds what prevents mounting at present on a machine that could: a full disk, an unwritable state directory, dead mounts.

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
from agentfsd.cli.checkup.finding import Finding
from agentfsd.control import status_text
from agentfsd.daemon import state_contents
from agentfsd.domain_errors import NO_ROOM
from agentfsd.state import state_directory

_PATIENCE_S = 2.0  # the limit for a daemon's answer
_ELSEWHERE = "agentfsd mount --state DIR, on a disk that can be written"


def survey(state_parent: str) -> list[Finding]:
    """Return the findings. *state_parent*: the directory in which state directories are created by default."""
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
    space = os.statvfs(there)
    if free_space.is_full(space):
        return Finding("state directory", False, f"no room is left in {there}", cost, _make_room(there), True)
    return Finding(
        "state directory", True, f"{status_text.size(free_space.free_bytes(space))} are free in {there}", cost, "", True
    )


def _make_room(path: str) -> str:
    """Return a command that shows what fills the disk; the user must choose what to remove."""
    mounted = mount_table.mount_of(os.path.realpath(path))
    place = shlex.quote(mounted.mountpoint if mounted is not None else path)
    return f"remove what is not needed (du -xh -d 3 {place} | sort -h | tail shows what is large), or {_ELSEWHERE}"


def _gain_right(path: str, code: int | None) -> str:
    home = os.path.realpath(os.path.expanduser("~"))
    if code in (errno.EACCES, errno.EPERM) and os.path.realpath(path).startswith(f"{home}/"):
        return remedies.as_root(f"chown {os.geteuid()} {shlex.quote(path)}") + f" && chmod u+rwx {shlex.quote(path)}"
    return _ELSEWHERE


def _dead_mounts() -> Finding:
    """Find the mounts whose daemon was killed."""
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
    """Find damage in the state directories, also in those of live daemons."""
    live = _live_states()
    there = {entry.path for entry in os.scandir(parent) if entry.is_dir()} if os.path.isdir(parent) else set()
    problems, commands = [], []
    for path in sorted(live | there):
        problem = _said_of(state_directory.StateDirectory(path), is_live=path in live)
        if problem:
            problems.append(f"{path}: {problem}")
            commands.append(f"agentfsd fsck --state {shlex.quote(path)}")
    cost = "files are lost or older than they were, or contents are kept that no name leads to"
    remedy = "; ".join(commands) + (" (unmount first)" if any(path in live for path in there) and commands else "")
    return Finding("damage", not problems, "; ".join(problems) or "none", cost, remedy)


def _live_states() -> set[str]:
    try:
        return {record.state for record in registry.live_daemons()}
    except PermissionError:  # the registry of daemons belongs to another user
        return set()


def _said_of(state: state_directory.StateDirectory, *, is_live: bool) -> str:
    """Say what is wrong with a state, "" for nothing. A live daemon is asked; its files are not read."""
    problems = []
    try:
        if is_live:
            return ", ".join(_told_by_daemon(state))
        inspected = state_contents.inspect(state)
        lost = state_contents.count_lost(state, inspected)
        problems += [*inspected.damage, *([f"{lost} content{'' if lost == 1 else 's'} of files lost"] if lost else [])]
        place = os.path.join(state.objects, SET_ASIDE)
        aside = len(os.listdir(place)) if os.path.isdir(place) else 0
        problems += [f"{aside} contents were set aside"] if aside else []
    except OSError as exc:
        problems.append(exc.strerror or str(exc))
    return ", ".join(problems)


def _told_by_daemon(state: state_directory.StateDirectory) -> list[str]:
    """Ask the daemon for damage; return nothing if it does not answer soon."""
    record = state.last_record()
    try:
        with ControlClient.connect(record.socket if record is not None else state.socket, _PATIENCE_S) as daemon:
            return daemon.status().damage
    except AgentFSError:
        return []
