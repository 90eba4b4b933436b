"""SIGKILL of the daemon, and its replacement, under programs that must not notice."""

import fcntl
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import agentfsd
from tests.mounted import AGENTFSD, Mounted, needs_namespaces
from tests.rounds import rounds, seed
from tests.system.survival.killing import LOAD, has_keeper, kill_daemon

KILLS = rounds("kills under a program", 2, 100)
UPDATES = rounds("updates under a program", 2, 200)
VIEWS = {
    "main": [],
    "pid": ["run", "-b", "fix", "--new", "--no-namespace"],
    "zero-message": ["run", "-b", "fix", "--new"],
    "cached": ["run", "-b", "fix", "--new", "--io", "cached"],
    "passthrough": ["run", "-b", "fix", "--new", "--io", "passthrough"],
}


def started(mounted: Mounted, view: list[str], seconds: float) -> subprocess.Popen[str]:
    load = [sys.executable, LOAD, str(mounted.path), str(seconds)]
    through = [*AGENTFSD, view[0], "-m", str(mounted.path), *view[1:], "--"] if view else []
    program = subprocess.Popen([*through, *load], text=True, stdout=subprocess.PIPE, cwd=mounted.path)
    mounted.started.append(program)
    assert program.stdout is not None
    assert program.stdout.readline() == "holds\n"
    return program


