"""A mount that tests of one file share, and what they look for in what is printed."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from click.testing import CliRunner

from agentfsd.cli.main import main
from tests.mounted import Mounted

ADDRESS = "127.0.0.1:0"


@contextmanager
def working(mounted: Mounted, branch: str, script: str) -> Iterator[None]:
    """A shell in that branch, which has begun."""
    process = mounted.start(branch, "sh", "-c", f"echo; {script}", stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        while pids := [one["pid"] for one in mounted.json("status")["bindings"]]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            time.sleep(0.01)
        process.wait()


class Shared(Mounted):
    """Its commands are run in this process, which takes a tenth of the time; `run` and `start` as ever."""

    def cli(self, command: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        words = [*command.split(), "-m", str(self.path), *arguments]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0 or not check, f"{words}: {done.stderr}{done.stdout}"
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def at_home(mounted: Mounted, patch: pytest.MonkeyPatch) -> None:
    """Where that mount is registered, which is not where this test's own would be."""
    patch.setenv("AGENTFS_STATE_HOME", str(mounted.path.parent / "state-home"))
    patch.setenv("AGENTFS_RUNTIME_DIR", str(mounted.path.parent / "run"))


def line(text: str, beginning: str) -> str:
    return next(line.strip() for line in text.splitlines() if line.strip().startswith(beginning))
