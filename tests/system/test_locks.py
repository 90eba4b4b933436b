"""Locks by bound processes, and through the branch's directory: they exclude in one branch, and never across branches."""

import errno
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mounted import Mounted, agentfsd, needs_namespaces
from tests.rounds import rounds

_PATIENCE_S = 30
HOLD = "import fcntl,sys\nf=open('file','r+b')\nfcntl.{how}(f,2)\nprint('held',flush=True)\nsys.stdin.read(1)\n"
TRY = (
    "import fcntl,sys\nf=open('file','r+b')\n"
    "try: fcntl.{how}(f,2|4)\nexcept BlockingIOError: print('refused')\nelse: print('got it')"
)
WAIT = "import fcntl,sys\nf=open('file','r+b')\nprint('waits',flush=True)\nfcntl.{how}(f,2)\nprint('got it',flush=True)\n"
COUNT = (
    "import fcntl,os\nf=os.open('file',os.O_RDWR)\nfor _ in range({times}):\n fcntl.{how}(f,2)\n"
    " n=int(os.pread(f,20,0))\n os.pwrite(f,b'%d'%(n+1),0)\n fcntl.{how}(f,8)\n"
)
INSERT = (
    "import sqlite3,sys\ndb=sqlite3.connect('db',timeout=60,isolation_level=None)\n"
    "for n in range(int(sys.argv[1])):\n db.execute('BEGIN IMMEDIATE')\n"
    " db.execute('UPDATE c SET n=n+1')\n db.execute('INSERT INTO t VALUES (?)',(sys.argv[2]*100,))\n db.execute('COMMIT')\n"
)
HOWS = pytest.mark.parametrize("how", ["flock", "lockf"])


