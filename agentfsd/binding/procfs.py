"""Reads /proc and opens pidfds: a thread's process, its parent, and whether it still lives."""

import os
from typing import NamedTuple

from agentfsd.linux import process_syscalls

_F_OFD_SETLK, _F_OFD_SETLKW = 37, 38
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
    try:
        with open(f"/proc/{tid}/status", "rb", buffering=0) as status:
            text = status.read(4096)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    at = text.find(b"\nTgid:")
    return int(text[at + 6 : text.index(b"\n", at + 6)]) if at >= 0 else 0


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


def ticks_to_ns(ticks: int) -> int:
    """Return a start time in nanoseconds since boot (CLOCK_BOOTTIME)."""
    return ticks * TICK_NS


def numbers() -> list[int]:
    """Return the numbers of all processes that we may see."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def has_filter(pid: int) -> bool:
    """Return whether a process runs under a seccomp filter, which all its descendants inherit and none can take off."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as status:
            text = status.read(4096)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    at = text.find(b"\nSeccomp:")
    return at >= 0 and text[at + 9 : text.index(b"\n", at + 9)].strip() == b"2"


def has_children(pid: int) -> bool:
    """Return whether a process has children; True if the kernel does not say."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as children:
            return children.read(16) != b""
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return True


def pidfd(tid: int, *, thread: bool) -> int:
    """Return a descriptor that becomes readable when the process (or thread) ends; -1 if the kernel gives none."""
    try:
        return process_syscalls.pidfd_open(tid, thread=thread)
    except OSError:
        return -1


def owner(pid: int) -> int | None:
    """Return the effective uid of a process; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as status:
            text = status.read(4096)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    at = text.index(b"\nUid:")
    return int(text[at + 5 : text.index(b"\n", at + 5)].split()[1])


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
            return int(fields[_COMMAND], 16) in (_F_OFD_SETLK, _F_OFD_SETLKW)
    return False
