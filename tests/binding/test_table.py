"""Which branch a process has, with real processes, threads and numbers that come back."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.binding import procfs
from agentfsd.binding.fork_watch import ForkWatch
from agentfsd.binding.table import Bindings
from tests.binding.processes import ORPHAN, Child
from tests.mounted import needs_root


@pytest.fixture
def table() -> Iterator[Bindings]:
    made = Bindings()
    yield made
    made.close()


FORKS = "r, w = os.pipe()\nif (pid := os.fork()) == 0:\n    time.sleep(60)\nprint(pid, flush=True)"
THREAD = (
    "def work():\n    print(threading.get_native_id(), flush=True)\n    time.sleep(60)\n"
    "threading.Thread(target=work, daemon=True).start()\ntime.sleep(0.2)"
)


def test_unbound_process_has_no_branch(table: Bindings) -> None:
    assert table.branch_of(os.getpid()) is None
    assert table.process_of(os.getpid()) == os.getpid()


def test_caller_outside_the_namespace_has_no_branch(table: Bindings) -> None:
    assert (table.branch_of(0), table.process_of(0)) == (None, 0)


def test_binding_reaches_threads_and_descendants(table: Bindings, children: list[Child]) -> None:
    children += [Child(THREAD), Child(FORKS)]
    for child in children:
        table.branch_of(child.numbers[0])  # seen unbound before
        table.bind(child.pid, "B")
        assert [table.branch_of(number) for number in (child.pid, child.numbers[0])] == ["B", "B"]
    assert table.process_of(children[0].numbers[0]) == children[0].pid
    assert table.branch_of(os.getpid()) is None


def test_binding_a_thread_binds_its_process(table: Bindings, children: list[Child]) -> None:
    children.append(Child(THREAD))
    table.bind(children[0].numbers[0], "B")
    assert table.branch_of(children[0].pid) == "B"


def test_own_binding_of_a_descendant_wins(table: Bindings, children: list[Child]) -> None:
    children.append(Child(FORKS))
    child, grandchild = children[0].pid, children[0].numbers[0]
    table.bind(grandchild, "own")
    table.bind(child, "B")
    assert (table.branch_of(child), table.branch_of(grandchild)) == ("B", "own")
    assert table.unbind(grandchild)
    assert table.branch_of(grandchild) == "B"
    assert table.unbind(child)
    assert (table.branch_of(child), table.branch_of(grandchild)) == (None, None)
    assert not table.unbind(child)


def test_rebinding_moves_the_heirs_too(table: Bindings, children: list[Child]) -> None:
    children.append(Child(FORKS))
    table.bind(children[0].pid, "A")
    assert table.branch_of(children[0].numbers[0]) == "A"
    table.bind(children[0].pid, "B")
    assert table.branch_of(children[0].numbers[0]) == "B"


def test_seen_process_keeps_its_branch_when_its_parent_ends(table: Bindings, children: list[Child]) -> None:
    children.append(Child(FORKS))
    table.bind(children[0].pid, "B")
    orphan = children[0].numbers[0]
    assert table.branch_of(orphan) == "B"
    os.kill(children[0].pid, signal.SIGKILL)
    children[0].process.wait()
    assert table.branch_of(orphan) == "B"
    assert [(found.pid, found.explicit) for found in table.bindings()] == [(orphan, False)]
    os.kill(orphan, signal.SIGKILL)


def test_orphan_below_a_bound_subreaper_inherits(table: Bindings, children: list[Child]) -> None:
    script = (
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\nr, w = os.pipe()\n"
        "if (pid := os.fork()) == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        os.write(w, str(os.getpid()).encode())\n        time.sleep(60)\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\nprint(os.read(r, 20).decode(), flush=True)"
    )
    children.append(Child(script))
    table.bind(children[0].pid, "B")
    assert table.branch_of(children[0].numbers[0]) == "B"
    os.kill(children[0].numbers[0], signal.SIGKILL)


def needs_fork_watch() -> None:
    watch = ForkWatch()
    able = watch.listen()
    watch.close()
    if not able:
        pytest.skip("the kernel does not tell us of forks: needs root, or Linux 6.6 in the initial namespaces")


def test_a_double_fork_before_the_first_request_keeps_the_branch(table: Bindings, children: list[Child]) -> None:
    needs_fork_watch()
    child = Child("sys.stdin.readline()\n" + ORPHAN, stdin=True)
    children.append(child)
    table.bind(child.pid, "one")
    orphan = child.go_on()
    seen = procfs.read(orphan)
    assert seen is not None
    assert seen.parent != child.pid
    assert table.branch_of(orphan) == "one"
    os.kill(orphan, signal.SIGKILL)


def test_what_is_not_seen_yet_follows_the_binding_it_came_from(table: Bindings, children: list[Child]) -> None:
    needs_fork_watch()
    child = Child("sys.stdin.readline()\n" + ORPHAN, stdin=True)
    children.append(child)
    table.bind(child.pid, "one")
    orphan = child.go_on()
    table.drain()
    table.bind(child.pid, "two")
    assert table.branch_of(orphan) == "two"
    table.unbind(child.pid)
    assert table.branch_of(orphan) is None
    os.kill(orphan, signal.SIGKILL)


def test_an_orphan_that_never_asked_is_listed(table: Bindings, children: list[Child]) -> None:
    needs_fork_watch()
    child = Child("sys.stdin.readline()\n" + ORPHAN, stdin=True)
    children.append(child)
    table.bind(child.pid, "one")
    orphan = child.go_on()
    assert [(found.pid, found.explicit) for found in table.bindings()] == sorted([(child.pid, True), (orphan, False)])
    os.kill(orphan, signal.SIGKILL)


def test_descendants_of_a_process_are_bound_and_itself_is_not(table: Bindings, children: list[Child]) -> None:
    child = Child(FORKS)
    children.append(child)
    table.bind_children(child.pid, "one")
    assert table.branch_of(child.numbers[0]) == "one"
    assert table.branch_of(child.pid) is None
    table.drop_branch("one")
    assert table.branch_of(child.numbers[0]) is None


def test_exec_keeps_the_binding(table: Bindings) -> None:
    process = subprocess.Popen(["sh", "-c", "read x; exec sleep 60"], stdin=subprocess.PIPE)
    table.bind(process.pid, "B")
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()
    while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
        time.sleep(0.01)
    assert table.branch_of(process.pid) == "B"
    process.kill()
    process.wait()


def test_dead_and_zombie_processes_cannot_be_bound(table: Bindings) -> None:
    process = subprocess.Popen(["true"])
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0] != "Z":
        time.sleep(0.01)
    with pytest.raises(ProcessLookupError):
        table.bind(process.pid, "B")
    process.wait()
    with pytest.raises(ProcessLookupError):
        table.bind(process.pid, "B")
    assert table.bindings() == []


def test_dropped_branch_leaves_nobody_bound(table: Bindings, children: list[Child]) -> None:
    children.append(Child(FORKS))
    table.bind(children[0].pid, "B")
    table.branch_of(children[0].numbers[0])
    assert table.drop_branch("B") == 2
    assert table.bindings() == []


def test_descriptors_follow_the_living(table: Bindings) -> None:
    def come_and_go() -> int:
        process = subprocess.Popen(["sleep", "60"])
        table.bind(process.pid, "B")
        process.kill()
        process.wait()
        table.branch_of(0)
        return len(os.listdir("/proc/self/fd"))

    before = come_and_go()  # which meets our own ancestors and begins to watch forks
    assert {come_and_go() for _ in range(100)} == {before}


def test_many_threads_come_and_go(table: Bindings) -> None:
    table.bind(os.getpid(), "B")
    wrong: list[object] = []

    def ask() -> None:
        numbers.append(threading.get_native_id())
        gate.wait(10)

    for _ in range(20):
        numbers: list[int] = []
        gate = threading.Event()
        threads = [threading.Thread(target=ask) for _ in range(20)]
        for thread in threads:
            thread.start()
        while len(numbers) < 20:
            time.sleep(0.001)
        wrong += [found for number in numbers if (found := table.branch_of(number)) != "B"]
        gate.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    table.unbind(os.getpid())


def test_number_that_comes_back_is_another_process(tmp_path: Path) -> None:
    """In a pid namespace of its own, where the next number can be chosen."""
    needs_root()
    script = tmp_path / "reuse.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from agentfsd.binding.table import Bindings\n"
        "def spawn(number):\n"
        "    open('/proc/sys/kernel/ns_last_pid', 'w').write(str(number - 1))\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        time.sleep(60)\n"
        "        os._exit(0)\n"
        "    assert pid == number, pid\n"
        "    return pid\n"
        "table = Bindings()\n"
        "for round in range(50):\n"
        "    pid = spawn(500)\n"
        "    assert table.branch_of(pid) is None, 'a new process has the branch of a dead one'\n"
        "    table.bind(pid, 'B')\n"
        "    assert table.branch_of(pid) == 'B'\n"
        "    os.kill(pid, signal.SIGKILL)\n"
        "    os.waitpid(pid, 0)\n"
        "print('ok')\n"
    )
    command = ["unshare", "-p", "-f", "--mount-proc", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "ok\n", done.stderr


def test_a_thread_pidfd_tells_of_the_thread_alone() -> None:
    gate, numbers = threading.Event(), list[int]()

    def work() -> None:
        numbers.append(threading.get_native_id())
        gate.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    while not numbers:
        time.sleep(0.001)
    fd = procfs.pidfd(numbers[0], thread=True)
    if fd < 0:
        gate.set()
        thread.join()
        pytest.skip(f"no pidfd of a thread here: {os.strerror(ctypes.get_errno())} (Linux 6.9 has it)")
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(0) == []
    gate.set()
    thread.join()
    assert poll.poll(1000)
    os.close(fd)
