"""Commands that tests start as forks (tests/forked_commands.py) are to their test what a started program is."""

import os
import signal
import subprocess
from typing import Any

from tests.mounted import AGENTFSD, Mounted, agentfsd, started

PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)


def test_it_says_and_returns_what_the_program_does() -> None:
    for words in (["--version"], ["nothing-like-that"], ["run", "--help"]):
        done = subprocess.run([*AGENTFSD, *words], capture_output=True, text=True, check=False)
        with started(*words, **PIPES) as process:
            assert (*process.communicate(), process.returncode) == (done.stdout, done.stderr, done.returncode)


def test_it_is_a_child_that_is_fed_and_killed(mounted: Mounted) -> None:
    agentfsd("--version")  # the process that forks is there
    fed = mounted.start("main", "cat", **PIPES)
    assert type(fed) is not subprocess.Popen, "it was started in a new Python"
    assert fed.communicate("a line\n", timeout=60) == ("a line\n", "")
    assert fed.wait() == 0
    waiting = mounted.start("main", "sleep", "60")
    with open(f"/proc/{waiting.pid}/stat") as file:
        assert int(file.read().rpartition(") ")[2].split()[1]) == os.getpid()
    assert waiting.poll() is None
    waiting.kill()
    assert waiting.wait(60) == -signal.SIGKILL
