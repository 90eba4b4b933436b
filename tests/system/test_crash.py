"""SIGKILL of the daemon under a mixed load: what was acknowledged is there after a remount, and the state is sound."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from tests.mounted import Mounted, needs_interposing, needs_namespaces
from tests.rounds import rounds

LOAD = str(Path(__file__).parent / "crash_load.py")
KILLS = rounds("kills of a daemon", 3, 50)
BRANCHES = ("main", "one", "two")


class Writer(NamedTuple):
    """A load in a branch; what it writes lies in the directory *name*."""

    branch: str
    name: str
    view: str


BY_PROCESS = [Writer(branch, branch, "pid") for branch in BRANCHES]
TWO_RUNS = [Writer(branch, f"{branch}-{name}", "namespace") for branch in BRANCHES[1:] for name in ("a", "b")]


def start_loads(
    mounted: Mounted, reports: Path, kill: int, writers: list[Writer], *, interposed: bool = False
) -> list[subprocess.Popen[str]]:
    started = []
    for number, writer in enumerate(writers):
        report = reports / f"{kill}-{writer.name}"
        command = [sys.executable, LOAD, writer.name, str(report), str(kill * 10 + number)]
        started.append(mounted.start(writer.branch, *command, view=writer.view, interposed=interposed, stderr=subprocess.DEVNULL))
    deadline = time.monotonic() + 30
    while not all((reports / f"{kill}-{writer.name}.started").exists() for writer in writers):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return started


def snapshot_until(mounted: Mounted, moment: float) -> list[str]:
    """Takes snapshots until then; those that were acknowledged."""
    made: list[str] = []
    try:
        with ControlClient.connect(mounted.record().socket) as daemon:
            while time.monotonic() < moment:
                made.append(daemon.create_snapshot("one").name)
                if len(made) % 3 == 0:
                    daemon.delete_snapshot(made.pop(0))
                time.sleep(0.01)
    except AgentFSError:
        pass
    return made


def check_writer(mounted: Mounted, writer: Writer, expected: dict[str, Any]) -> None:
    """Every acknowledged file, mode and directory is there, and nothing else but what the last step may have made."""
    root = mounted.subtree(writer.branch)
    under_way = set(expected["under_way"])
    found = {str(path.relative_to(root)): path for path in (root / writer.name).iterdir()}
    for name, text in expected["files"].items():
        if name not in under_way:
            assert found[name].read_text() == text, name
            assert found[name].stat().st_mode & 0o777 == expected["modes"][name], name
    for name in expected["dirs"]:
        assert name in under_way or found[name].is_dir(), name
    assert set(found) - under_way == (set(expected["files"]) | set(expected["dirs"])) - under_way


@pytest.mark.sample(1)
@pytest.mark.parametrize("interposed", [False, True])
def test_sigkill_under_load_loses_nothing(mounted: Mounted, tmp_path: Path, interposed: bool) -> None:
    """*interposed*: whoever writes has real descriptors, and goes on for a moment after the daemon has gone."""
    if interposed:
        needs_interposing(mounted)
    kill_again_and_again(mounted, tmp_path, BY_PROCESS, KILLS // 3 if interposed else KILLS, interposed)


def test_sigkill_with_two_runs_in_each_branch_loses_nothing(mounted: Mounted, tmp_path: Path) -> None:
    needs_namespaces()
    kill_again_and_again(mounted, tmp_path, TWO_RUNS, KILLS // 2)


def kill_again_and_again(mounted: Mounted, tmp_path: Path, writers: list[Writer], kills: int, interposed: bool = False) -> None:
    chance = random.Random(1)
    snapshots: list[str] = []
    steps = 0
    for branch in BRANCHES[1:]:
        mounted.cli("branch create", branch)
    for kill in range(kills):
        loads = start_loads(mounted, tmp_path, kill, writers, interposed=interposed)
        made = snapshot_until(mounted, time.monotonic() + chance.uniform(0.02, 0.3))
        mounted.kill()
        for load in loads:
            load.wait(30)
        mounted.mount()
        for writer in writers:
            expected = json.loads((tmp_path / f"{kill}-{writer.name}").read_text())
            steps += expected["steps"]
            check_writer(mounted, writer, expected)
        known = {snapshot["name"] for snapshot in mounted.json("snapshot list")}
        assert set(made) <= known
        snapshots += made
        for name in snapshots[:-5]:
            if name in known:
                mounted.cli("snapshot delete", name)
        del snapshots[:-5]
        assert mounted.fsck() == []
    assert steps > kills * 10
