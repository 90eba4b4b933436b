"""File locks that connections hand to the daemon: one table for all (core/file_locks.py), waiters, and lock peers.

A *peer* stands for a zero-message connection. That connection sends no FLUSH or RELEASE, so the daemon would not learn when its
locks end, and its kernel keeps them. Each lock that the table grants is also taken through the peer, so that the two sides
exclude each other. Requests for one file take turns while a peer is asked; without a peer nothing here awaits.
"""

import contextlib
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

_FIRST_DELAY_S, _LAST_DELAY_S = 0.005, 0.050  # between two attempts at a peer, which cannot tell us when a lock is free


class LockConflict(NamedTuple):
    """A conflicting lock of kind READ or WRITE; ``pid`` is 0 where it is not known."""

    start: int
    end: int
    kind: int
    pid: int


class LockPeer(Protocol):
    """Holds locks of one branch on another connection. Owners are opaque numbers; an owner's flock and ranges are separate.

    ``kind`` is F_RDLCK or F_WRLCK, ``end`` inclusive. An OSError of hold() or test() becomes the locker's errno.
    """

    async def hold(self, inode: Inode, owner: int, start: int, end: int, kind: int, flock: bool) -> LockConflict | None:
        """Try to take a lock without waiting; return the conflict, if any. A lock that the owner has there is replaced."""

    async def release(self, inode: Inode, owner: int, start: int, end: int, flock: bool) -> None:
        """Release what the owner holds in that range, if anything."""

    async def test(self, inode: Inode, owner: int, start: int, end: int, kind: int) -> LockConflict | None:
        """Return a lock that conflicts with a range, if there is one."""

    async def forget_former(self) -> None:
        """Release the locks that the daemon before held there, and that this one has not asked for. OSError."""


class RefusedLock(NamedTuple):
    """A lock that a new peer could not take, because a process there has a conflicting one."""

    inode: Inode
    lock: Lock
    conflict: LockConflict


