"""Locks that are held elsewhere as well. The peer holds them on real files, which a stranger locks by another descriptor."""

import errno
import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from agentfsd.core.file_locks import LAST, READ, UNLOCK, WRITE, LockRequest, Waiter
from agentfsd.core.tree import Inode
from agentfsd.fuse.lock_service import LockConflict, LockPeer, LockService
from tests.overlays import Opened

FLOCK = struct.Struct("hhqqi4x")
_PATIENCE_S = 20
_FLOCK_KINDS = {READ: fcntl.LOCK_SH, WRITE: fcntl.LOCK_EX, UNLOCK: fcntl.LOCK_UN}


def _pack(kind: int, start: int, end: int) -> bytes:
    return FLOCK.pack(kind, os.SEEK_SET, start, 0 if end == LAST else end - start + 1, 0)


class Keeper:
    """A descriptor for each owner of each inode, on a file named after the inode."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.fds: dict[tuple[int, int], int] = {}
        self.asked = 0

    def open(self, inode: Inode) -> int:
        return os.open(self.place / inode.name.decode(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)

    def _fd(self, inode: Inode, owner: int) -> int:
        key = (id(inode), owner)
        if key not in self.fds:
            self.fds[key] = self.open(inode)
        return self.fds[key]

    async def hold(self, inode: Inode, owner: int, start: int, end: int, kind: int, flock: bool) -> LockConflict | None:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        fd = self._fd(inode, owner)
        try:
            if flock:
                fcntl.flock(fd, _FLOCK_KINDS[kind] | fcntl.LOCK_NB)
            else:
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _pack(kind, start, end))
        except BlockingIOError:
            return LockConflict(start, end, WRITE, 0)
        return None

    async def release(self, inode: Inode, owner: int, start: int, end: int, flock: bool) -> None:
        await trio.lowlevel.checkpoint()
        fd = self._fd(inode, owner)
        if flock:
            fcntl.flock(fd, fcntl.LOCK_UN)
        else:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _pack(UNLOCK, start, end))

    async def test(self, inode: Inode, owner: int, start: int, end: int, kind: int) -> LockConflict | None:
        await trio.lowlevel.checkpoint()
        found = fcntl.fcntl(self._fd(inode, owner), fcntl.F_OFD_GETLK, _pack(kind, start, end))
        kind, _, start, length, pid = FLOCK.unpack(found)
        return None if kind == UNLOCK else LockConflict(start, start + length - 1 if length else LAST, kind, max(pid, 0))

    def close(self) -> None:
        for fd in self.fds.values():
            os.close(fd)


class Scene:
    """One inode, a peer that holds its locks, and a stranger who locks the peer's file."""

    def __init__(self, opened: Opened, place: Path) -> None:
        self.inode = opened.write("file", b"content")
        self.keeper: Keeper = Keeper(place)
        self.peer: LockPeer = self.keeper
        self.locks = LockService()
        self.stranger = self.keeper.open(self.inode)
        self.codes: dict[int, int] = {}
        self.answered: dict[int, trio.Event] = {}

    def run(self, work: Callable[[], Awaitable[Any]]) -> None:
        async def main() -> None:
            with trio.fail_after(_PATIENCE_S):
                async with trio.open_nursery() as nursery:
                    self.locks.start = nursery.start_soon
                    await work()
                    nursery.cancel_scope.cancel()

        trio.run(main)

    async def attach(self) -> None:
        assert await self.locks.attach_peer(self.inode.tree.id, self.peer) == []

    async def take(self, wanted: LockRequest) -> int:
        """The errno, 0 when it is held."""
        try:
            work = self.locks.set_now(self.inode, wanted)
            if work is not None:
                await work
        except OSError as exc:
            return exc.errno or -1
        return 0

    def wait(self, wanted: LockRequest) -> Waiter:
        def answer(code: int) -> None:
            self.codes[wanted.owner] = code
            self.answered.setdefault(wanted.owner, trio.Event()).set()

        waiter = Waiter(self.inode, wanted, 0, answer)
        self.locks.wait(waiter)
        return waiter

    async def answer(self, owner: int) -> int:
        await self.answered.setdefault(owner, trio.Event()).wait()
        return self.codes[owner]

    def outside(self, kind: int, start: int = 0, end: int = LAST, *, flock: bool = False) -> bool:
        """Whether the stranger gets a lock on the peer's file (or gives it back)."""
        try:
            if flock:
                fcntl.flock(self.stranger, _FLOCK_KINDS[kind] | fcntl.LOCK_NB)
            else:
                fcntl.fcntl(self.stranger, fcntl.F_OFD_SETLK, _pack(kind, start, end))
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self.stranger)
        self.keeper.close()


