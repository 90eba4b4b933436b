"""SIGKILL of a commit into the lower, at any moment and of what then finishes or undoes it too: all or nothing, bit by bit.

``--rounds 'kills of a commit=100' --rounds 'files of a killed commit=10000'`` is what a release should stand.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.lower import commit_writer
from tests.compare import differences
from tests.lower.commit_trees import exact, make_lower, make_wanted
from tests.rounds import rounds, seed

KILLS = rounds("kills of a commit", 16, 100)
FILES = rounds("files of a killed commit", 24, 10_000)
SEED = seed()


class Load:
    """A lower, the tree it is to become, and a process that commits the one into the other."""

    def __init__(self, base: Path, kills: int, **environment: str) -> None:
        self.kills = kills
        self.root, self.wanted, self.state = base / "root", base / "wanted", base / "state"
        make_lower(self.root, FILES)
        make_wanted(self.wanted, self.root, FILES)
        self.before, self.after = exact(self.root, True), exact(self.wanted, True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.commit_load", self.root, self.wanted, self.state],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment,
        )  # fmt: skip

    def reset(self) -> None:
        for path in (self.root, self.state):
            shutil.rmtree(path, ignore_errors=True)
        self.state.mkdir()
        make_lower(self.root, FILES)

    def do(self, action: str, last: int = 0, after_s: float = 0.0) -> str:
        """What it answers; *last*: the call that it shall not make; *after_s*: when it is killed from outside."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{action} {last}\n")
        stdin.flush()
        child = int(stdout.readline())
        pidfd = os.pidfd_open(child) if after_s else -1
        answer = stdout.readline().strip()
        if answer == "begins":
            if after_s:
                time.sleep(after_s)
                kill(pidfd)
            answer = stdout.readline().strip()
        assert answer != "failed"
        return answer

    def calls(self, action: str) -> int:
        return int(self.do(action).split()[1])

    def check(self, done: bool) -> None:
        assert commit_writer.pending(str(self.state)) is None
        assert {path.name for path in self.state.iterdir()} <= {"commit.new"}
        assert differences(exact(self.root, True), self.after if done else self.before) == []

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it was quicker
    os.close(pidfd)


@pytest.fixture(params=["exchange", "no-exchange"])
def load(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Load]:
    made = Load(tmp_path, KILLS) if request.param == "exchange" else Load(tmp_path, KILLS // 4, AGENTFSD_NO_EXCHANGE="1")
    yield made
    made.end()


def end_by(load: Load, action: str) -> bool:
    """What is left is finished or undone; whether the lower has the commit."""
    found = commit_writer.pending(str(load.state))
    if found is None:  # not begun, or over
        return bool(exact(load.root, True) != load.before)
    done = load.do(action).split()[0] == "True"
    expected = found.phase == "committed" or (found.phase == "applying" and action == "resume")
    assert done == expected
    return done


@pytest.mark.sample(1)
def test_a_commit_killed_anywhere_is_finished_or_undone(load: Load) -> None:
    load.reset()
    begun = time.monotonic()
    calls = load.calls("commit")
    took_s = time.monotonic() - begun
    load.check(True)
    chance = random.Random(SEED)
    points = sorted(chance.sample(range(1, calls + 1), min(load.kills, calls)))
    for number, point in enumerate(points):
        load.reset()
        if number % 4 == 3:
            load.do("commit", after_s=chance.uniform(0.0001, took_s))
        else:
            assert load.do("commit", point) == "killed"
        load.check(end_by(load, "resume" if number % 3 else "abort"))


@pytest.mark.sample(1)
def test_what_finishes_or_undoes_it_may_be_killed_as_well(load: Load) -> None:
    load.reset()
    calls = load.calls("commit")
    chance = random.Random(SEED + 1)
    for number in range(load.kills // 3):
        load.reset()
        assert load.do("commit", chance.randrange(calls // 3, calls)) == "killed"
        for _ in range(3):
            if commit_writer.pending(str(load.state)) is None:
                break
            load.do("resume" if number % 3 else "abort", chance.randrange(1, calls // 3))
        load.check(end_by(load, "resume" if number % 2 else "abort"))