class LockService:
    """The locks of one overlay, for all connections that hand theirs to the daemon.

    Attributes:
        table: The locks that are held, and who waits for which.
        start: Runs a task beside the requests; the mount sets it.
    """

    def __init__(self) -> None:
        self.table = LockTable()
        self.start: Callable[..., None] = _nowhere
        self._peers: dict[str, LockPeer] = {}
        self._turns: WeakKeyDictionary[Any, trio.Lock] = WeakKeyDictionary()
        self._pursuing: set[Waiter] = set()
        self._mortal: dict[int, set[int]] = {}  # by process id: lock owners that we watch the process for, see ends_with()

    # -- peers

    async def attach_peer(self, tree_id: str, peer: LockPeer) -> list[RefusedLock]:
        """Take the locks of a branch through a peer too, from now on and those held now; return those that it refuses."""
        self.add_peer(tree_id, peer)
        return await self.hand_over(tree_id)

    def add_peer(self, tree_id: str, peer: LockPeer) -> None:
        """Take the locks of a branch through a peer too, from now on."""
        self._peers[tree_id] = peer

    async def hand_over(self, tree_id: str) -> list[RefusedLock]:
        """Take the locks that are held now through a branch's peer, if it has one; return those that it refuses."""
        peer, refused = self._peers.get(tree_id), []
        if peer is None:
            return []
        for file in self.table.files():
            if isinstance(file, Inode) and file.tree.id == tree_id and not file.tree.detached:
                refused += await self._hand_over(file, peer)
        return refused

    async def resume_peer(self, tree_id: str) -> None:
        """Have a peer from the daemon before hold the locks that are held now, and no others."""
        await self.hand_over(tree_id)
        peer = self._peers.get(tree_id)
        if peer is not None:
            with contextlib.suppress(OSError):  # its process has ended, and all its locks with it
                await peer.forget_former()

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
        """Detach a peer that has gone, and its locks with it. A waiter that it refused gets the lock at its next attempt."""
        self._peers.pop(tree_id, None)

    def has_peer(self, file: Hashable) -> bool:
        """Return whether locks of a file are taken through a peer too."""
        return bool(self._peers) and self._peer_of(file) is not None

    def _peer_of(self, file: Hashable) -> LockPeer | None:
        return self._peers.get(file.tree.id) if isinstance(file, Inode) else None

    def _turn(self, file: Hashable) -> trio.Lock:
        return self._turns.setdefault(file, trio.Lock())

    # -- asking

    async def test_peer(self, file: Hashable, wanted: LockRequest) -> LockConflict | None:
        """Answer F_GETLK for a lock that conflicts with none in the table: return the peer's conflict, if any."""
        peer = self._peer_of(file)
        if peer is None or not isinstance(file, Inode):
            return None
        async with self._turn(file):
            return await peer.test(file, wanted.owner, wanted.start, wanted.end, wanted.kind)

    # -- getting and giving back

    def take_over(self, file: Hashable, lock: LockRequest, *, is_mortal: bool) -> None:
        """Enter a lock that a process has had since before the daemon was started again. Call it before anybody asks.

        *is_mortal*: as is_mortal() returned.
        """
        self.table.apply(file, lock)
        if is_mortal:
            self._watch(file, lock.pid, lock.owner)

    def set_now(self, file: Hashable, wanted: LockRequest) -> Awaitable[None] | None:
        """Answer F_SETLK or LOCK_NB. Return an awaitable where there is a peer. BlockingIOError (EAGAIN) on a conflict."""
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
        """Try once, in this file's turn: test the table, take the lock at the peer, then enter it in the table."""
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
        if granted and self.table.apply(file, wanted) is not None:  # the table changed while the peer was asked
            granted = False
            if peer is not None and isinstance(file, Inode):
                await _released(peer, file, wanted.owner, wanted.start, wanted.end, wanted.flock)
        if not granted:
            await self._tell_released(file, self.table.lose_flock(file, wanted))
        return granted

    def wait(self, waiter: Waiter) -> None:
        """Answer F_SETLKW through the waiter, now or later; EDEADLK where it would wait for itself."""
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
            waiter.finish(errno.EDEADLK)  # not for open file description locks, whose owner is no process
            return
        lost = self.table.lose_flock(waiter.file, waiter.wanted)
        self.table.enqueue(waiter)
        if lost:
            self._wake(waiter.file)

    async def _pursue(self, waiter: Waiter) -> None:
        """Repeat the attempt until the lock is granted, the waiter is queued in the table, or a signal interrupts it."""
        delay_s = _FIRST_DELAY_S
        self._pursuing.add(waiter)
        try:
            while not waiter.done and await self._pursue_once(waiter):
                await trio.sleep(delay_s)
                delay_s = min(2 * delay_s, _LAST_DELAY_S)
        finally:
            self._pursuing.discard(waiter)

    async def _pursue_once(self, waiter: Waiter) -> bool:
        """Try once; return whether to try again."""
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
        """Try once and answer the waiter. A lock that is granted stays so, even if an interrupt came meanwhile."""
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
        """Answer a waiter with an errno: it has a signal, or its connection or branch has gone."""
        waiter.interrupted = True
        if not waiter.busy:
            self.table.leave(waiter)
            waiter.finish(code)

    def _wake(self, file: Hashable) -> None:
        """After a lock of a file was released: grant waiting locks in their order.

        Start from the first waiter again after each, since a grant can release too: a write lock becomes a read lock.
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
        """Do the same where there is a peer. A waiter that the peer refuses tries again by itself."""
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
        """Drop all record locks of an owner that has closed a descriptor of the file, as POSIX says; await what is returned."""
        return self._drop(file, lambda lock: lock.owner == owner and not lock.flock)

    def drop_handle(self, file: Hashable, handle: object) -> Awaitable[None] | None:
        """Drop the locks taken through an open whose last descriptor was closed; await what is returned."""
        return self._drop(file, lambda lock: lock.handle is handle)

    def _drop(self, file: Hashable, chosen: Callable[[Lock], bool]) -> Awaitable[None] | None:
        """Drop the chosen locks; return an awaitable if a peer holds some of them."""
        if file not in self.table:
            return None
        if self.has_peer(file):
            return self._drop_with_peer(file, chosen) if any(map(chosen, self.table.held(file))) else None
        if self.table.drop(file, chosen):
            self._wake(file)
        return None

    async def _drop_with_peer(self, file: Hashable, chosen: Callable[[Lock], bool]) -> None:
        async with self._turn(file):  # the peer first: killed between the two, the next daemon still knows that there is a lock
            await self._tell_released(file, [lock for lock in self.table.held(file) if chosen(lock)])
            self.table.drop(file, chosen)
        self._wake(file)

    async def _tell_released(self, file: Hashable, gone: list[Lock]) -> None:
        peer = self._peer_of(file)
        if peer is not None and isinstance(file, Inode):
            for lock in gone:
                await _released(peer, file, lock.owner, lock.start, lock.end, lock.flock)

    def tree_gone(self, tree: Tree) -> None:
        """Drop all locks of a deleted branch; answer its waiters with ESTALE."""
        self._peers.pop(tree.id, None)
        for waiter in list(self._pursuing):
            if isinstance(waiter.file, Inode) and waiter.file.tree is tree:
                self.interrupt(waiter, errno.ESTALE)
        for file in self.table.files():
            if isinstance(file, Inode) and file.tree is tree:
                for waiter in self.table.waiters(file):
                    self.interrupt(waiter, errno.ESTALE)
                self.table.drop(file, lambda lock: True)

    # -- processes whose closes we do not learn of

    def is_mortal(self, lock: Lock) -> bool:
        """Return whether a record lock is dropped when its process ends."""
        return not lock.flock and lock.owner in self._mortal.get(lock.pid, ())

    def ends_with(self, file: Hashable, tid: int, pid: int, owner: int) -> None:
        """Drop an owner's record locks when its process ends: they came through an open whose closes send no FLUSH.

        An open file description lock does not end with the process, since another process may have the description. The kernel
        soon reuses the number of an owner that has gone, so the locks are chosen by owner and process.
        """
        if owner not in self._mortal.get(pid, ()) and not procfs.locks_open_file(tid):
            self._watch(file, pid, owner)

    def _watch(self, file: Hashable, pid: int, owner: int) -> None:
        if pid in self._mortal:
            self._mortal[pid].add(owner)
        elif pid:
            self._mortal[pid] = {owner}
            self.start(self._outlive, pid)
        self.table.on_changed(file)  # the next daemon must know, which can no longer see the system call

    async def _outlive(self, pid: int) -> None:
        fd = procfs.pidfd(pid, thread=False)
        if fd < 0 and procfs.read(pid) is not None:
            self._mortal.pop(pid)
            log.warning("process %d cannot be watched: its locks last until its files are closed", pid)
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
    """Release at a peer; log a failure, which must not keep the lock in our table."""
    try:
        await peer.release(inode, owner, start, end, flock)
    except OSError as exc:
        log.warning("a lock could not be given back through another connection: %s", exc)


def _nowhere(work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    raise OSError(errno.ENOLCK, "nothing is served yet")
