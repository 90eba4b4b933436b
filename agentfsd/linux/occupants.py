"""Who uses a mount: which processes have a file of it open or mapped, or stand in it.

No file system is accessed: one without a server would block us for ever, and any process may have its working directory in one.
The kernel tells the device behind a link of /proc/PID without access to it. Only a network share can be slow even then, so each
look has a time limit.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Iterable

from agentfs_client import registry
from agentfs_host import mount_table, syscalls
from agentfsd.linux import process_info

_PATIENCE_S = 0.5  # with one process
_LIMIT_S = 5.0  # with all of them
_SHOWN = 5

_unanswered: dict[tuple[str, int], threading.Thread] = {}  # process, by number and start -> the thread that still looks at it


def users(mountpoint: str) -> list[int]:
    """Return the processes that use what is mounted at *mountpoint*, as far as we may see, without ourselves.

    It takes some seconds when a process cannot be inspected.
    """
    mounted = mount_table.mount_at(mountpoint)
    return users_of(mounted.device) if mounted is not None else []


def users_of(device: int) -> list[int]:
    """Return the processes that use the mount with that device (st_dev), wherever it is mounted, also after a lazy unmount.

    A process that cannot be inspected in time does not count: our own file system does not hang.
    """
    todo = deque(name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())
    pids: list[int] = []
    deadline = time.monotonic() + _LIMIT_S
    while todo and time.monotonic() < deadline:
        pids += _look(todo, device)
    return pids


def shown(pids: Iterable[int]) -> str:
    """Return processes by number and command, for use in a sentence."""
    named = [f"{pid} {process_info.command_of(pid)}".rstrip() for pid in pids]
    return ", ".join(named[:_SHOWN]) + (f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else "")


def _look(todo: deque[str], device: int) -> list[int]:
    """Inspect processes until *todo* is empty or one inspection takes too long. Others skip that process while it hangs."""
    looking = _Looking(todo, device)
    looking.start()
    seen = -1
    while looking.is_alive() and looking.steps != seen:
        seen = looking.steps
        looking.join(_PATIENCE_S)
    looking.is_given_up = True
    found = list(looking.found)
    if looking.is_alive() and looking.at is not None:
        _unanswered[looking.at] = looking
    return found


class _Looking(threading.Thread):
    """Looks at one process after the other, until it is given up."""

    def __init__(self, todo: deque[str], device: int) -> None:
        super().__init__(name="agentfsd-users", daemon=True)
        self._todo, self._device = todo, device
        self.found: list[int] = []
        self.at: tuple[str, int] | None = None
        self.steps = 0
        self.is_given_up = False

    def run(self) -> None:
        while self._todo and not self.is_given_up:
            pid = self._todo.popleft()
            process = (pid, registry.process_start_ticks(int(pid)))
            if process in _unanswered:
                if _unanswered[process].is_alive():
                    continue
                del _unanswered[process]
            self.at = process
            self.steps += 1
            if _uses(pid, self._device):
                self.found.append(int(pid))
        self.at = None


def _uses(pid: str, device: int) -> bool:
    try:
        own, others = _mount_ids(pid, device)
        for fd in os.listdir(f"/proc/{pid}/fdinfo"):
            number = _mount_id(f"/proc/{pid}/fdinfo/{fd}")
            if number in own or (number not in others and _device_behind(f"/proc/{pid}/fd/{fd}") == device):
                return True
        return any(_device_behind(f"/proc/{pid}/{name}") == device for name in ("cwd", "root")) or _maps(pid, device)
    except (OSError, ValueError):  # it has ended, or is none of ours to look at
        return False


def _mount_ids(pid: str, device: int) -> tuple[set[int], set[int]]:
    """Return the mount ids of a process: those of *device*, and all others."""
    own: set[int] = set()
    others: set[int] = set()
    shown_device = b"%d:%d" % (os.major(device), os.minor(device))
    with open(f"/proc/{pid}/mountinfo", "rb") as table:
        for line in table:
            fields = line.split(maxsplit=3)
            (own if fields[2] == shown_device else others).add(int(fields[0]))
    return own, others


def _mount_id(fdinfo: str) -> int:
    with open(fdinfo, "rb") as info:
        return next(int(line[7:]) for line in info if line.startswith(b"mnt_id:"))


def _maps(pid: str, device: int) -> bool:
    """Whether a file of the mount is mapped: its descriptor may be closed."""
    shown_device = b" %02x:%02x " % (os.major(device), os.minor(device))
    with open(f"/proc/{pid}/maps", "rb") as maps:
        return any(shown_device in line[:80] for line in maps)


def _device_behind(link: str) -> int:
    """Return the st_dev of a link's target. OSError."""
    fd = os.open(link, os.O_PATH | os.O_CLOEXEC)
    try:
        return syscalls.device_of(fd)
    finally:
        os.close(fd)
