"""Notes which processes of a run the daemon has stopped for a moment. If it is killed, the next daemon lets them go on."""

import os
from collections.abc import Iterable
from contextlib import suppress

from agentfs_client.registry import process_start_ticks
from agentfsd.linux.paused_processes import go_on_after_crash
from agentfsd.state.state_directory import PAUSED


def note(path: str, pids: Iterable[int]) -> None:
    """Note them in a file, each with the time of its start. OSError."""
    with open(path + ".new", "w") as file:
        file.write(" ".join(f"{pid}:{process_start_ticks(pid)}" for pid in pids))
    os.rename(path + ".new", path)


def let_go_on(directory: str) -> None:
    """Let the processes go on that are noted in the directory of a run."""
    path = os.path.join(directory, PAUSED)
    with suppress(OSError, ValueError):
        with open(path) as file:
            noted = [tuple(map(int, word.split(":"))) for word in file.read().split()]
        go_on_after_crash([pid for pid, ticks in noted if process_start_ticks(pid) == ticks])
        os.unlink(path)
