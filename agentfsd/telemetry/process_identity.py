"""Which process made a request: its number, user, command and branch, read while the process waits for the answer."""

import os
import time
from typing import NamedTuple

from agentfsd.binding import procfs
from agentfsd.binding.table import Bindings
from agentfsd.core.overlay import Overlay

UNKNOWN_UID = -1
_FRESH_S = 0.2  # how long a cached uid counts: a process may change its user
_SAME_S = 0.0003  # within this time no process can exec another program and make a request from it
_KNOWN_MAX = 64


class ProcessIdentity(NamedTuple):
    """Who made a request. ``pid`` 0: the kernel itself, or a process that has ended or is not visible in /proc."""

    pid: int
    branch_id: str
    command: str
    uid: int = UNKNOWN_UID


class _Person:
    """A process seen before. ``fd``: its /proc/PID/comm, which never shows a later process with the same number."""

    __slots__ = ("asked_s", "command", "fd", "name", "uid", "until_s")

    def __init__(self, fd: int) -> None:
        self.fd, self.command, self.name, self.uid = fd, b"", "", UNKNOWN_UID
        self.asked_s = self.until_s = 0.0


class ProcessIdentifier:
    """Identify processes by /proc, with a cache: most requests come from few processes, microseconds apart."""

    def __init__(self, bindings: Bindings, overlay: Overlay) -> None:
        self._bindings, self._overlay = bindings, overlay
        self._known: dict[int, _Person] = {}

    def of_thread(self, tid: int, tree_id: str) -> ProcessIdentity:
        """Identify the process of a thread. *tree_id*: the branch or snapshot that it looked at; "" for its own branch."""
        pid = self._bindings.process_of(tid) if tid else 0
        branch_id = tree_id or (self._bindings.branch_of(tid) if tid else None) or self._overlay.default_id
        uid, command = self.of_process(pid)
        return ProcessIdentity(pid, branch_id, command, uid)

    def of_process(self, pid: int) -> tuple[int, str]:
        """Return the effective uid and the command of a process, as they are now; UNKNOWN_UID and "" where nobody knows."""
        if not pid:
            return UNKNOWN_UID, ""
        known, now = self._known.get(pid), time.monotonic()
        if known is not None and now - known.asked_s < _SAME_S:
            return known.uid, known.name
        command = _command(known.fd) if known is not None else b""
        if known is None or not command:
            known = self._meet(pid) or known  # it has ended: what was known of it is all that there is
            if known is None:
                return UNKNOWN_UID, ""
            command = _command(known.fd) or known.command
        if command != known.command or known.until_s < now:  # it runs another program, perhaps as somebody else
            uid = procfs.owner(pid)
            known.command, known.uid, known.until_s = command, known.uid if uid is None else uid, now + _FRESH_S
            known.name = command.decode("utf-8", "replace")
        known.asked_s = now
        return known.uid, known.name

    def _meet(self, pid: int) -> _Person | None:
        try:
            fd = os.open(f"/proc/{pid}/comm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        old = self._known.pop(pid, None)
        if old is None and len(self._known) >= _KNOWN_MAX:
            old = self._known.pop(next(iter(self._known)))
        if old is not None:
            os.close(old.fd)
        made = self._known[pid] = _Person(fd)
        return made

    def branch_name(self, tree_id: str) -> str:
        """Return the name of a branch or snapshot; "" when it was deleted."""
        return self._overlay.refs.find(tree_id).name if tree_id and self._overlay.refs.exists(tree_id) else ""


def _command(fd: int) -> bytes:
    """Return the command; b"" for a process that has ended."""
    try:
        return os.pread(fd, 64, 0).rstrip(b"\n")
    except OSError:
        return b""
