"""SIGKILL of the daemon every two seconds, under the programs of agents, in all views at once."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import Mounted, needs_namespaces
from tests.rounds import rounds
from tests.system.survival_programs import PROGRAMS

SECONDS = rounds("seconds of kills", 4, 600)
EVERY_S = 2.0
BEGIN = "import sqlite3; sqlite3.connect('database').executescript('pragma journal_mode=wal; create table t(who, number)')"


def test_programs_end_as_they_do_without_kills(
    tmp_path: Path, make_mount: Callable[..., Mounted], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_namespaces()
    monkeypatch.setenv("AGENTFS_RESTARTS_PER_MINUTE", "1000")
    lower = tmp_path / "lower"
    lower.mkdir()
    mounted = make_mount(lower)
    names = [name for name in PROGRAMS if name != "npm" or (shutil.which("npm") and SECONDS > 60)]
    views = [("fix", "namespace"), ("fix", "pid"), ("other", "namespace")]
    for branch in ("fix", "other"):
        mounted.cli("branch create", branch)
        assert mounted.start(branch, sys.executable, "-c", BEGIN, view="namespace").wait(60) == 0
    script = str(Path(__file__).with_name("survival_programs.py"))
    with (tmp_path / "said").open("w") as said:
        programs = {
            (name, *view): mounted.start(
                view[0], sys.executable, script, name, str(SECONDS), view=view[1], stdout=said, stderr=subprocess.STDOUT
            )
            for view in views
            for name in names
        }
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        before = mounted.record()
        if before.keeper:
            os.kill(before.pid, signal.SIGKILL)
        time.sleep(EVERY_S)
    for program in programs.values():
        program.wait(300)
    assert {each: program.returncode for each, program in programs.items()} == dict.fromkeys(programs, 0), (
        tmp_path / "said"
    ).read_text()
    assert "an answer went before" not in (mounted.state / "daemon.log").read_text()  # two that waited for each other
    assert mounted.fsck() == []
    assert os.listdir(lower) == []
