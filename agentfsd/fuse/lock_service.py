"""Locks of files that connections hand to the daemon: granted by core/file_locks.py, waited for, held by peers as well.

A *peer* stands for a connection whose kernel keeps its locks to itself. What is granted here is held there too, so that the two
exclude each other. Whatever concerns one file takes turns while a peer is asked; without a peer nothing here awaits.
"""

import errno
import logging
import os
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import trio

from agentfsd.binding import procfs
from agentfsd.core.file_locks import UNLOCK, Lock, LockRequest, LockTable, Waiter
from agentfsd.core.tree import Inode, Tree

log = logging.getLogger(__name__)

_FIRST_DELAY_S, _LAST_DELAY_S = 0.005, 0.050  # between two questions to a peer that refuses: it cannot tell us when to come back


class LockConflict(NamedTuple):
    """A lock that stands against another, of kind READ or WRITE; ``pid`` is 0 where nobody knows."""

    start: int
    end: int
    kind: int
    pid: int


class LockPeer(Protocol):
    """Where locks of one branch are held as well. Owners are opaque numbers; a flock and the ranges of one number are apart.

    ``kind`` is F_RDLCK or F_WRLCK, ``end`` inclusive. An OSError of hold() or test() becomes the locker's errno.
    """

    async def hold(self, inode: Inode, owner: int, start: int, end: int, kind: int, flock: bool) -> LockConflict | None:
        """Tries, without waiting; None when it is held. Held already, in part or as another kind: becomes as asked."""

    async def release(self, inode: Inode, owner: int, start: int, end: int, flock: bool) -> None:
        """Of what is held in that range; nothing is wrong with a range or an owner that holds nothing."""

    async def test(self, inode: Inode, owner: int, start: int, end: int, kind: int) -> LockConflict | None:
        """What would stand against a range."""


class RefusedLock(NamedTuple):
    """A lock that a new peer could not hold, because somebody there has it."""

    inode: Inode
    lock: Lock
    conflict: LockConflict


