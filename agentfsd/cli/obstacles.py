"""What is in the way of mounting here today, though the machine could: no room, no right to the state directory, dead mounts.

It must never wait for a mount, nor leave anything behind.
"""

import errno
import os
import shlex
import tempfile

from agentfsd import mounts
from agentfsd.backstore import room
from agentfsd.cli import remedies
from agentfsd.cli.capabilities import Finding
from agentfsd.control import text
from agentfsd.errors import NO_ROOM

_ELSEWHERE = "agentfsd mount --state DIR, on a disk that can be written"


def survey(state_parent: str) -> list[Finding]:
    """*state_parent*: where state directories are made unless somebody says otherwise."""
    return [_state(state_parent), _dead_mounts()]


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
    if room.is_full(found):
        return Finding("state directory", False, f"no room is left in {there}", cost, _make_room(there), True)
    return Finding("state directory", True, f"{text.size(room.free_bytes(found))} are free in {there}", cost, "", True)


def _make_room(path: str) -> str:
    """What takes it is somebody's to judge; the command shows where it is."""
    mounted = mounts.mount_of(os.path.realpath(path))
    place = shlex.quote(mounted.mountpoint if mounted is not None else path)
    return f"remove what is not needed (du -xh -d 3 {place} | sort -h | tail shows what is large), or {_ELSEWHERE}"


def _gain_right(path: str, code: int | None) -> str:
    home = os.path.realpath(os.path.expanduser("~"))
    if code in (errno.EACCES, errno.EPERM) and os.path.realpath(path).startswith(f"{home}/"):
        return remedies.as_root(f"chown {os.geteuid()} {shlex.quote(path)}") + f" && chmod u+rwx {shlex.quote(path)}"
    return _ELSEWHERE


def _dead_mounts() -> Finding:
    """Those that a killed daemon has left to us."""
    ours = [mounted for mounted in mounts.mount_table() if mounted.fstype == mounts.FSTYPE]
    dead = [mounted.mountpoint for mounted in ours if mounts.is_dead(mounted)]
    shown = " ".join(shlex.quote(path) for path in dead)
    detail = f"the daemon has died of {', '.join(dead)}" if dead else "none"
    cost = "programs get errors there (Transport endpoint is not connected); mounted again, it has all that was acknowledged"
    remedy = f"for each in {shown}; do agentfsd umount $each; done" if len(dead) > 1 else f"agentfsd umount {shown}"
    return Finding("dead mounts", not dead, detail, cost, remedy)
