"""Reads /proc and opens pidfds: a thread's process, its parent, and whether it still lives."""

import os
from typing import NamedTuple

from agentfs_host.record_locks import F_OFD_SETLK, F_OFD_SETLKW
from agentfsd.linux import process_syscalls

_COMMAND = 2  # fields of /proc/TID/syscall: number, fd, command
_LOOKS = 5

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """``started`` (clock ticks since boot) tells a process from a later one with the same number."""

    pid: int
    parent: int
    state: str
    started: int
    command: str


def thread_group(tid: int) -> int:
    """Return the process of a thread; 0 if there is no such thread, or we may not see it."""
    return int(_status_field(f"/proc/{tid}/status", b"Tgid") or 0)


def read(pid: int) -> Process | None:
    """Return a process (or thread) as /proc shows it now; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as line:
            text = line.read(4096)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    opening, closing = text.index(b"("), text.rindex(b")")
    fields = text[closing + 2 :].split()
    command = text[opening + 1 : closing].decode("utf-8", "replace")
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]), command)


def runs(process: Process) -> bool:
    """Return whether a process still runs, perhaps without its first thread."""
    if process.state not in "ZX":
        return True
    try:
        return len(os.listdir(f"/proc/{process.pid}/task")) > 1
    except OSError:
        return False


def ticks_to_ns(ticks: int) -> int:
    """Return a start time in nanoseconds since boot (CLOCK_BOOTTIME)."""
    return ticks * TICK_NS


def numbers() -> list[int]:
    """Return the numbers of all processes that we may see."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def has_filter(pid: int) -> bool:
    """Return whether all threads of a process run under a seccomp filter, which descendants inherit and nobody can take off."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return bool(threads) and all(_status_field(f"/proc/{pid}/task/{tid}/status", b"Seccomp") == b"2" for tid in threads)


def is_namespace_init(pid: int) -> bool:
    """Return whether a process is the first of a pid namespace, to which the kernel gives the orphans of that namespace."""
    return _status_field(f"/proc/{pid}/status", b"NSpid").split()[-1:] == [b"1"]


def _status_field(path: str, name: bytes) -> bytes:
    try:
        with open(path, "rb", buffering=0) as status:
            text = status.read(8192)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
    at = text.find(b"\n" + name + b":")
    return text[at + len(name) + 2 : text.index(b"\n", at + 1)].strip() if at >= 0 else b""


def descendants(pid: int) -> list[int]:
    """Return the numbers of the live descendants of a process, each parent before its children."""
    if not _has_children(pid):
        return []  # as the command of a run: no look at all processes of the machine
    children: dict[int, list[int]] = {}
    for number in numbers():
        process = read(number)
        if process is not None:
            children.setdefault(process.parent, []).append(number)
    below: list[int] = []
    pending = [pid]
    while pending:
        nearest = children.get(pending.pop(0), [])
        below += nearest
        pending += nearest
    return below


def _has_children(pid: int) -> bool:
    """Return whether a thread of a process has started a process that lives; True if the kernel does not say."""
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/children", "rb", buffering=0) as children:
                if children.read(16):
                    return True
    except OSError:
        return True
    return False


def pidfd(tid: int, *, thread: bool) -> int:
    """Return a descriptor that becomes readable when the process (or thread) ends; -1 if the kernel gives none."""
    try:
        return process_syscalls.pidfd_open(tid, thread=thread)
    except OSError:
        return -1


def owner(pid: int) -> int | None:
    """Return the effective uid of a process; None if there is no such process."""
    numbers = _status_field(f"/proc/{pid}/status", b"Uid").split()
    return int(numbers[1]) if numbers else None


def locks_open_file(tid: int) -> bool:
    """Return whether a thread that waits for our answer is in F_OFD_SETLK(W), which FUSE does not say. False if we may not look.

    /proc shows the system call only once the thread sleeps, and it may still run just after its request: so we look repeatedly.
    """
    for _ in range(_LOOKS):
        try:
            with open(f"/proc/{tid}/syscall", "rb", buffering=0) as line:
                fields = line.read(256).split()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False
        if len(fields) > _COMMAND:
            return int(fields[_COMMAND], 16) in (F_OFD_SETLK, F_OFD_SETLKW)
    return False
