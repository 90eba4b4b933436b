"""Stops processes for a moment. Nobody notices: parents are stopped before their children, and go on after them.

Source: signal(7), pidfd_send_signal(2), proc(5).
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable

from agentfs_client import registry

_ROUNDS = 4  # processes that were started meanwhile are looked for so often
_WAIT_S, _LOOK_S = 0.2, 0.0002


class PausedProcesses:
    """The processes of one pause.

    Args:
        list_processes: Returns the processes to stop.
        spared: A process that goes on, as do all above it: it waits for us.

    Attributes:
        left: Why not all of them stand still; "" if they do.
    """

    def __init__(self, list_processes: Callable[[], Iterable[int]], spared: int = 0) -> None:
        self._list, self._spared = list_processes, _with_parents(spared)
        self._stopped: list[tuple[int, int]] = []  # (process, pidfd), in the order in which they were stopped
        self.left = ""

    def has_any(self) -> bool:
        """Return whether there is a process to stop."""
        return any(pid not in self._spared for pid in self._list())

    def stop(self, note: Callable[[Iterable[int]], None]) -> None:
        """Stop the processes, and wait until they stand still.

        *note* is called before, with all that will have been stopped: whoever is killed in between cannot let them go on.
        """
        seen: set[int] = set()
        for _ in range(_ROUNDS):
            fresh = {pid for pid in self._list() if pid not in seen and pid not in self._spared and not _stands_still(pid)}
            if not fresh:
                break
            seen |= fresh
            note(seen)
            for pid in sorted(fresh, key=_depth):
                self._stop(pid)
            self._wait()
        else:
            self.left = self.left or "new processes are started all the time"

    def _stop(self, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        except OSError as exc:
            os.close(pidfd)
            self.left = f"process {pid} cannot be stopped: {exc.strerror}"
            return
        self._stopped.append((pid, pidfd))

    def _wait(self) -> None:
        until_s = time.monotonic() + _WAIT_S
        for pid, _ in self._stopped:
            while not _stands_still(pid):
                if time.monotonic() > until_s:
                    self.left = f"process {pid} does not stop: the kernel is busy with it"
                    break
                time.sleep(_LOOK_S)

    def go_on(self) -> None:
        """Let them go on."""
        for _, pidfd in reversed(self._stopped):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            os.close(pidfd)
        self._stopped.clear()


def go_on_after_crash(pids: Collection[int]) -> None:
    """Let processes go on that a daemon has stopped and that was then killed."""
    for pid in sorted(pids, key=_depth, reverse=True):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    """Return whether no thread of a process runs."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return True
    return all(_is_still(f"{pid}/task/{thread}") for thread in threads)


def _is_still(place: int | str) -> bool:
    """Return whether a process or thread is stopped, by whomever, or has ended."""
    return _state(place) in ("T", "t", "Z", "X", "")


def _state(place: int | str) -> str:
    fields = registry.stat_fields(place)
    return fields[0].decode() if fields else ""


def _parent(pid: int) -> int:
    fields = registry.stat_fields(pid)
    return int(fields[1]) if fields else 0


def _with_parents(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1 and pid not in found:
        found.add(pid)
        pid = _parent(pid)
    return found


def _depth(pid: int) -> int:
    return len(_with_parents(pid))
