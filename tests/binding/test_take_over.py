"""Bindings after the daemon has died: the next table over the same records, with real processes."""

import errno
import os
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.binding import binding_records, fork_watch
from agentfsd.binding.binding_records import BindingRecords, Record
from agentfsd.binding.table import IN_DOUBT, Bindings, BoundProcess
from tests.binding.processes import ORPHAN, Child
from tests.binding.test_table import FORKS, needs_fork_watch

WAITS_THEN_ORPHANS = "sys.stdin.readline()\n" + ORPHAN
FILTERED = "from agentfsd.cli.sandbox import confinement\nconfinement.confine(strictly=False)\n"


class Generations:
    """One daemon's table after the other over the same records."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.table = Bindings(BindingRecords(str(path)))

    def die(self) -> None:
        """End the table as SIGKILL does: nothing more is written, the processes are not told."""
        self.table.close()

    def begin(self) -> Bindings:
        self.table = Bindings(BindingRecords(str(self._path)))
        self.table.take_over()
        return self.table

    def next(self) -> Bindings:
        self.die()
        return self.begin()


@pytest.fixture
def generations(tmp_path: Path) -> Iterator[Generations]:
    made = Generations(tmp_path / "bindings")
    yield made
    made.table.close()


def test_what_was_bound_stays_bound(generations: Generations, children: list[Child]) -> None:
    children += [Child(FORKS), Child(FORKS), Child(FORKS)]
    itself, its_child, runner = children
    generations.table.bind(itself.pid, "one")
    generations.table.bind(its_child.pid, "two")
    generations.table.bind(its_child.numbers[0], "three")
    generations.table.bind_children(runner.pid, "four")
    for _ in range(2):
        table = generations.next()
        assert [table.branch_of(pid) for pid in (itself.pid, itself.numbers[0])] == ["one", "one"]
        assert [table.branch_of(pid) for pid in (its_child.pid, its_child.numbers[0])] == ["two", "three"]
        assert [table.branch_of(pid) for pid in (runner.pid, runner.numbers[0])] == [None, "four"]
        assert table.branch_of(os.getpid()) is None
    assert generations.table.unbind(itself.pid)
    table = generations.next()
    assert [table.branch_of(pid) for pid in (itself.pid, itself.numbers[0])] == [None, None]
    assert {binding.pid for binding in table.bindings() if binding.explicit} == {its_child.pid, its_child.numbers[0]}


def test_orphans_that_a_daemon_knew_keep_their_branch(generations: Generations, children: list[Child]) -> None:
    needs_fork_watch()
    children.append(Child(WAITS_THEN_ORPHANS, stdin=True))
    generations.table.bind(children[0].pid, "one")
    orphan = children[0].go_on()
    generations.table.drain()
    assert generations.next().branch_of(orphan) == "one"
    os.kill(children[0].pid, signal.SIGKILL)
    children[0].process.wait()
    assert generations.next().branch_of(orphan) == "one"


def test_a_child_that_was_started_in_the_gap_inherits(generations: Generations, children: list[Child]) -> None:
    children.append(Child("sys.stdin.readline()\n" + FORKS, stdin=True))
    generations.table.bind(children[0].pid, "one")
    generations.die()
    child = children[0].go_on()
    assert generations.begin().branch_of(child) == "one"


def test_an_orphan_of_the_gap_is_in_doubt_until_somebody_settles_it(generations: Generations, children: list[Child]) -> None:
    children += [Child(WAITS_THEN_ORPHANS, stdin=True), Child(WAITS_THEN_ORPHANS, stdin=True)]
    for child in children:
        generations.table.bind(child.pid, "one")
    generations.die()
    orphans = [child.go_on() for child in children]
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
        child.process.wait()
    table = generations.begin()
    assert [table.branch_of(pid) for pid in orphans] == [IN_DOUBT, IN_DOUBT]
    assert {(binding.pid, binding.branch_id) for binding in table.bindings()} >= {(pid, IN_DOUBT) for pid in orphans}
    table = generations.next()
    assert [table.branch_of(pid) for pid in orphans] == [IN_DOUBT, IN_DOUBT]
    table.bind(orphans[0], "one")
    assert table.unbind(orphans[1])
    for _ in range(2):
        assert [table.branch_of(pid) for pid in orphans] == ["one", None]
        table = generations.next()


def test_a_mark_that_descendants_inherit_tells_others_apart(generations: Generations, children: list[Child]) -> None:
    """The runner's seccomp filter. Our own new child has none, so it cannot have escaped, though we are an ancestor."""
    child = Child(FILTERED + WAITS_THEN_ORPHANS, stdin=True)
    children.append(child)
    while "Seccomp:\t2" not in Path(f"/proc/{child.pid}/status").read_text():
        assert child.process.poll() is None
    generations.table.bind(child.pid, "one")
    generations.die()
    orphan = child.go_on()
    os.kill(child.pid, signal.SIGKILL)
    child.process.wait()
    with subprocess.Popen(["sleep", "60"]) as other:
        table = generations.begin()
        assert (table.branch_of(orphan), table.branch_of(other.pid)) == (IN_DOUBT, None)
        other.kill()