@pytest.fixture(params=list(VIEWS))
def view(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    if request.param not in ("main", "pid"):
        needs_namespaces()
    if request.param == "passthrough" and os.geteuid() != 0:
        pytest.skip("passthrough needs root")
    yield VIEWS[request.param]


@pytest.mark.sample(2)
def test_program_goes_on_through_kills(mounted: Mounted, view: list[str]) -> None:
    moments = random.Random(seed())
    program = started(mounted, view, KILLS * 1.5)
    for _ in range(KILLS):
        time.sleep(moments.uniform(0.1, 1.0))
        kill_daemon(mounted)
    said, _ = program.communicate(timeout=KILLS * 30 + 60)
    assert program.returncode == 0
    assert int(said.split()[0]) > 0
    assert mounted.fsck() == []
    assert sorted(os.listdir(mounted.lower)) == ["file", "lower"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("view", ["main", "zero-message", "passthrough"], indirect=True)
def test_program_goes_on_while_the_daemon_is_replaced(mounted: Mounted, view: list[str]) -> None:
    program = started(mounted, view, UPDATES * 1.5)
    for _ in range(UPDATES):
        pid = has_keeper(mounted).pid
        said = mounted.cli("restart").stdout
        assert f"is served by process {mounted.record().pid}, version {agentfsd.__version__}" in said
        assert mounted.record().pid != pid
    assert program.wait(timeout=UPDATES * 30 + 60) == 0
    assert mounted.fsck() == []
    assert f"in the place of {UPDATES} daemons" in mounted.cli("status").stdout


WRITER = """
import sqlite3, sys, time
db = sqlite3.connect("database", timeout=60, isolation_level=None)
for number in range(100):
    db.execute("begin immediate")
    db.execute("insert into t values(?)", (int(sys.argv[1]) * 100 + number,))
    db.execute("commit")
    time.sleep(0.01)
"""


def test_run_and_mount_point_share_a_database(mounted: Mounted) -> None:
    needs_namespaces()
    mounted.cli("branch create", "fix")
    begin = "import sqlite3; sqlite3.connect('database').executescript('pragma journal_mode=wal; create table t(a)')"
    assert mounted.start("fix", sys.executable, "-c", begin, view="namespace").wait(60) == 0
    kinds = ("pid", "namespace")
    writers = [mounted.start("fix", sys.executable, "-c", WRITER, str(n), view=kind) for n, kind in enumerate(kinds)]
    for _ in range(KILLS):
        time.sleep(1)
        kill_daemon(mounted)
    assert [writer.wait(60) for writer in writers] == [0, 0]
    count = "import sqlite3; print(*sqlite3.connect('database').execute('select count(*), count(distinct a) from t').fetchone())"
    reader = mounted.start("fix", sys.executable, "-c", count, view="namespace", stdout=subprocess.PIPE)
    assert "200 200" in reader.communicate(timeout=60)[0]


HOLDER = "import fcntl; file = open('locked', 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print('held', flush=True); input()"
PROBE = """
import fcntl
with open("locked", "w") as file:
    print("begun", flush=True)
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        break
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize(("holds", "asks"), [("namespace", "pid"), ("pid", "namespace")])
def test_lock_is_refused_in_the_other_view_all_the_time(mounted: Mounted, holds: str, asks: str) -> None:
    needs_namespaces()
    mounted.cli("branch create", "fix")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    holder = mounted.start("fix", sys.executable, "-c", HOLDER, view=holds, **pipes)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    probe = mounted.start("fix", sys.executable, "-c", PROBE, view=asks, **pipes)
    assert probe.stdout is not None
    assert probe.stdout.readline() == "begun\n"
    for _ in range(KILLS):
        kill_daemon(mounted)
        time.sleep(0.2)
    assert probe.poll() is None
    holder.communicate("end\n", timeout=60)
    assert (holder.returncode, probe.wait(60)) == (0, 0)


OWNERS = """
import fcntl, os, select, struct, sys
def lock(command, fd):
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
fd = os.open("file", os.O_RDONLY)  # closing it does not tell the daemon of locks
lock({"posix": fcntl.F_SETLK, "description": 37}[sys.argv[1]], fd)
if os.fork() == 0:  # has the description, and outlives the process that has locked
    print("held", flush=True)
    end = select.poll()
    end.register(0, 0)  # until the other end is closed: what comes is for the parent
    end.poll()
    os._exit(0)
input()
os._exit(0)
"""


@pytest.mark.parametrize("kind", ["posix", "description"])
def test_lock_belongs_to_the_process_or_to_the_description_as_before(mounted: Mounted, kind: str) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    program = subprocess.Popen([sys.executable, "-c", OWNERS, kind], text=True, cwd=mounted.path, **pipes)
    mounted.started.append(program)
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "held\n"
    kill_daemon(mounted)
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.wait(60) == 0
    is_held = False
    with open(mounted.path / "file", "a") as file:
        time.sleep(0.5)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_held = True
    assert is_held == (kind == "description")


NAMELESS = """
import os, sys
fd = os.open("file", os.O_RDWR)
before = os.pread(fd, 20, 0)
print("open", flush=True)
input()
if sys.argv[1] == "first":
    os.pwrite(fd, b"written", 0)
else:
    assert os.pread(fd, 20, 0) == b"written" + before[7:], os.pread(fd, 20, 0)
print("done", flush=True)
input()
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("views", [("namespace", "pid"), ("pid", "namespace")])
@pytest.mark.parametrize("is_own", [True, False])
def test_removed_file_that_both_views_have_open_stays_one_file(mounted: Mounted, views: tuple[str, str], is_own: bool) -> None:
    needs_namespaces()
    mounted.cli("branch create", "fix")
    if is_own:
        assert mounted.start("fix", "sh", "-c", "echo own >file").wait(60) == 0
    programs = []
    for name, view in zip(("first", "second"), views, strict=True):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        programs.append(mounted.start("fix", sys.executable, "-c", NAMELESS, name, view=view, **pipes))
        assert programs[-1].stdout is not None
        assert programs[-1].stdout.readline() == "open\n"
    assert mounted.start("fix", "rm", "file").wait(60) == 0
    kill_daemon(mounted)
    for program in programs:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write("go on\n")
        program.stdin.flush()
        assert program.stdout.readline() == "done\n"
    for program in programs:
        program.communicate("end\n", timeout=60)
        assert program.returncode == 0
    assert mounted.fsck() == []