@pytest.fixture
def scene(opened: Opened, tmp_path: Path) -> Iterator[Scene]:
    place = tmp_path / "held"
    place.mkdir()
    made = Scene(opened, place)
    yield made
    made.close()


@pytest.mark.parametrize("flock", [False, True])
def test_what_is_granted_is_held_by_the_peer_too(scene: Scene, flock: bool) -> None:
    async def work() -> None:
        await scene.attach()
        assert await scene.take(LockRequest(1, WRITE, flock=flock)) == 0
        assert not scene.outside(READ, flock=flock)
        assert await scene.take(LockRequest(1, UNLOCK, flock=flock)) == 0
        assert scene.outside(WRITE, flock=flock)
        assert await scene.take(LockRequest(1, READ, flock=flock)) == errno.EAGAIN
        assert len(scene.locks.table) == 0

    scene.run(work)


def test_ranges_are_held_as_they_are(scene: Scene) -> None:
    async def work() -> None:
        await scene.attach()
        assert await scene.take(LockRequest(1, WRITE, 0, 99)) == 0
        assert await scene.take(LockRequest(1, READ, 20, 29)) == 0
        assert await scene.take(LockRequest(1, UNLOCK, 50, 59)) == 0
        assert scene.outside(READ, 20, 29)
        assert scene.outside(WRITE, 50, 59)
        assert not scene.outside(READ, 19, 19)
        assert not scene.outside(READ, 60, 60)
        assert await scene.take(LockRequest(1, WRITE, 20, 29)) == errno.EAGAIN
        assert [lock.kind for lock in scene.locks.table.held(scene.inode)] == [WRITE, READ, WRITE, WRITE]

    scene.run(work)


def test_a_lock_held_before_the_peer_came_is_handed_over(scene: Scene) -> None:
    async def work() -> None:
        assert await scene.take(LockRequest(1, WRITE, 10, 19)) == 0
        assert await scene.take(LockRequest(2, READ, flock=True)) == 0
        assert scene.outside(WRITE, 30, 39)
        await scene.attach()
        assert not scene.outside(READ, 10, 10)
        assert not scene.outside(WRITE, flock=True)

    scene.run(work)


def test_a_lock_that_the_peer_cannot_hold_is_told(scene: Scene) -> None:
    async def work() -> None:
        assert await scene.take(LockRequest(1, WRITE)) == 0
        assert scene.outside(READ, 5, 5)
        refused = await scene.locks.attach_peer(scene.inode.tree.id, scene.peer)
        assert [(found.lock.owner, found.lock.kind) for found in refused] == [(1, WRITE)]

    scene.run(work)


def test_a_waiter_gets_what_a_stranger_gives_back(scene: Scene) -> None:
    async def work() -> None:
        await scene.attach()
        assert scene.outside(WRITE)
        scene.wait(LockRequest(1, WRITE))
        await trio.sleep(0.05)
        assert scene.codes == {}
        assert scene.keeper.asked > 1
        scene.outside(UNLOCK)
        assert await scene.answer(1) == 0
        assert not scene.outside(READ)

    scene.run(work)


def test_waiters_of_both_sides_come_to_their_turn(scene: Scene) -> None:
    async def work() -> None:
        await scene.attach()
        assert await scene.take(LockRequest(1, WRITE)) == 0
        scene.wait(LockRequest(2, WRITE))
        scene.wait(LockRequest(3, READ))
        assert await scene.take(LockRequest(1, UNLOCK)) == 0
        assert await scene.answer(2) == 0
        assert 3 not in scene.codes
        dropping = scene.locks.drop_ranges(scene.inode, 2)
        assert dropping is not None
        await dropping
        assert await scene.answer(3) == 0
        assert scene.outside(READ)
        assert not scene.outside(WRITE)

    scene.run(work)


