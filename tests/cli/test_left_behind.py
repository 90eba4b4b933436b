"""What exists for one command only, and goes with it however it ends: export's snapshot, import's branch."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_client.control import ControlClient
from tests.mounted import AGENTFSD, Mounted


def until(condition: Callable[[], object], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def refs(mounted: Mounted) -> set[str]:
    with ControlClient.connect(mounted.record().socket) as daemon:
        return {found.name for found in daemon.list_snapshots()} | {found.name for found in daemon.list_branches()}


def begun(mounted: Mounted, tmp_path: Path, what: str) -> subprocess.Popen[bytes]:
    """An export or import that has begun and cannot end: it waits for a pipe that nobody writes to, or for nobody to read."""
    before = refs(mounted)
    if what == "export":
        for number in range(3000):
            (mounted.lower / f"f{number}").write_text("x")
        command = ["export", "main", str(tmp_path / "target")]
    else:
        source = tmp_path / "source"
        source.mkdir()
        for number in range(3000):
            (source / f"f{number}").write_text("x")
        command = ["import", str(source), "-b", "wanted"]
    process = subprocess.Popen([*AGENTFSD, *command, "-m", str(mounted.path)], stdout=subprocess.PIPE)
    until(lambda: refs(mounted) > before or process.poll() is not None)
    os.kill(process.pid, signal.SIGSTOP)
    assert any(name.startswith(f"{what}-") for name in refs(mounted)), "it was over too soon"
    return process


@pytest.mark.sample(2)
@pytest.mark.parametrize("what", ["export", "import"])
@pytest.mark.parametrize("daemon_too", [False, True], ids=["command killed", "daemon killed first"])
def test_killing_it_leaves_nothing(mounted: Mounted, tmp_path: Path, what: str, daemon_too: bool) -> None:
    before = refs(mounted)
    process = begun(mounted, tmp_path, what)
    if daemon_too:
        mounted.kill()
    process.kill()
    process.communicate()
    if daemon_too:
        mounted.mount()
    until(lambda: refs(mounted) == before)
    assert mounted.json("undo", "--list") == []
    assert mounted.fsck() == []


@pytest.mark.parametrize("path", ["socket", "control file"])
def test_what_is_temporary_goes_with_its_conversation(mounted: Mounted, path: str) -> None:
    def connect() -> ControlClient:
        return ControlClient.connect(mounted.record().socket) if path == "socket" else ControlClient.open_mount(str(mounted.path))

    with connect() as one:
        one.create_snapshot(name="passing", temporary=True)
        one.create_branch("passing-too", temporary=True)
        one.create_branch("renamed", temporary=True)
        one.rename_branch("renamed", "stays")
        assert {"passing", "passing-too", "stays"} <= refs(mounted)
    until(lambda: refs(mounted) == {"main", "stays"})
    with connect() as one:
        one.create_snapshot(name="kept", temporary=True)
        one.keep_temporary()
    mounted.kill()
    mounted.mount()
    assert refs(mounted) == {"main", "stays", "kept"}


def test_an_export_from_inside_a_branch_that_is_killed(mounted: Mounted, tmp_path: Path) -> None:
    """The same for a bound process, which may delete no snapshot of others."""
    script = (
        "import os, sys; from agentfs_client.control import ControlClient\n"
        f"daemon = ControlClient.connect({mounted.record().socket!r})\n"
        "daemon.create_snapshot(name='passing', temporary=True); os.kill(os.getpid(), 9)"
    )
    mounted.run("inside", sys.executable, "-c", script, new=True, check=False)
    until(lambda: refs(mounted) == {"main", "inside"})
