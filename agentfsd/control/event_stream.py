"""The events of branches for one client: in order, in bounded memory, as fast as the client reads.

A watcher is a listener of the overlay's events. It never makes the handler of a change wait.
"""

import errno
import math
import time
from collections import deque
from collections.abc import Callable

import trio

from agentfs_client import wire
from agentfsd.binding.table import Bindings
from agentfsd.control.request_context import RequestContext
from agentfsd.core.branch_events import BranchEvent
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode
from agentfsd.domain_errors import Refusal

LIMIT = 10_000  # events that wait for a slow reader
_QUIET_S = 0.2  # between two events of a file that is written all the time
_BATCH = 500
_OF_OTHERS = ("overlap", "conflict")


class _Write:
    """The last "modified" event of a file: when it was sent, and the last write since then (None if there was none)."""

    __slots__ = ("again", "told_s")

    def __init__(self, told_s: float) -> None:
        self.told_s = told_s
        self.again: BranchEvent | None = None


class EventWatcher:
    """Collects the events of one branch, given by its id, or of all (None), from start() to stop().

    *hides*: given the path of an event, and the old path of a rename, returns whether the client must not see it.
    *knows_others*: the client may know what other branches change.
    """

    def __init__(
        self, overlay: Overlay, branch_id: str | None, hides: Callable[[bytes, bytes], bool] = lambda *paths: False, *,
        knows_others: bool = True,
    ) -> None:  # fmt: skip
        self.branch_id, self._hides, self._knows_others = branch_id, hides, knows_others
        self._overlay = overlay
        self._branch_gone = False
        self._queue: deque[wire.Event] = deque()
        self._lost = 0
        self._writes: dict[Inode, _Write] = {}
        self._next_look_s = math.inf
        self._news = trio.Event()

    def start(self) -> None:
        """Start collecting events."""
        self._overlay.events.listeners.append(self.hear)

    def stop(self) -> None:
        """Stop collecting events."""
        self._overlay.events.listeners.remove(self.hear)

    # -- hearing

    def hear(self, event: BranchEvent) -> None:
        """Receive an event from the overlay."""
        if self.branch_id not in (None, event.branch_id) or (event.kind in _OF_OTHERS and not self._knows_others):
            return
        inode = event.inode
        if inode is None:
            self._tell_writes(event.branch_id)
        elif event.kind == "modified":
            self._written(inode, event)
            return
        elif self._writes:
            self._tell_write_before(inode, event)
        self._tell(event)
        if event.kind == "branch-deleted" and self.branch_id is not None:
            self._branch_gone = True

    def _written(self, inode: Inode, event: BranchEvent) -> None:
        """Report the first write at once, and later ones together after a quiet time."""
        known = self._writes.get(inode)
        if known is not None:
            known.again = event
        elif len(self._writes) >= LIMIT:
            self._lose()
        else:
            now = time.monotonic()
            self._writes[inode] = _Write(now)
            self._next_look_s = min(self._next_look_s, now + _QUIET_S)
            self._tell(event)

    def _tell_write_before(self, inode: Inode, event: BranchEvent) -> None:
        """Report a pending write of a file before its rename. Drop the pending write of a file that is deleted."""
        if event.kind == "deleted" and not inode.nlink:
            self._writes.pop(inode, None)
            return
        known = self._writes.get(inode)
        if known is not None and known.again is not None and event.kind == "renamed":
            self._tell(known.again._replace(path=event.old_path))
            known.again = None

    def _tell_writes(self, branch_id: str) -> None:
        """Report the pending writes of a branch before its snapshot or its new state."""
        for inode in [inode for inode in self._writes if inode.tree.id == branch_id]:
            self._tell_write(inode, self._writes.pop(inode))

    def _tell_write(self, inode: Inode, write: _Write) -> None:
        if write.again is not None and inode.nlink:
            self._tell(write.again)

    def _tell(self, event: BranchEvent) -> None:
        """Tell an event, unless a rule hides its path from the client."""
        path = (event.inode.path if event.inode is not None else b"") if event.path is None else event.path
        if not self._hides(path, event.old_path):
            self._put(self._event(event))

    def _event(self, event: BranchEvent) -> wire.Event:
        inode = event.inode
        path = (inode.path if inode is not None else b"") if event.path is None else event.path
        fields = wire.path_fields(path) | wire.path_fields(event.old_path, "old_path")
        return wire.Event(
            kind=event.kind, branch=event.branch or self._branch_name(event.branch_id), pid=event.pid, time_ns=time.time_ns(),
            path=fields["path"], raw_path=fields.get("raw_path", ""), old_path=fields["old_path"],
            raw_old_path=fields.get("raw_old_path", ""), is_dir=inode is not None and inode.is_dir, name=event.name,
        )  # fmt: skip

    def _branch_name(self, branch_id: str) -> str:
        return self._overlay.refs.branch(branch_id).name if self._overlay.refs.exists(branch_id) else ""

    # -- passing on

    @property
    def is_over(self) -> bool:
        """Return whether the watched branch is gone and the client has been told."""
        return self._branch_gone and not self._queue and not self._lost

    def _put(self, event: wire.Event) -> None:
        if len(self._queue) >= LIMIT:
            self._lose()
            return
        self._mark_gap()
        self._queue.append(event)
        self._news.set()

    def _lose(self) -> None:
        self._lost += 1
        self._news.set()

    def _mark_gap(self) -> None:
        if self._lost:
            self._queue.append(wire.Event(kind="lost", branch="", time_ns=time.time_ns(), count=self._lost))
            self._lost = 0

    async def take(self) -> list[wire.Event]:
        """Wait for events and return some of them, in order."""
        while True:
            self._look_at_writes()
            if not self._queue:
                self._mark_gap()
            if self._queue:
                return [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            self._news = trio.Event()
            with trio.move_on_after(max(0.0, self._next_look_s - time.monotonic())):
                await self._news.wait()

    def _look_at_writes(self) -> None:
        now = time.monotonic()
        if now < self._next_look_s:
            return
        for inode, write in list(self._writes.items()):
            if now - write.told_s < _QUIET_S:
                continue
            self._tell_write(inode, write)
            if write.again is None:
                del self._writes[inode]
            else:
                write.again, write.told_s = None, now
        self._next_look_s = now + _QUIET_S / 2 if self._writes else math.inf


async def stream(watcher: EventWatcher, context: RequestContext, bindings: Bindings) -> None:
    """Send events to the client until the watched branch is gone.

    Raises:
        Refusal: The request did not come over the socket, or the caller was bound to another branch meanwhile.
        ClientGone: The client closed its end.
    """
    channel = context.channel
    if channel is None:
        raise Refusal(
            errno.EOPNOTSUPP, "socket-only", "events are sent over the daemon's socket only", "`agentfsd watch` uses it"
        )
    watcher.start()
    try:
        await channel.send(wire.EventsOk())
        while not watcher.is_over:
            events = await watcher.take()
            if bindings.branch_of(context.caller.pid) not in (None, watcher.branch_id):
                raise Refusal(errno.EPERM, "outside-branch", "you are bound to a branch now, and get no events of other branches")
            await channel.send(*events)
    finally:
        watcher.stop()