def test_whoever_waited_before_the_peer_came_asks_it_then(scene: Scene) -> None:
    async def work() -> None:
        assert await scene.take(LockRequest(1, READ, 0, 9)) == 0
        assert scene.outside(READ, 0, 9)
        scene.wait(LockRequest(2, WRITE, 0, 9))
        await scene.attach()
        assert await scene.take(LockRequest(1, UNLOCK)) == 0
        await trio.sleep(0.03)
        assert scene.codes == {}
        scene.outside(UNLOCK)
        assert await scene.answer(2) == 0

    scene.run(work)


def test_an_interrupted_waiter_holds_nothing(scene: Scene) -> None:
    async def work() -> None:
        await scene.attach()
        assert scene.outside(WRITE)
        waiter = scene.wait(LockRequest(1, WRITE))
        await trio.sleep(0.02)
        scene.locks.interrupt(waiter)
        assert await scene.answer(1) == errno.EINTR
        scene.outside(UNLOCK)
        await trio.sleep(0.1)
        assert scene.outside(WRITE)
        assert len(scene.locks.table) == 0

    scene.run(work)


def test_a_flock_that_cannot_be_changed_is_lost_on_both_sides(scene: Scene) -> None:
    """As the kernel does it: flock(2)."""

    async def work() -> None:
        await scene.attach()
        assert await scene.take(LockRequest(1, READ, flock=True)) == 0
        assert scene.outside(READ, flock=True)
        assert await scene.take(LockRequest(1, WRITE, flock=True)) == errno.EAGAIN
        assert scene.locks.table.held(scene.inode) == []
        assert scene.outside(WRITE, flock=True)

    scene.run(work)


def test_the_end_of_an_open_frees_the_peer(scene: Scene) -> None:
    async def work() -> None:
        await scene.attach()
        handle = object()
        assert await scene.take(LockRequest(1, WRITE, 0, 9, handle=handle)) == 0
        assert await scene.take(LockRequest(1, WRITE, flock=True, handle=handle)) == 0
        dropping = scene.locks.drop_handle(scene.inode, handle)
        assert dropping is not None
        await dropping
        assert scene.outside(WRITE)
        assert scene.outside(WRITE, flock=True)

    scene.run(work)


def test_the_peer_tells_what_stands_against_a_lock(scene: Scene) -> None:
    async def work() -> None:
        await scene.attach()
        assert scene.outside(READ, 3, 7)
        found = await scene.locks.test_peer(scene.inode, LockRequest(1, WRITE))
        assert found == LockConflict(3, 7, READ, 0)
        assert await scene.locks.test_peer(scene.inode, LockRequest(1, READ)) is None

    scene.run(work)


def test_a_deleted_branch_sends_its_waiters_away(scene: Scene) -> None:
    async def work() -> None:
        assert await scene.take(LockRequest(1, WRITE)) == 0
        scene.wait(LockRequest(2, WRITE))
        scene.locks.tree_gone(scene.inode.tree)
        assert await scene.answer(2) == errno.ESTALE
        assert len(scene.locks.table) == 0

    scene.run(work)


def test_the_end_of_a_process_leaves_alone_who_has_its_number_as_owner_by_then(scene: Scene) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    async def work() -> None:
        assert await scene.take(LockRequest(1, WRITE, 0, 9, pid=process.pid)) == 0
        scene.locks.ends_with(scene.inode, process.pid, process.pid, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert await scene.take(LockRequest(1, WRITE, 20, 29, pid=os.getpid())) == 0
        process.kill()
        while len(scene.locks.table.held(scene.inode)) > 1:  # noqa: ASYNC110 - nobody tells us
            await trio.sleep(0.001)
        assert [lock.start for lock in scene.locks.table.held(scene.inode)] == [20]

    with process:
        scene.run(work)
