"""POSIX record locks, open file description locks and flock: the locks on each file, and the requests that wait for one.

A file is any hashable object, in practice an inode, so one path in two branches is two files. An owner is a number from the
kernel. It stands for a process's descriptor table (POSIX locks) or for an open file description (the other two kinds).
Source: fcntl(2) and flock(2); where these leave a choice, fs/locks.c of Linux 6.18.
"""

import fcntl
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

READ, WRITE, UNLOCK = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
LAST = (1 << 63) - 1  # the last byte of a lock "to the end of the file"


class LockRequest(NamedTuple):
    """A request to lock or unlock the bytes from start to end (inclusive).

    Attributes:
        owner: Number of the owner: see the module.
        kind: READ, WRITE or UNLOCK.
        start: First byte.
        end: Last byte.
        flock: True for flock, False for the other two kinds.
        pid: The process that F_GETLK reports.
        handle: The file handle of the request.
    """

    owner: int
    kind: int
    start: int = 0
    end: int = LAST
    flock: bool = False
    pid: int = 0
    handle: object = None


class Lock(NamedTuple):
    """A lock that an owner holds. The attributes are those of its LockRequest."""

    owner: int
    kind: int
    start: int
    end: int
    flock: bool
    pid: int
    handle: object


class Waiter:
    """A request that waits for a lock.

    Args:
        file: The file to lock.
        wanted: The lock asked for.
        tid: The thread that waits.
        answer: Called once: with 0 when the lock is granted, else with an errno.
    """

    __slots__ = ("_answer", "busy", "done", "file", "interrupted", "tid", "wanted")

    def __init__(self, file: Hashable, wanted: LockRequest, tid: int, answer: Callable[[int], None]) -> None:
        self.file, self.wanted, self.tid, self._answer = file, wanted, tid, answer
        self.done = False
        self.busy = False  # a peer is being asked: an interrupt waits for its answer
        self.interrupted = False

    def finish(self, code: int) -> None:
        """Answer the request with 0 or an errno, unless it was answered before."""
        if not self.done:
            self.done = True
            self._answer(code)


class _FileLocks:
    """The locks and waiters of one file. Owners are in the order of their first lock, as in the kernel."""

    __slots__ = ("flocks", "posix", "waiters")

    def __init__(self) -> None:
        self.posix: dict[int, list[Lock]] = {}
        self.flocks: dict[int, Lock] = {}
        self.waiters: list[Waiter] = []

    def conflicts(self, wanted: LockRequest) -> Iterator[Lock]:
        """Yield the locks of other owners that conflict with *wanted*."""
        if wanted.kind == UNLOCK:
            return
        for lock in self.flocks.values() if wanted.flock else self._ranges():
            if (
                lock.owner != wanted.owner and WRITE in (lock.kind, wanted.kind)
                and lock.start <= wanted.end and wanted.start <= lock.end
            ):  # fmt: skip
                yield lock

    def _ranges(self) -> Iterator[Lock]:
        for locks in self.posix.values():
            yield from locks

    def put(self, wanted: LockRequest) -> None:
        """Grant *wanted*, or unlock. Call this only if conflicts() yields nothing."""
        if not wanted.flock:
            self._keep(wanted.owner, _changed(self.posix.get(wanted.owner, []), wanted))
        elif wanted.kind == UNLOCK:
            self.flocks.pop(wanted.owner, None)
        else:
            self.flocks[wanted.owner] = Lock(wanted.owner, wanted.kind, 0, LAST, True, wanted.pid, wanted.handle)

    def _keep(self, owner: int, locks: list[Lock]) -> None:
        if locks:
            self.posix[owner] = locks
        else:
            self.posix.pop(owner, None)

    def drop(self, chosen: Callable[[Lock], bool]) -> list[Lock]:
        """Remove the locks for which *chosen* returns True, and return them."""
        gone = [lock for lock in self.held() if chosen(lock)]
        for lock in gone:
            if lock.flock:
                del self.flocks[lock.owner]
            else:
                self._keep(lock.owner, [other for other in self.posix[lock.owner] if other is not lock])
        return gone

    def held(self) -> list[Lock]:
        return [*self._ranges(), *self.flocks.values()]


def _changed(locks: list[Lock], wanted: LockRequest) -> list[Lock]:
    """Return the POSIX locks of one owner after *wanted* was applied.

    *wanted* replaces the ranges that it covers. It is merged with ranges of its kind that overlap it or adjoin it.
    """
    owner, kind, start, end, _, pid, handle = wanted
    kept = []
    for lock in locks:
        if kind == lock.kind and lock.start <= wanted.end + 1 and wanted.start <= lock.end + 1:
            start, end = min(start, lock.start), max(end, lock.end)
            continue
        if lock.end < wanted.start or wanted.end < lock.start:
            kept.append(lock)
            continue
        if lock.start < wanted.start:
            kept.append(lock._replace(end=wanted.start - 1))
        if wanted.end < lock.end:
            kept.append(lock._replace(start=wanted.end + 1))
    if kind != UNLOCK:
        kept.append(Lock(owner, kind, start, end, False, pid, handle))
    return sorted(kept, key=lambda lock: lock.start)