def test_events_that_the_kernel_dropped_leave_nobody_free(
    generations: Generations, children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_fork_watch()
    monkeypatch.setattr(fork_watch, "_BUFFER_BYTES", 4096)
    many = "\nfor _ in range(200):\n    if os.fork() == 0: os._exit(0)\n    os.wait()\n"
    children += [Child(WAITS_THEN_ORPHANS.replace("()\n", "()\n" + many, 1), stdin=True), Child()]
    generations.table.bind(children[0].pid, "one")
    orphan = children[0].go_on()
    os.kill(children[0].pid, signal.SIGKILL)
    children[0].process.wait()
    assert generations.table.branch_of(orphan) == IN_DOUBT
    assert generations.table.branch_of(children[1].pid) is None


OUTLIVES_ITS_FIRST_THREAD = """
sys.stdin.readline()
if os.fork() == 0:
    os.setsid()
    if (pid := os.fork()) == 0:
        os.close(1)
        threading.Thread(target=time.sleep, args=(60,)).start()
        time.sleep(0.1)
        ctypes.CDLL(None).pthread_exit(None)
    print(pid, flush=True)
    os._exit(0)
os.wait()
"""


def test_an_orphan_that_outlives_its_first_thread_keeps_its_branch(generations: Generations, children: list[Child]) -> None:
    needs_fork_watch()
    children.append(Child(OUTLIVES_ITS_FIRST_THREAD, stdin=True))
    table = generations.table
    table.bind(children[0].pid, "one")
    orphan = children[0].go_on()
    while "\nState:\tZ" not in Path(f"/proc/{orphan}/status").read_text():
        table.drain()
    table.drain()
    assert table.branch_of(orphan) == "one"
    assert orphan in [binding.pid for binding in table.bindings()]
    assert generations.next().branch_of(orphan) == "one"


def test_a_process_with_threads_that_was_met_ends_once(generations: Generations, children: list[Child]) -> None:
    needs_fork_watch()
    ends = OUTLIVES_ITS_FIRST_THREAD.replace("ctypes.CDLL(None).pthread_exit(None)", "time.sleep(60)")
    children.append(Child(ends, stdin=True))
    table = generations.table
    table.bind(children[0].pid, "one")
    orphan = children[0].go_on()
    table.drain()
    while len(os.listdir(f"/proc/{orphan}/task")) < 2:
        table.drain()
    table.drain()
    assert table.branch_of(orphan) == "one"
    os.kill(orphan, signal.SIGKILL)
    while Path(f"/proc/{orphan}/task").exists():
        table.drain()
    assert [table.branch_of(pid) for pid in (children[0].pid, os.getpid())] == ["one", None]


@pytest.mark.parametrize("dies", [True, False])
def test_what_was_started_before_the_binding_keeps_it_as_an_orphan(
    generations: Generations, children: list[Child], *, dies: bool
) -> None:
    children.append(Child(FORKS))
    generations.table.bind(children[0].pid, "one")
    if dies:
        generations.die()
    os.kill(children[0].pid, signal.SIGKILL)
    children[0].process.wait()
    table = generations.begin() if dies else generations.table
    assert table.branch_of(children[0].numbers[0]) == "one"


def test_orphans_of_a_process_that_is_unbound_have_what_it_has_then(generations: Generations, children: list[Child]) -> None:
    needs_fork_watch()
    inner_part = textwrap.indent(WAITS_THEN_ORPHANS + "print('ready', flush=True)\ntime.sleep(60)\n", "    ")
    nested = f"if os.fork() == 0:\n{inner_part}time.sleep(60)\n"
    children.append(Child(nested, stdin=True))
    table = generations.table
    table.bind(children[0].pid, "one")
    inner = next(binding.pid for binding in _until(table, 2) if not binding.explicit)
    table.bind(inner, "two")
    orphan = children[0].go_on()
    table.drain()
    assert table.branch_of(orphan) == "two"
    assert table.unbind(inner)
    assert [table.branch_of(pid) for pid in (inner, orphan)] == ["one", "one"]


def _until(table: Bindings, count: int) -> list[BoundProcess]:
    while len(bound := table.bindings()) < count:
        table.drain()
    return bound


def test_a_record_of_a_process_that_ended_is_not_given_to_the_next_one_with_its_number(tmp_path: Path) -> None:
    records = BindingRecords(str(tmp_path / "bindings"))
    table = Bindings(records)
    table._unseen.add(Record(os.getppid(), 1, 0, "one"))
    assert table.branch_of(os.getppid()) is None
    assert records.kept() == []
    table.close()


def test_without_room_a_binding_is_refused_and_changes_nothing(
    generations: Generations, children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    children += [Child(), Child()]
    generations.table.bind(children[0].pid, "one")
    with monkeypatch.context() as patch:
        patch.setattr(binding_records.os, "pwrite", full)
        with pytest.raises(OSError, match="no room"):
            generations.table.bind(children[1].pid, "two")
    table = generations.next()
    assert [table.branch_of(child.pid) for child in children] == ["one", None]


def test_a_later_process_with_the_number_is_not_taken_for_it(tmp_path: Path) -> None:
    records = BindingRecords(str(tmp_path / "bindings"))
    records.put(Record(os.getpid(), 1, 0, "one", explicit=True, heir_of=(os.getpid(), 1)))
    records.put(Record(os.getppid(), 0, 1, "one"))
    records.close()
    table = Bindings(BindingRecords(str(tmp_path / "bindings")))
    assert table.take_over() == 0
    assert table.branch_of(os.getppid()) is None
    table.close()


@pytest.mark.parametrize("count", [10, 5000])
def test_records_survive_and_a_torn_one_is_dropped(tmp_path: Path, count: int) -> None:
    records = BindingRecords(str(tmp_path / "bindings"))
    kept = [Record(pid, pid * 3, 0, "one", heir_of=(1, 2), since_ns=5) for pid in range(1, count)]
    for record in kept:
        records.put(record)
    records.put(Record(count, 7, 0, "two"))
    records.drop(count)
    records.set_current(99)
    records.close()
    again = BindingRecords(str(tmp_path / "bindings"))
    assert sorted(again.found, key=lambda record: record.pid) == kept
    assert again.gap_began_ns == 99
    again.close()
    with open(tmp_path / "bindings", "r+b") as file:
        content = file.read()
        at = content.index((3).to_bytes(4, "little") + bytes(4) + (9).to_bytes(8, "little"))
        file.seek(at + 60)
        file.write(b"x")
    again = BindingRecords(str(tmp_path / "bindings"))
    assert sorted(again.found, key=lambda record: record.pid) == [record for record in kept if record.pid != 3]
    again.close()


def test_records_of_another_boot_count_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = BindingRecords(str(tmp_path / "bindings"))
    records.put(Record(1, 2, 0, "one"))
    records.close()
    monkeypatch.setattr(binding_records, "_where", lambda: b"another boot")
    again = BindingRecords(str(tmp_path / "bindings"))
    assert again.found == []
    again.close()
