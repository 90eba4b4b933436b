"""Two processes in one branch that came to it by different ways: locks exclude each other, mappings are one memory."""

import contextlib
import fcntl
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mounted import AGENTFSD, Mounted, agentfsd, needs_fuse, needs_namespaces
from tests.rounds import rounds

LOAD = str(Path(__file__).with_name("shared_load.py"))
WAYS = [("run", "run"), ("run", "pid"), ("run", "subtree"), ("subtree", "run"), ("pid", "subtree")]
ROUNDS = rounds("rounds of two sharers", 50, 2000)
TURNS = rounds("turns of two sharers", 25, 2000)
_WAIT_S = 300


class Shared(NamedTuple):
    """A branch of one mount that all tests here share."""

    mounted: Mounted
    name: str

    @property
    def tree(self) -> Path:
        return self.mounted.subtree(self.name)


@pytest.fixture(scope="module")
def one_mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    needs_namespaces()
    with pytest.MonkeyPatch.context() as environment:
        base = tmp_path_factory.mktemp("shared")
        for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
            environment.setenv(name, str(base / name))
        mounted = Mounted(base)
        (mounted.lower / "counter").write_bytes(b"")
        (mounted.lower / "page").write_bytes(bytes(4096))
        mounted.mount()
        yield mounted
        try:
            assert mounted.fsck() == []
        finally:
            mounted.end()


_numbers = itertools.count(1)


@pytest.fixture
def branch(one_mount: Mounted, monkeypatch: pytest.MonkeyPatch) -> Shared:
    for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(one_mount.path.parent / name))
    shared = Shared(one_mount, f"b{next(_numbers)}")
    one_mount.cli("branch create", shared.name)
    return shared


def begin(branch: Shared, way: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, LOAD, *map(str, arguments)]
    if way == "subtree":
        return subprocess.Popen(command, cwd=branch.tree, stdout=subprocess.PIPE, text=True)
    options = ["--no-namespace"] if way == "pid" else []
    command = [*AGENTFSD, "run", "-m", str(branch.mounted.path), "-b", branch.name, *options, "--", *command]
    return subprocess.Popen(command, cwd=branch.mounted.path, stdout=subprocess.PIPE, text=True)