class LockTable:
    """All locks of one overlay. Single-threaded; every call is one atomic step.

    Attributes:
        on_changed: Called with a file after its locks may have changed.
    """

    def __init__(self) -> None:
        self._files: dict[Hashable, _FileLocks] = {}
        self.on_changed: Callable[[Hashable], None] = _nobody

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, file: Hashable) -> bool:
        """Return whether a file has a lock or a waiter."""
        return file in self._files

    def files(self) -> list[Hashable]:
        return list(self._files)

    def held(self, file: Hashable) -> list[Lock]:
        locks = self._files.get(file)
        return locks.held() if locks is not None else []

    def has_ranges(self, file: Hashable) -> bool:
        """Return whether a file has a POSIX or open file description lock."""
        locks = self._files.get(file)
        return locks is not None and bool(locks.posix)

    def test(self, file: Hashable, wanted: LockRequest) -> Lock | None:
        """Return the first lock of another owner that conflicts with *wanted*, which F_GETLK reports; None without one."""
        locks = self._files.get(file)
        return next(locks.conflicts(wanted), None) if locks is not None else None

    def apply(self, file: Hashable, wanted: LockRequest) -> Lock | None:
        """Grant, change or (UNLOCK) remove a lock. If another lock conflicts, return that lock and change nothing."""
        locks = self._files.get(file)
        if locks is None:
            if wanted.kind == UNLOCK:
                return None
            locks = self._files[file] = _FileLocks()
        refused = next(locks.conflicts(wanted), None)
        if refused is None:
            locks.put(wanted)
        self._tidy(file, locks)
        if refused is None:
            self.on_changed(file)
        return refused

    def lose_flock(self, file: Hashable, wanted: LockRequest) -> list[Lock]:
        """Remove the owner's flock if its request for one of another kind cannot be granted; return what was removed.

        The kernel, too, removes the old flock before it tries to grant the new one.
        """
        locks = self._files.get(file)
        if locks is None or not wanted.flock:
            return []
        mine = locks.flocks.get(wanted.owner)
        return self.drop(file, lambda lock: lock is mine) if mine is not None and mine.kind != wanted.kind else []

    def drop(self, file: Hashable, chosen: Callable[[Lock], bool]) -> list[Lock]:
        """Remove the locks of a file for which *chosen* returns True, and return them."""
        locks = self._files.get(file)
        if locks is None:
            return []
        gone = locks.drop(chosen)
        self._tidy(file, locks)
        if gone:
            self.on_changed(file)
        return gone

    def _tidy(self, file: Hashable, locks: _FileLocks) -> None:
        if not locks.posix and not locks.flocks and not locks.waiters:
            del self._files[file]

    # -- waiting

    def enqueue(self, waiter: Waiter) -> None:
        """Add a waiter at the end of its file's queue."""
        self._files.setdefault(waiter.file, _FileLocks()).waiters.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter from its file's queue, if it is there."""
        locks = self._files.get(waiter.file)
        if locks is not None and waiter in locks.waiters:
            locks.waiters.remove(waiter)
            self._tidy(waiter.file, locks)

    def waiters(self, file: Hashable) -> list[Waiter]:
        """Return the waiters of a file in the order in which they came."""
        locks = self._files.get(file)
        return list(locks.waiters) if locks is not None else []

    def would_deadlock(self, file: Hashable, wanted: LockRequest) -> bool:
        """Return whether waiting for *wanted* would be a deadlock: a conflicting owner waits, directly or not, for its owner.

        False for a flock, which the kernel does not check either. Nor does it check open file description locks: the caller must
        tell these from POSIX locks.
        """
        if wanted.flock:
            return False
        waiting = self._waiting_for()
        seen: set[int] = set()
        ahead = [lock.owner for lock in self._conflicts(file, wanted)]
        while ahead:
            owner = ahead.pop()
            if owner == wanted.owner:
                return True
            if owner not in seen:
                seen.add(owner)
                ahead += waiting.get(owner, ())
        return False

    def _conflicts(self, file: Hashable, wanted: LockRequest) -> Iterator[Lock]:
        locks = self._files.get(file)
        return locks.conflicts(wanted) if locks is not None else iter(())

    def _waiting_for(self) -> dict[int, set[int]]:
        """Return, for each owner that waits for a lock other than a flock, the owners that it waits for."""
        owners: dict[int, set[int]] = {}
        for locks in self._files.values():
            for waiter in locks.waiters:
                if not waiter.wanted.flock:
                    holders = {lock.owner for lock in locks.conflicts(waiter.wanted)}
                    owners.setdefault(waiter.wanted.owner, set()).update(holders)
        return owners


def _nobody(file: Hashable) -> None:
    """Nobody listens."""
