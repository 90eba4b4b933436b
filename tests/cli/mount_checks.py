"""Whether something is mounted, and what a command says that is refused."""

import time
from collections.abc import Callable
from pathlib import Path

from agentfs_host import mount_table
from tests.mounted import agentfsd


def is_mounted(path: Path) -> bool:
    return mount_table.mount_at(str(path)) is not None


def refusal(*arguments: str) -> str:
    done = agentfsd(*arguments, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.startswith("agentfsd: ")
    return done.stderr


def wait_until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