class LockService:
    """Of one overlay, for all connections that hand theirs over. ``start`` runs a task beside the requests; the mount sets it."""

    def __init__(self) -> None:
        self.table = LockTable()
        self.start: Callable[..., None] = _nowhere
        self._peers: dict[str, LockPeer] = {}
        self._turns: WeakKeyDictionary[Any, trio.Lock] = WeakKeyDictionary()
        self._pursuing: set[Waiter] = set()
        self._mortal: dict[int, set[int]] = {}  # by process: owners of whose closes we may not be told

    # -- peers

    async def attach_peer(self, tree_id: str, peer: LockPeer) -> list[RefusedLock]:
        """From now on the locks of a branch are held there as well, also those that are held now; which of these could not be."""
        self._peers[tree_id] = peer
        refused = []
        for file in self.table.files():
            if isinstance(file, Inode) and file.tree.id == tree_id and not file.tree.detached:
                refused += await self._hand_over(file, peer)
        return refused

    async def _hand_over(self, inode: Inode, peer: LockPeer) -> list[RefusedLock]:
        refused = []
        async with self._turn(inode):
            for lock in self.table.held(inode):
                try:
                    conflict = await peer.hold(inode, lock.owner, lock.start, lock.end, lock.kind, lock.flock)
                except OSError as exc:
                    log.warning("a lock of process %d cannot be held where runs would see it: %s", lock.pid, exc.strerror)
                    conflict = LockConflict(lock.start, lock.end, lock.kind, 0)
                if conflict is not None:
                    refused.append(RefusedLock(inode, lock, conflict))
        return refused

    def detach_peer(self, tree_id: str) -> None:
        """It has gone, and what it held with it. Who waited for somebody there is granted the lock at the next attempt."""
        self._peers.pop(tree_id, None)

    def has_peer(self, file: Hashable) -> bool:
        return bool(self._peers) and self._peer_of(file) is not None

    def _peer_of(self, file: Hashable) -> LockPeer | None:
        return self._peers.get(file.tree.id) if isinstance(file, Inode) else None

    def _turn(self, file: Hashable) -> trio.Lock:
        return self._turns.setdefault(file, trio.Lock())

    # -- asking

    async def test_peer(self, file: Hashable, wanted: LockRequest) -> LockConflict | None:
        """F_GETLK, where nobody in the table stands against it."""
        peer = self._peer_of(file)
        if peer is None or not isinstance(file, Inode):
            return None
        async with self._turn(file):
            return await peer.test(file, wanted.owner, wanted.start, wanted.end, wanted.kind)

    # -- getting and giving back

    def set_now(self, file: Hashable, wanted: LockRequest) -> Awaitable[None] | None:
        """F_SETLK, or LOCK_NB: EAGAIN. To be awaited where there is a peer."""
        if self.has_peer(file):
            return self._set_with_peer(file, wanted)
        if self.table.apply(file, wanted) is not None:
            self.table.lose_flock(file, wanted)
            self._wake(file)
            raise BlockingIOError(errno.EAGAIN, "somebody else has it locked")
        self._wake(file)
        return None

    async def _set_with_peer(self, file: Hashable, wanted: LockRequest) -> None:
        async with self._turn(file):
            granted = await self._try(file, wanted)
        self._wake(file)
        if not granted:
            raise BlockingIOError(errno.EAGAIN, "somebody else has it locked")

    async def _try(self, file: Hashable, wanted: LockRequest) -> bool:
        """One attempt in this file's turn: the table first, then the peer; the table has it when both have."""
        peer = self._peer_of(file)
        granted = self.table.test(file, wanted) is None
        if granted and peer is not None and isinstance(file, Inode):
            if wanted.kind == UNLOCK:
                await _released(peer, file, wanted.owner, wanted.start, wanted.end, wanted.flock)
            else:
                conflict = None
                if not file.tree.detached:
                    conflict = await peer.hold(file, wanted.owner, wanted.start, wanted.end, wanted.kind, wanted.flock)
                granted = conflict is None
        if granted and self.table.apply(file, wanted) is not None:  # somebody was faster, while the peer went
            granted = False
            if peer is not None and isinstance(file, Inode):
                await _released(peer, file, wanted.owner, wanted.start, wanted.end, wanted.flock)
        if not granted:
            await self._tell_released(file, self.table.lose_flock(file, wanted))
        return granted

    def wait(self, waiter: Waiter) -> None:
        """F_SETLKW: the waiter is answered now or later; EDEADLK where it would wait for itself."""
        file, wanted = waiter.file, waiter.wanted
        if self.has_peer(file):
            if wanted.flock or self.table.test(file, wanted) is None:
                self.start(self._pursue, waiter)
            else:
                self._queue(waiter)  # at once: first come, first served
        elif self.table.apply(file, wanted) is None:
            self._wake(file)
            waiter.finish(0)
        else:
            self._queue(waiter)

    def _queue(self, waiter: Waiter) -> None:
        if self.table.would_deadlock(waiter.file, waiter.wanted) and not procfs.locks_open_file(waiter.tid):
            waiter.finish(errno.EDEADLK)  # open file description locks belong to nobody who could wait for himself
            return
        lost = self.table.lose_flock(waiter.file, waiter.wanted)
        self.table.enqueue(waiter)
        if lost:
            self._wake(waiter.file)

    async def _pursue(self, waiter: Waiter) -> None:
        """Until it is granted, or waits for somebody in the table, or was interrupted."""
        delay_s = _FIRST_DELAY_S
        self._pursuing.add(waiter)
        try:
            while not waiter.done and await self._pursue_once(waiter):
                await trio.sleep(delay_s)
                delay_s = min(2 * delay_s, _LAST_DELAY_S)
        finally:
            self._pursuing.discard(waiter)

    async def _pursue_once(self, waiter: Waiter) -> bool:
        """Whether to ask again."""
        async with self._turn(waiter.file):
            if waiter.done:
                return False
            if self.table.test(waiter.file, waiter.wanted) is not None:
                await self._tell_released(waiter.file, self.table.lose_flock(waiter.file, waiter.wanted))
                self._queue(waiter)
                return False
            await self._ask(waiter)
        self._wake(waiter.file)
        return not waiter.done

    async def _ask(self, waiter: Waiter) -> None:
        """What was granted meanwhile is not taken back: an interruption comes too late then."""
        waiter.busy = True
        try:
            granted = await self._try(waiter.file, waiter.wanted)
        except OSError as exc:
            waiter.finish(exc.errno or errno.EIO)
            return
        finally:
            waiter.busy = False
        if granted:
            waiter.finish(0)
        elif waiter.interrupted:
            waiter.finish(errno.EINTR)

    def interrupt(self, waiter: Waiter, code: int = errno.EINTR) -> None:
        """A signal came, or the process is being killed."""
        waiter.interrupted = True
        if not waiter.busy:
            self.table.leave(waiter)
            waiter.finish(code)

    def _wake(self, file: Hashable) -> None:
        """After anything of a file was given back: who waits for it is served in turn.

        And from the first again after each, since being granted can give back, too: a write lock becomes a read lock.
        """
        if self.has_peer(file):
            if next(self._ready(file), None) is not None:
                self.start(self._serve, file)
            return
        while (waiter := next(self._ready(file), None)) is not None:
            self.table.leave(waiter)
            self.table.apply(file, waiter.wanted)
            waiter.finish(0)

    async def _serve(self, file: Hashable) -> None:
        """The same where there is a peer. Whoever is refused there asks again by itself."""
        served = False
        async with self._turn(file):
            for waiter in self.table.waiters(file):
                if waiter.done or self.table.test(file, waiter.wanted) is not None:
                    continue
                self.table.leave(waiter)
                await self._ask(waiter)
                served = True
                if not waiter.done:
                    self.start(self._pursue, waiter)
        if served:
            self._wake(file)

    def _ready(self, file: Hashable) -> Iterator[Waiter]:
        return (waiter for waiter in self.table.waiters(file) if self.table.test(file, waiter.wanted) is None)

    # -- ends

    def drop_ranges(self, file: Hashable, owner: int) -> Awaitable[None] | None:
        """The owner has closed a descriptor of that file: POSIX takes all its record locks of it away."""
        return self._drop(file, lambda lock: lock.owner == owner and not lock.flock)

    def drop_handle(self, file: Hashable, handle: object) -> Awaitable[None] | None:
        """The last descriptor of an open has gone."""
        return self._drop(file, lambda lock: lock.handle is handle)

    def _drop(self, file: Hashable, chosen: Callable[[Lock], bool]) -> Awaitable[None] | None:
        """To be awaited where there is a peer that holds some of it."""
        if file not in self.table:
            return None
        if self.has_peer(file):
            return self._drop_with_peer(file, chosen) if any(map(chosen, self.table.held(file))) else None
        if self.table.drop(file, chosen):
            self._wake(file)
        return None

    async def _drop_with_peer(self, file: Hashable, chosen: Callable[[Lock], bool]) -> None:
        async with self._turn(file):
            await self._tell_released(file, self.table.drop(file, chosen))
        self._wake(file)

    async def _tell_released(self, file: Hashable, gone: list[Lock]) -> None:
        peer = self._peer_of(file)
        if peer is not None and isinstance(file, Inode):
            for lock in gone:
                await _released(peer, file, lock.owner, lock.start, lock.end, lock.flock)

    def tree_gone(self, tree: Tree) -> None:
        """A branch was deleted: whoever waits there is told, and nothing is held any more."""
        self._peers.pop(tree.id, None)
        for waiter in list(self._pursuing):
            if isinstance(waiter.file, Inode) and waiter.file.tree is tree:
                self.interrupt(waiter, errno.ESTALE)
        for file in self.table.files():
            if isinstance(file, Inode) and file.tree is tree:
                for waiter in self.table.waiters(file):
                    self.interrupt(waiter, errno.ESTALE)
                self.table.drop(file, lambda lock: True)

    # -- processes of whose closes we are not told

    def ends_with(self, tid: int, pid: int, owner: int) -> None:
        """A range was granted through an open of which only the last close is told: it goes with its process at the latest.

        Not so an open file description lock: whoever else has that description goes on to hold it. The number of an owner that
        has gone is soon another's, so what goes is told by owner and process.
        """
        owners = self._mortal.get(pid)
        if (owners is not None and owner in owners) or procfs.locks_open_file(tid):
            return
        if owners is not None:
            owners.add(owner)
        elif pid:
            self._mortal[pid] = {owner}
            self.start(self._outlive, pid)

    async def _outlive(self, pid: int) -> None:
        fd = procfs.pidfd(pid, thread=False)
        if fd < 0 and procfs.read(pid) is not None:
            self._mortal.pop(pid)
            log.warning("no descriptor to watch process %d: its locks last until its files are closed", pid)
            return
        try:
            if fd >= 0:
                await trio.lowlevel.wait_readable(fd)
        finally:
            if fd >= 0:
                os.close(fd)
            owners = self._mortal.pop(pid)
        for file in self.table.files():
            dropping = self._drop(file, lambda lock: lock.pid == pid and lock.owner in owners and not lock.flock)
            if dropping is not None:
                await dropping


async def _released(peer: LockPeer, inode: Inode, owner: int, start: int, end: int, flock: bool) -> None:
    """A peer that cannot release has gone, or will hear of it: what was granted here must not stay because of it."""
    try:
        await peer.release(inode, owner, start, end, flock)
    except OSError as exc:
        log.warning("a lock could not be given back through another connection: %s", exc)


def _nowhere(work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    raise OSError(errno.ENOLCK, "nothing is served yet")
