"""Who starts the next daemon, when none is started, and what clients and commands find then."""

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import agentfsd
from agentfs_client import registry
from agentfs_client.control import ControlClient
from agentfsd.metadata.schema import SCHEMA_VERSION
from tests.mounted import AGENTFSD, Mounted, needs_namespaces
from tests.mounted import agentfsd as command
from tests.system.survival.killing import LOAD, has_keeper, kill_daemon, until


def test_client_goes_on_with_the_next_daemon(mounted: Mounted) -> None:
    with ControlClient.connect(has_keeper(mounted).socket) as daemon:
        daemon.create_branch("before")
        kill_daemon(mounted)
        assert {branch.name for branch in daemon.list_branches()} == {"main", "before"}


@pytest.mark.parametrize("deaths", [1, 2])
def test_client_whose_first_words_were_lost_says_them_again(mounted: Mounted, tmp_path: Path, deaths: int) -> None:
    """As when many runs begin while daemon after daemon is killed: each accepts the connection and dies before it answers."""
    path = str(tmp_path / "socket")
    with socket.create_server(path, family=socket.AF_UNIX) as server, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(ControlClient.connect, path)
        server.settimeout(30)
        for death in range(deaths):
            accepted, _ = server.accept()
            with accepted:
                assert accepted.recv(1)
                if death + 1 == deaths:
                    os.unlink(path)
                    os.symlink(mounted.record().socket, path)
        with connecting.result(30) as daemon:
            assert [branch.name for branch in daemon.list_branches()] == ["main"]


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