def finished(*processes: subprocess.Popen[str]) -> list[int]:
    """What each says that it has done."""
    said = [process.communicate(timeout=_WAIT_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return [int(text) for text in said]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("one", "two"), WAYS)
@pytest.mark.parametrize("kind", ["flock", "record"])
def test_counter_behind_a_lock_loses_nothing(branch: Shared, kind: str, one: str, two: str) -> None:
    done = finished(*(begin(branch, way, kind, "counter", ROUNDS) for way in (one, two)))
    assert int((branch.tree / "counter").read_text()) == sum(done) == 2 * ROUNDS


@pytest.mark.sample(4)
@pytest.mark.parametrize(("one", "two"), WAYS)
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite_has_every_acknowledged_transaction(branch: Shared, journal: str, one: str, two: str) -> None:
    path = branch.tree / "data.db"
    done = finished(*(begin(branch, way, journal, "data.db", ROUNDS // 3) for way in (one, two)))
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("SELECT count(*) FROM done").fetchone()[0] == sum(done)


@pytest.mark.parametrize(("one", "two"), WAYS)
def test_shared_mapping_is_one_memory(branch: Shared, one: str, two: str) -> None:
    assert finished(begin(branch, one, "turns", "page", TURNS, 0), begin(branch, two, "turns", "page", TURNS, 1)) == [
        TURNS,
        TURNS,
    ]


# -- locks and names, holders that fail


WAITER = """
import fcntl, sys
file = open("lock", "rb")
print("open", flush=True)
sys.stdin.readline()
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
"""


@contextlib.contextmanager
def in_run(branch: Shared, *command: str) -> Iterator[subprocess.Popen[str]]:
    arguments = ["run", "-m", str(branch.mounted.path), "-b", branch.name, "--", *command]
    with subprocess.Popen(
        [*AGENTFSD, *arguments], cwd=branch.mounted.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def done_in_run(branch: Shared, *command: str) -> tuple[int, str]:
    """Exit code and what it printed."""
    with in_run(branch, *command) as started:
        said, _ = started.communicate(timeout=60)
        return started.returncode, said


def test_lock_of_a_file_that_was_removed_meanwhile_is_given_back(branch: Shared) -> None:
    (branch.tree / "lock").write_bytes(b"")
    with in_run(branch, sys.executable, "-c", WAITER) as waiter, open(branch.tree / "lock", "rb") as file:
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == "open\n"
        fcntl.flock(file, fcntl.LOCK_EX)
        os.unlink(branch.tree / "lock")
        fcntl.flock(file, fcntl.LOCK_UN)
        assert waiter.communicate("go\n", timeout=30)[0] == "locked\n"


def test_lock_that_cannot_be_handed_over_leaves_the_others_held(branch: Shared) -> None:
    """One file has gone by then."""
    for name in ("gone", "kept"):
        (branch.tree / name).write_bytes(b"")
    with open(branch.tree / "gone", "rb") as gone, open(branch.tree / "kept", "rb") as kept:
        fcntl.flock(gone, fcntl.LOCK_EX)
        fcntl.flock(kept, fcntl.LOCK_EX)
        os.rename(branch.tree / "kept", branch.tree / "elsewhere")
        os.unlink(branch.tree / "gone")
        assert [done_in_run(branch, "flock", "-n", "elsewhere", "true")[0] for _ in range(2)] == [1, 1]


def test_script_that_is_locked_can_be_run(branch: Shared) -> None:
    script = branch.tree / "script"
    script.write_text("#!/bin/sh\nexit 7\n")
    script.chmod(0o755)
    with open(script, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert done_in_run(branch, "./script")[0] == 7


def holders(mounted: Mounted) -> list[int]:
    """The process beside the daemon, and those that it has forked."""
    daemon = mounted.record().pid
    server = next(pid for pid in children(daemon) if "mount_holder" in Path(f"/proc/{pid}/cmdline").read_text())
    return [server, *children(server)]


def children(pid: int) -> list[int]:
    """Of each of its threads."""
    return [int(word) for listed in Path(f"/proc/{pid}/task").glob("*/children") for word in listed.read_text().split()]


RENAMER = """
import os, sys
print("begun", flush=True)
for _ in range(1500):
    os.rename("one", "two")
    os.rename("two", "one")
"""


def test_file_that_a_run_renames_meanwhile_can_be_locked(branch: Shared) -> None:
    (branch.tree / "one").write_bytes(b"")
    with open(branch.tree / "one", "rb") as file, in_run(branch, sys.executable, "-c", RENAMER) as renamer:
        assert renamer.stdout is not None
        assert renamer.stdout.readline() == "begun\n"
        for _ in range(60):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(file, fcntl.LOCK_UN)
        assert renamer.wait(60) == 0


def test_holder_keeps_nothing_mounted_but_its_branch(branch: Shared) -> None:
    with in_run(branch, "sh", "-c", "echo begun; read line") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "begun\n"
        kept = [Path(f"/proc/{pid}/mountinfo").read_text().splitlines() for pid in holders(branch.mounted)[1:]]
        assert kept
        assert [len(lines) for lines in kept] == [1] * len(kept)
        assert all("fuse.agentfsd" in lines[0] for lines in kept)


def test_runs_outlive_their_holder_and_the_next_finds_the_branch(branch: Shared) -> None:
    with in_run(branch, "sh", "-c", "echo begun; read line; echo $line >said; cat said") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "begun\n"
        for pid in holders(branch.mounted):
            os.kill(pid, signal.SIGKILL)
        assert done_in_run(branch, "sh", "-c", "echo other >other")[0] == 0
        assert first.communicate("still here\n", timeout=60)[0] == "still here\n"
    assert done_in_run(branch, "cat", "said", "other") == (0, "still here\nother\n")


def test_daemon_ends_in_order_though_its_holder_stands_still(make_mount: Callable[[Path], Mounted], tmp_path: Path) -> None:
    needs_namespaces()
    lower = tmp_path / "lower"
    lower.mkdir()
    mounted = make_mount(lower)
    mounted.run("b", "true", new=True)
    os.kill(holders(mounted)[0], signal.SIGSTOP)
    agentfsd("umount", str(mounted.path))
    assert not Path(mounted.record().socket).exists()
    assert "Traceback" not in Path(mounted.state, "daemon.log").read_text()
