"""SIGKILL of the daemon, and its replacement, under programs that must not notice."""

import fcntl
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import agentfsd
from agentfs_client import registry
from agentfs_client.control import ControlClient
from agentfsd.metadata.schema import SCHEMA_VERSION
from tests.mounted import AGENTFSD, Mounted, needs_namespaces
from tests.mounted import agentfsd as command
from tests.rounds import rounds, seed

LOAD = str(Path(__file__).parent / "survival_load.py")
KILLS = rounds("kills under a program", 2, 100)
UPDATES = rounds("updates under a program", 2, 200)
VIEWS = {
    "main": [],
    "pid": ["run", "-b", "fix", "--new", "--no-namespace"],
    "zero-message": ["run", "-b", "fix", "--new"],
    "cached": ["run", "-b", "fix", "--new", "--io", "cached"],
    "passthrough": ["run", "-b", "fix", "--new", "--io", "passthrough"],
}


@pytest.fixture
def mounted(tmp_path: Path, make_mount: Callable[..., Mounted], monkeypatch: pytest.MonkeyPatch) -> Mounted:
    monkeypatch.setenv("AGENTFS_RESTARTS_PER_MINUTE", "1000")
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "lower").write_text("of the lower\n")
    (lower / "file").write_text("lower\n")
    return make_mount(lower)


def until(holds: Callable[[], bool], patience_s: float = 30) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_keeper(mounted: Mounted) -> registry.DaemonRecord:
    """The record, once there is somebody who starts the next daemon."""
    until(lambda: mounted.record().serves() and mounted.record().keeper > 0)
    return mounted.record()


def kill_daemon(mounted: Mounted) -> None:
    """Kills the daemon alone, and waits until the next one serves."""
    before = has_keeper(mounted)
    os.kill(before.pid, signal.SIGKILL)
    until(lambda: mounted.record().pid != before.pid and mounted.record().serves())


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


def test_client_goes_on_with_the_next_daemon(mounted: Mounted) -> None:
    with ControlClient.connect(has_keeper(mounted).socket) as daemon:
        daemon.create_branch("before")
        kill_daemon(mounted)
        assert {branch.name for branch in daemon.list_branches()} == {"main", "before"}