def start(mounted: Mounted, branch: str, program: str, *arguments: str) -> "subprocess.Popen[str]":
    return mounted.start(branch, sys.executable, "-c", program, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def pid_of(mounted: Mounted, process: "subprocess.Popen[str]") -> int:
    """Of the command itself: `agentfsd run` stands before it."""
    own = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(own[0])


@pytest.fixture
def branches(mounted: Mounted) -> Mounted:
    for branch in ("one", "two"):
        mounted.cli("branch create", branch)
        (mounted.subtree(branch) / "file").write_bytes(b"0")
    return mounted


@HOWS
def test_locks_exclude_in_a_branch_and_not_across(branches: Mounted, how: str) -> None:
    holder = start(branches, "one", HOLD.format(how=how))
    assert line(holder) == "held"
    assert line(start(branches, "one", TRY.format(how=how))) == "refused"
    assert line(start(branches, "two", TRY.format(how=how))) == "got it"
    lock = fcntl.flock if how == "flock" else fcntl.lockf
    with (branches.subtree("one") / "file").open("r+b") as file, pytest.raises(BlockingIOError):
        lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    holder.communicate("\n", timeout=_PATIENCE_S)
    with (branches.subtree("one") / "file").open("r+b") as file:
        lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert line(start(branches, "one", TRY.format(how=how))) == "refused"


@HOWS
def test_a_killed_holder_frees_whoever_waits(branches: Mounted, how: str) -> None:
    holder, waiter = start(branches, "one", HOLD.format(how=how)), start(branches, "one", WAIT.format(how=how))
    assert {line(waiter), line(holder)} >= {"waits"}
    os.kill(pid_of(branches, holder), signal.SIGKILL)
    assert line(waiter) == "got it"


def test_a_run_of_its_own_that_asks_at_opens_is_excluded_too(branches: Mounted) -> None:
    """Any connection that hands its locks over has the same table."""
    needs_namespaces()
    holder = start(branches, "one", HOLD.format(how="flock"))
    assert line(holder) == "held"
    program = [sys.executable, "-c", TRY.format(how="flock")]
    done = agentfsd("run", "-m", str(branches.path), "-b", "one", "--io", "cached", "--", *program, cwd=branches.path)
    assert done.stdout.strip() == "refused", done.stderr


@HOWS
def test_a_counter_under_a_lock_by_four_bound_processes(branches: Mounted, how: str) -> None:
    times = rounds("counts behind a lock", 50, 500)
    running = [start(branches, "one", COUNT.format(how=how, times=times)) for _ in range(4)]
    assert [process.wait(timeout=600) for process in running] == [0] * 4
    assert (branches.subtree("one") / "file").read_bytes() == b"%d" % (4 * times)
    assert (branches.subtree("two") / "file").read_bytes() == b"0"


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_sqlite_by_two_bound_processes_and_the_directory(branches: Mounted, mode: str) -> None:
    path = branches.subtree("one") / "db"
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    assert db.execute(f"PRAGMA journal_mode={mode}").fetchone() == (mode,)
    db.execute("CREATE TABLE c (n)")
    db.execute("CREATE TABLE t (x)")
    db.execute("INSERT INTO c VALUES (0)")
    running = [start(branches, "one", INSERT, "20", word) for word in ("a", "b")]
    for _ in range(20):
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE c SET n=n+1")
        db.execute("COMMIT")
    assert [process.wait(timeout=300) for process in running] == [0, 0]
    assert db.execute("SELECT n FROM c").fetchone() == (60,)
    assert db.execute("SELECT count(*) FROM t").fetchone() == (40,)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_a_lock_outlives_a_snapshot_and_a_merge(branches: Mounted) -> None:
    holder = start(branches, "one", HOLD.format(how="lockf"))
    assert line(holder) == "held"
    branches.cli("snapshot create", "-b", "one", "while-locked")
    assert line(start(branches, "one", TRY.format(how="lockf"))) == "refused"
    (branches.subtree("two") / "another").touch()
    (branches.subtree("two") / "file").unlink()
    branches.cli("merge", "two", "one", check=False)
    assert line(start(branches, "one", TRY.format(how="lockf"))) == "refused"
    holder.communicate("\n", timeout=_PATIENCE_S)
    assert line(start(branches, "one", TRY.format(how="lockf"))) == "got it"


def test_after_a_restore_the_file_is_another(branches: Mounted) -> None:
    """Whoever holds the old one holds what nobody finds any more."""
    branches.cli("snapshot create", "-b", "one", "before")
    (branches.subtree("one") / "file").write_bytes(b"1")
    holder = start(branches, "one", HOLD.format(how="lockf"))
    assert line(holder) == "held"
    branches.cli("restore", "-b", "one", "before")
    assert line(start(branches, "one", TRY.format(how="lockf"))) == "got it"
    holder.communicate("\n", timeout=_PATIENCE_S)


def test_a_deleted_branch_sends_its_waiters_away(branches: Mounted) -> None:
    path = branches.subtree("one") / "file"
    holder = path.open("r+b")
    fcntl.lockf(holder, fcntl.LOCK_EX)
    program = (
        "import fcntl,sys\nf=open(sys.argv[1],'r+b')\nprint('waits',flush=True)\n"
        "try: fcntl.lockf(f,2)\nexcept OSError as e: print(e.errno)"
    )
    waiter = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    branches.started.append(waiter)
    assert line(waiter) == "waits"
    time.sleep(0.1)
    branches.cli("discard", "one")
    assert line(waiter) == str(errno.ESTALE)
    holder.close()


def test_the_end_of_the_daemon_sends_waiters_away(branches: Mounted) -> None:
    holder = (branches.subtree("one") / "file").open("r+b")
    fcntl.flock(holder, fcntl.LOCK_EX)
    waiter = start(branches, "one", WAIT.format(how="flock"))
    assert line(waiter) == "waits"
    time.sleep(0.1)
    record = branches.record()
    os.kill(record.pid, signal.SIGTERM)
    assert waiter.wait(timeout=_PATIENCE_S) != 0
    with suppress(OSError):  # nobody is there any more
        holder.close()


def test_a_file_of_the_daemon_can_be_locked(mounted: Mounted) -> None:
    with (mounted.path / ".agentfs" / "status").open("rb") as one, (mounted.path / ".agentfs" / "status").open("rb") as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
