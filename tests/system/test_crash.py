"""SIGKILL of the daemon under a mixed load: what was acknowledged is there after a remount, and the state is sound."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from tests.mounted import Mounted, needs_interposing

LOAD = str(Path(__file__).parent / "crash_load.py")
KILLS = int(os.environ.get("AGENTFSD_KILLS", "12"))
BRANCHES = ("main", "one", "two")


def start_loads(mounted: Mounted, reports: Path, kill: int, *, interposed: bool) -> list[subprocess.Popen[str]]:
    started = []
    for number, branch in enumerate(BRANCHES):
        report = reports / f"{kill}-{branch}"
        command = [sys.executable, LOAD, branch, str(report), str(kill * 10 + number)]
        started.append(mounted.start(branch, *command, view="pid", interposed=interposed, stderr=subprocess.DEVNULL))
    deadline = time.monotonic() + 30
    while not all((reports / f"{kill}-{branch}.started").exists() for branch in BRANCHES):
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


def check_branch(mounted: Mounted, branch: str, expected: dict[str, Any]) -> None:
    """Every acknowledged file, mode and directory is there, and nothing else but what the last step may have made."""
    root = mounted.subtree(branch)
    under_way = set(expected["under_way"])
    found = {str(path.relative_to(root)): path for path in (root / branch).iterdir()}
    for name, text in expected["files"].items():
        if name not in under_way:
            assert found[name].read_text() == text, name
            assert found[name].stat().st_mode & 0o777 == expected["modes"][name], name
    for name in expected["dirs"]:
        assert name in under_way or found[name].is_dir(), name
    assert set(found) - under_way == (set(expected["files"]) | set(expected["dirs"])) - under_way


@pytest.mark.parametrize("interposed", [False, True])
def test_sigkill_under_load_loses_nothing(mounted: Mounted, tmp_path: Path, interposed: bool) -> None:
    """*interposed*: whoever writes has real descriptors, and goes on for a moment after the daemon has gone."""
    if interposed:
        needs_interposing(mounted)
    chance = random.Random(1)
    snapshots: list[str] = []
    steps = 0
    for branch in BRANCHES[1:]:
        mounted.cli("branch create", branch)
    for kill in range(KILLS // 3 if interposed else KILLS):
        loads = start_loads(mounted, tmp_path, kill, interposed=interposed)
        made = snapshot_until(mounted, time.monotonic() + chance.uniform(0.02, 0.3))
        mounted.kill()
        for load in loads:
            load.wait(30)
        mounted.mount()
        for branch in BRANCHES:
            expected = json.loads((tmp_path / f"{kill}-{branch}").read_text())
            steps += expected["steps"]
            check_branch(mounted, branch, expected)
        known = {snapshot["name"] for snapshot in mounted.json("snapshot list")}
        assert set(made) <= known
        snapshots += made
        for name in snapshots[:-5]:
            if name in known:
                mounted.cli("snapshot delete", name)
        del snapshots[:-5]
        assert mounted.fsck() == []
    assert steps > KILLS * 10
