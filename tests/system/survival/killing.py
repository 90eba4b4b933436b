"""Kills a daemon, and waits for the next one."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from agentfs_client import registry
from tests.mounted import Mounted

LOAD = str(Path(__file__).parents[1] / "survival_load.py")


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
