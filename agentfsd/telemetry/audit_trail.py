"""The audit trail: who changed what in which branch. It listens to the overlay's events and writes them once a second.

The control service adds notes about requests that change no branch. No request waits for a write. When the daemon is killed, the
records of the last second are lost.
"""

import errno
import logging
import sqlite3
import time
from collections.abc import Callable

import trio

from agentfsd.core.branch_events import BranchEvent
from agentfsd.core.overlay import Overlay
from agentfsd.domain_errors import Refusal
from agentfsd.telemetry.audit_database import LOST, AuditDatabase, AuditQuery, AuditRecord, lost
from agentfsd.telemetry.process_identity import UNKNOWN_UID, ProcessIdentifier
from agentfsd.types import Caller

log = logging.getLogger(__name__)

WAITING_MAX = 50_000  # records between two writes
_EVERY_S = 1.0

_CHANGES = frozenset({"created", "modified", "deleted", "renamed", "attributes", "restore", "merge", "commit", "undo", "discard"})


class AuditTrail:
    """Collect records from events and write them once a second.

    ``changed``: when each branch was last changed, in ns, by branch id, as far as the trail was on. ``last_path``: what was
    changed then, likewise, since the daemon began. ``lost``: how many records could not be kept since the daemon began.
    """

    def __init__(self, overlay: Overlay, identify: ProcessIdentifier, path: str) -> None:
        self._overlay, self._identify, self._path = overlay, identify, path
        self._trail: AuditDatabase | None = None
        self._waiting: list[AuditRecord] = []
        self._written: set[tuple[str, int, int]] = (
            set()
        )  # branch, file and process of the writes since the last flush; no Inode: it holds content
        self._names: dict[str, str] = {}
        self._lost, self._failing = 0, False
        self._turn = trio.Lock()
        self.changed: dict[str, int] = {}
        self.last_path: dict[str, bytes] = {}
        self.lost = 0

    @property
    def is_on(self) -> bool:
        return self._trail is not None

    def set(self, *, enabled: bool, max_bytes: int) -> None:
        """Switch the trail on or off. Refusal when the file cannot be used."""
        if not enabled:
            self.close()
        elif self._trail is None:
            trail = AuditDatabase(self._path, max_bytes)
            gap = trail.gap
            try:
                self.changed = trail.changed()
            except sqlite3.Error as exc:
                log.warning("the audit trail does not say when branches were changed: %s", exc)
            self._trail = trail
            if gap:
                self._waiting.append(lost(gap))
            self._overlay.events.listeners.append(self.hear)
        else:
            self._trail.max_bytes = max_bytes

    def close(self) -> None:
        """Write the waiting records in this thread, and switch the trail off."""
        if self._trail is None:
            return
        self._overlay.events.listeners.remove(self.hear)
        self._overlay.events.last_write = None
        trail, self._trail = self._trail, None
        self._write(trail, self._take())
        trail.close()

    def hear(self, event: BranchEvent) -> None:
        """Take an event. It runs in the event loop before the request is answered, and takes a few microseconds."""
        if event.kind == "modified" and event.inode is not None:
            key = (event.branch_id, event.inode.ino, event.pid)
            self._overlay.events.last_write = key
            if key in self._written:
                return
            self._written.add(key)
        if len(self._waiting) >= WAITING_MAX:
            self._lost += 1
            self.lost += 1
            return
        if event.kind == "branch-renamed":
            self._names.clear()
        uid, command = self._identify.of_process(event.by or event.pid)
        path = (event.inode.path if event.inode is not None else b"") if event.path is None else event.path
        now_ns = time.time_ns()
        if event.kind in _CHANGES:
            self.changed[event.branch_id] = now_ns
            self.last_path[event.branch_id] = path
        elif event.kind == "branch-deleted":
            self.changed.pop(event.branch_id, None)
            self.last_path.pop(event.branch_id, None)
        branch = event.branch or self._name(event.branch_id)
        name = self._process(event.pid) if event.by not in (0, event.pid) else event.name
        self._waiting.append(
            AuditRecord(
                now_ns, event.branch_id, branch, uid, event.by or event.pid, command, event.kind, path, event.old_path, name
            )
        )

    def note(self, kind: str, caller: Caller, branch_id: str = "", name: str = "") -> None:
        """Record a request that changes no branch, or one that was refused."""
        if self._trail is None:
            return
        if len(self._waiting) >= WAITING_MAX:
            self._lost += 1
            self.lost += 1
            return
        uid, command = self._identify.of_process(caller.pid)
        uid = caller.uid if uid == UNKNOWN_UID else uid
        branch = self._name(branch_id) if branch_id else ""
        self._waiting.append(AuditRecord(time.time_ns(), branch_id, branch, uid, caller.pid, command, kind, b"", b"", name))

    def _process(self, pid: int) -> str:
        return f"process {pid} {self._identify.of_process(pid)[1]}".rstrip()

    def _name(self, branch_id: str) -> str:
        name = self._names.get(branch_id)
        if name is None:
            name = self._names[branch_id] = self._identify.branch_name(branch_id)
        return name

    def _take(self) -> list[AuditRecord]:
        records, self._waiting = self._waiting, []
        self._written.clear()
        self._names.clear()
        self._overlay.events.last_write = None
        if self._lost:
            records.append(lost(str(self._lost)))
            self._lost = 0
        return records

    def _write(self, trail: AuditDatabase, records: list[AuditRecord]) -> None:
        if not records:
            return
        gone = [record.branch_id for record in records if record.kind == "branch-deleted"]
        touched = {record.branch_id for record in records if record.kind in _CHANGES}
        try:
            trail.write(records, {branch: self.changed[branch] for branch in touched if branch in self.changed}, gone)
        except sqlite3.Error as exc:  # a full disk, for example
            self._lost += sum(int(record.name) if record.kind == LOST and record.name.isdigit() else 1 for record in records)
            self.lost += sum(record.kind != LOST for record in records)
            if not self._failing:
                log.warning("records of the audit trail cannot be written: %s", exc)
            self._failing = True
        else:
            self._failing = False

    async def flush(self) -> None:
        """Write what has happened so far."""
        async with self._turn:
            trail = self._trail
            if trail is not None and (self._waiting or self._lost):
                await trio.to_thread.run_sync(self._write, trail, self._take())

    async def keep_writing(self) -> None:
        """Write the waiting records once a second, as long as the daemon lives."""
        while True:
            await trio.sleep(_EVERY_S)
            await self.flush()

    async def read(self, question: AuditQuery, keep: Callable[[AuditRecord], bool], limit: int) -> list[AuditRecord]:
        """Return the records that *question* and *keep* choose, at most *limit*; none while the trail is off.

        Raises:
            Refusal: The trail cannot be read.
        """
        await self.flush()
        trail = self._trail
        if trail is None:
            return []
        try:
            records = await trio.to_thread.run_sync(trail.read, question, keep, limit)
        except sqlite3.Error as exc:
            message = f"the audit trail {self._path} cannot be read: {exc}"
            hint = "a damaged one was moved aside, and the next one is written already: the daemon's log says so"
            raise Refusal(errno.EIO, "no-audit-trail", message, hint) from exc
        if self._lost and not (question.after or question.kind or question.until_ns):  # the disk is full at this moment
            records.append(lost(str(self._lost))._replace(id=records[-1].id if records else 0))
        return records
