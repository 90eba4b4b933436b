"""The table of locks, compared with the kernel's own on a real file, and what the kernel cannot be asked."""

import errno
import fcntl
import os
import struct
import tempfile
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from agentfsd.core.file_locks import LAST, READ, UNLOCK, WRITE, Lock, LockRequest, LockTable, Waiter
from tests.rounds import rounds

FLOCK = struct.Struct("hhqqi4x")
OWNERS = 4
MANY = rounds("random locks", 0, 500)
FILE = "a file"


class Real:
    """A file that open file descriptions lock; one for each owner."""

    def __init__(self) -> None:
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        number, self.path = tempfile.mkstemp(dir=shared)
        os.close(number)
        self.fds = [self._open() for _ in range(OWNERS)]

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        os.unlink(self.path)

    def reopen(self, owner: int) -> None:
        os.close(self.fds[owner])
        self.fds[owner] = self._open()

    def set(self, wanted: LockRequest) -> bool:
        fd = self.fds[wanted.owner]
        try:
            if wanted.flock:
                fcntl.flock(fd, {READ: fcntl.LOCK_SH, WRITE: fcntl.LOCK_EX, UNLOCK: fcntl.LOCK_UN}[wanted.kind] | fcntl.LOCK_NB)
            else:
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _packed(wanted))
        except BlockingIOError:
            return False
        return True

    def test(self, wanted: LockRequest) -> tuple[int, int, int] | None:
        kind, _, start, length, _ = FLOCK.unpack(fcntl.fcntl(self.fds[wanted.owner], fcntl.F_OFD_GETLK, _packed(wanted)))
        return None if kind == UNLOCK else (kind, start, start + length - 1 if length else LAST)


def _packed(wanted: LockRequest) -> bytes:
    return FLOCK.pack(wanted.kind, os.SEEK_SET, wanted.start, 0 if wanted.end == LAST else wanted.end - wanted.start + 1, 0)


class Close(NamedTuple):
    owner: int


@st.composite
def requests(draw: st.DrawFn) -> LockRequest:
    owner, kind = draw(st.integers(0, OWNERS - 1)), draw(st.sampled_from([READ, WRITE, UNLOCK]))
    if draw(st.integers(0, 3)) == 0:
        return LockRequest(owner, kind, flock=True, handle=owner)
    start = draw(st.integers(0, 12))
    return LockRequest(owner, kind, start, draw(st.one_of(st.just(LAST), st.integers(start, 14))), handle=owner)


@settings(max_examples=MANY or 40, derandomize=not MANY, database=None, deadline=None)
@given(st.lists(st.one_of(requests(), requests(), requests(), st.integers(0, OWNERS - 1).map(Close)), max_size=25))
def test_grants_and_answers_as_the_kernel_does(steps: list[LockRequest | Close]) -> None:
    real, table = Real(), LockTable()
    try:
        for step in steps:
            if isinstance(step, Close):
                real.reopen(step.owner)
                table.drop(FILE, lambda lock, gone=step.owner: lock.handle == gone)  # type: ignore[misc]
            else:
                granted = table.apply(FILE, step) is None
                if not granted:
                    table.lose_flock(FILE, step)
                assert granted == real.set(step), step
            for owner in range(OWNERS):
                for kind, start in ((WRITE, 0), (READ, 0), (WRITE, 6)):
                    asked = LockRequest(owner, kind, start)
                    found = table.test(FILE, asked)
                    assert (found and (found.kind, found.start, found.end)) == real.test(asked), asked
        for owner in range(OWNERS):
            table.drop(FILE, lambda lock, gone=owner: lock.handle == gone)  # type: ignore[misc]
        assert len(table) == 0
    finally:
        real.close()


def test_a_part_is_taken_out_of_the_middle() -> None:
    table = LockTable()
    table.apply(FILE, LockRequest(1, WRITE, 0, 99, pid=7, handle="a"))
    table.apply(FILE, LockRequest(1, READ, 40, 59, pid=7, handle="b"))
    assert table.held(FILE) == [
        Lock(1, WRITE, 0, 39, False, 7, "a"), Lock(1, READ, 40, 59, False, 7, "b"), Lock(1, WRITE, 60, 99, False, 7, "a"),
    ]  # fmt: skip
    table.apply(FILE, LockRequest(1, UNLOCK, 0, LAST))
    assert FILE not in table


def test_one_number_owns_a_flock_and_ranges_apart() -> None:
    """An open file description has the same number for both."""
    table = LockTable()
    assert table.apply(FILE, LockRequest(1, WRITE, flock=True)) is None
    assert table.apply(FILE, LockRequest(2, WRITE)) is None
    table.apply(FILE, LockRequest(1, UNLOCK))
    assert table.apply(FILE, LockRequest(2, READ, flock=True)) is not None


def test_two_files_do_not_meet() -> None:
    table = LockTable()
    assert table.apply("one", LockRequest(1, WRITE)) is None
    assert table.apply("two", LockRequest(2, WRITE)) is None


def test_of_two_opens_of_one_owner_each_end_takes_its_own() -> None:
    table = LockTable()
    table.apply(FILE, LockRequest(1, WRITE, 0, 9, handle="a"))
    table.apply(FILE, LockRequest(1, WRITE, 20, 29, handle="b"))
    table.drop(FILE, lambda lock: lock.handle == "a")
    assert [lock.start for lock in table.held(FILE)] == [20]


def _wait(table: LockTable, file: str, wanted: LockRequest) -> Waiter:
    waiter = Waiter(file, wanted, 0, lambda code: None)
    table.enqueue(waiter)
    return waiter


def test_a_cycle_over_three_owners_and_files_is_a_deadlock() -> None:
    table = LockTable()
    for owner, file in ((1, "a"), (2, "b"), (3, "c")):
        table.apply(file, LockRequest(owner, WRITE))
    _wait(table, "b", LockRequest(1, WRITE))
    assert not table.would_deadlock("c", LockRequest(2, WRITE))
    last = _wait(table, "c", LockRequest(2, WRITE))
    assert table.would_deadlock("a", LockRequest(3, READ))
    table.leave(last)
    assert not table.would_deadlock("a", LockRequest(3, READ))


def test_two_upgrades_of_one_range_are_a_deadlock() -> None:
    table = LockTable()
    for owner in (1, 2):
        table.apply(FILE, LockRequest(owner, READ))
    _wait(table, FILE, LockRequest(1, WRITE))
    assert table.would_deadlock(FILE, LockRequest(2, WRITE))


def test_flock_has_no_deadlocks() -> None:
    table = LockTable()
    for owner, file in ((1, "a"), (2, "b")):
        table.apply(file, LockRequest(owner, WRITE, flock=True))
    _wait(table, "b", LockRequest(1, WRITE, flock=True))
    assert not table.would_deadlock("a", LockRequest(2, WRITE, flock=True))


def test_a_waiter_is_answered_once() -> None:
    codes: list[int] = []
    waiter = Waiter(FILE, LockRequest(1, WRITE), 0, codes.append)
    waiter.finish(errno.EINTR)
    waiter.finish(0)
    assert codes == [errno.EINTR]