def test_daemon_that_stands_still_is_replaced(mounted: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    command("umount", str(mounted.path))
    monkeypatch.setenv("AGENTFS_HANGS_AFTER_S", "2")
    mounted.mount()
    before = has_keeper(mounted)
    (mounted.path / "new").write_text("kept")
    time.sleep(4)
    assert mounted.record() == before  # it reports often enough
    os.kill(before.pid, signal.SIGSTOP)
    assert (mounted.path / "new").read_text() == "kept"
    until(lambda: mounted.record().pid != before.pid)
    assert "the daemon hangs" in (mounted.state / "daemon.log").read_text()


def test_daemon_that_dies_again_and_again_is_left_alone(mounted: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    command("umount", str(mounted.path))
    monkeypatch.setenv("AGENTFS_RESTARTS_PER_MINUTE", "2")
    mounted.mount()
    for _ in range(2):
        kill_daemon(mounted)
    last = has_keeper(mounted)
    os.kill(last.pid, signal.SIGKILL)
    until(lambda: not registry.process_start_ticks(last.keeper))
    with pytest.raises(OSError, match="not connected"):
        (mounted.path / "file").read_text()
    said = mounted.cli("status", check=False).stderr
    assert "has died: the daemon has died 3 times in a minute and is not started again" in said
    assert "is not started again" in (mounted.state / "daemon.log").read_text()
    mounted.mount()
    assert (mounted.path / "file").read_text() == "lower\n"


def test_nobody_hangs_when_the_daemon_is_given_up_while_a_directory_is_locked(
    mounted: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the dead daemon waits for a directory, whose lock a request has that waits for the daemon."""
    needs_namespaces()
    command("umount", str(mounted.path))
    monkeypatch.setenv("AGENTFS_RESTARTS_PER_MINUTE", "0")
    mounted.mount()
    mounted.cli("branch create", "fix")
    directory = mounted.subtree("fix") / "directory"
    directory.mkdir()
    (directory / "known").touch()
    mounted.cli("rules add", "-b", "fix", "ask directory/new")
    script = "cat directory/known; echo looked; : >directory/new"
    program = mounted.start("fix", "sh", "-c", script, view="namespace", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout is not None
    assert program.stdout.readline() == "looked\n"
    until(lambda: mounted.json("asks") != [])
    (directory / "known").unlink()
    assert "an answer went before another connection was told" in (mounted.state / "daemon.log").read_text()
    os.kill(has_keeper(mounted).pid, signal.SIGKILL)
    said = program.communicate(timeout=30)[1]
    assert program.returncode != 0
    assert "not connected" in said
    with pytest.raises(OSError, match="not connected"):
        os.listdir(mounted.path)


def test_keeper_that_is_killed_is_replaced(mounted: Mounted) -> None:
    before = has_keeper(mounted)
    os.kill(before.keeper, signal.SIGKILL)
    until(lambda: mounted.record().keeper not in (0, before.keeper))
    with open(mounted.path / "file") as held:
        kill_daemon(mounted)
        assert held.read() == "lower\n"


def test_keeper_that_cannot_start_a_daemon_tries_again(mounted: Mounted) -> None:
    before = has_keeper(mounted)
    until(lambda: os.listdir(f"/proc/{before.keeper}/fd") == (time.sleep(0.3), os.listdir(f"/proc/{before.keeper}/fd"))[1])
    used = {int(name) for name in os.listdir(f"/proc/{before.keeper}/fd")}
    second = [number for number in range(1000) if number not in used][1]
    limits = resource.prlimit(before.keeper, resource.RLIMIT_NOFILE)
    resource.prlimit(before.keeper, resource.RLIMIT_NOFILE, (second, limits[1]))  # one descriptor, which is enough for the log
    os.kill(before.pid, signal.SIGKILL)
    until(lambda: "cannot be started, which is tried again" in (mounted.state / "daemon.log").read_text())
    until(lambda: not mounted.record().serves())
    resource.prlimit(before.keeper, resource.RLIMIT_NOFILE, limits)
    until(lambda: mounted.record().pid != before.pid and mounted.record().serves())
    assert (mounted.path / "file").read_text() == "lower\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--no-restart"], "--no-restart"),
        (["--backstore", "memory"], "contents in memory go with the daemon"),
        (["--session", "pyfuse3"], "pyfuse3 cannot go on with a connection"),
    ],
)
def test_nothing_goes_on_where_it_cannot_or_shall_not(make_mount: Callable[..., Mounted], options: list[str], why: str) -> None:
    if "pyfuse3" in options:
        pytest.importorskip("pyfuse3")
    mounted = make_mount(None, *options)
    assert f"it is not started again: {why}" in mounted.cli("status").stdout
    assert f"cannot be replaced while it serves: {why}" in mounted.cli("restart", check=False).stderr
    mounted.kill()
    with pytest.raises(OSError, match="not connected"):
        os.listdir(mounted.path)


def test_next_daemon_that_cannot_start_leaves_the_present_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "installed"
    shutil.copytree(Path(agentfsd.__file__).parent, installed / "agentfsd")
    monkeypatch.setenv("PYTHONPATH", str(installed))
    base = tmp_path / "base"
    base.mkdir()
    mounted = Mounted(base)
    try:
        start = [
            sys.executable,
            "-m",
            "agentfsd.cli.main",
            "mount",
            str(mounted.lower),
            str(mounted.path),
            "--state",
            str(mounted.state),
        ]
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL)
        before = has_keeper(mounted)
        module = installed / "agentfsd" / "daemon" / "assembly.py"
        good = module.read_text()
        module.write_text("raise RuntimeError('this version is broken')\n")
        refused = mounted.cli("restart", check=False)
        assert refused.returncode == 1
        assert "the next daemon cannot take over: it ended" in refused.stderr
        assert "this version is broken" in (mounted.state / "daemon.log").read_text()
        (mounted.path / "new").write_text("served")
        assert mounted.record() == before
        module.write_text(good)
        schema = installed / "agentfsd" / "metadata" / "schema.py"
        newest = schema.read_text()
        schema.write_text(newest.replace(f"SCHEMA_VERSION = {SCHEMA_VERSION}", f"SCHEMA_VERSION = {SCHEMA_VERSION - 1}"))
        older = mounted.cli("restart", check=False).stderr
        assert f"it knows schema {SCHEMA_VERSION - 1} of the state, which has schema {SCHEMA_VERSION}" in older
        assert mounted.record() == before
        schema.write_text(newest)
        (installed / "agentfsd" / "__init__.py").write_text('__version__ = "99.1"\n')
        assert "version 99.1" in mounted.cli("restart").stdout
        assert (mounted.path / "new").read_text() == "served"
    finally:
        mounted.end()


def test_watch_goes_on_with_the_next_daemon(mounted: Mounted, tmp_path: Path) -> None:
    has_keeper(mounted)
    said = tmp_path / "said"
    with said.open("w") as file:
        mounted.started.append(
            subprocess.Popen([*AGENTFSD, "watch", "-m", str(mounted.path)], stdout=file, stderr=subprocess.STDOUT, text=True)
        )
        until(lambda: "watching" in said.read_text())
        (mounted.path / "before").touch()
        until(lambda: "before" in said.read_text())
        kill_daemon(mounted)
        until(lambda: "started again" in said.read_text())
        (mounted.path / "after").touch()
        until(lambda: "after" in said.read_text().partition("started again")[2])


def test_commands_inside_a_run_reach_the_next_daemon(mounted: Mounted) -> None:
    needs_namespaces()
    agentfsd_here = " ".join(AGENTFSD)
    script = f"echo begun; read line; {agentfsd_here} snapshot create --tag inside; read line; {agentfsd_here} diff fix --stat"
    run = [*AGENTFSD, "run", "-m", str(mounted.path), "-b", "fix", "--new", "--", "sh", "-ec", script]
    with subprocess.Popen(run, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=mounted.path) as program:
        mounted.started.append(program)
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        kill_daemon(mounted)
        program.stdin.write("go\n")
        program.stdin.flush()
        assert "snapshot fix-1" in program.stdout.readline()
        mounted.cli("restart")
        program.stdin.write("go\n")
        program.stdin.close()
        program.stdin = None
        assert program.wait(60) == 0


def test_one_step_run_goes_on(tmp_path: Path) -> None:
    needs_namespaces()
    project = tmp_path / "project"
    project.mkdir()
    (project / "lower").write_text("of the lower\n")
    run = [*AGENTFSD, "run", "-b", "fix", "--new", "--", sys.executable, LOAD, str(project), "4"]
    with subprocess.Popen(run, cwd=project, text=True, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "holds\n"

        def daemons() -> list[registry.DaemonRecord]:
            return [record for record in registry.live_daemons() if record.lower == str(project) and record.keeper > 0]

        until(lambda: daemons() != [])
        os.kill(daemons()[0].pid, signal.SIGKILL)
        assert program.wait(60) == 0
    assert os.listdir(project) == ["lower"]
