"""Read /proc and open pidfds: the process of a thread, its parent, and whether it still lives."""

import ctypes
import os
from typing import NamedTuple

_SYS_PIDFD_OPEN = 434
_PIDFD_THREAD = os.O_EXCL  # Linux 6.9

_F_OFD_SETLK, _F_OFD_SETLKW = 37, 38
_COMMAND = 2  # fields of /proc/TID/syscall: number, fd, command
_LOOKS = 5

_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """A process. ``started`` (clock ticks since boot) distinguishes it from a later one with the same number."""

    pid: int
    parent: int
    state: str
    started: int
    command: str


def thread_group(tid: int) -> int:
    """Return the process of a thread; 0 when the thread does not exist or is not visible."""
    try:
        with open(f"/proc/{tid}/status", "rb", buffering=0) as status:
            text = status.read(4096)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    at = text.find(b"\nTgid:")
    return int(text[at + 6 : text.index(b"\n", at + 6)]) if at >= 0 else 0


def read(pid: int) -> Process | None:
    """Return a process (or thread) as /proc shows it now; None when it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as found:
            text = found.read(4096)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    opening, closing = text.index(b"("), text.rindex(b")")
    fields = text[closing + 2 :].split()
    command = text[opening + 1 : closing].decode("utf-8", "replace")
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]), command)


def pidfd(tid: int, *, thread: bool) -> int:
    """Return a descriptor that becomes readable when the process (or thread) ends; -1 when it has ended."""
    fd: int = _libc.syscall(_SYS_PIDFD_OPEN, tid, _PIDFD_THREAD if thread else 0)
    return fd


def owner(pid: int) -> int | None:
    """Return the effective uid of a process; None when it does not exist."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as status:
            text = status.read(4096)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    at = text.index(b"\nUid:")
    return int(text[at + 5 : text.index(b"\n", at + 5)].split()[1])


def locks_open_file(tid: int) -> bool:
    """Return whether a thread that waits for our answer is in F_OFD_SETLK(W), which a FUSE request does not say.

    The thread has sent its request and is about to sleep. Until it sleeps, the kernel shows it only as running. False where
    /proc is not readable.
    """
    for _ in range(_LOOKS):
        try:
            with open(f"/proc/{tid}/syscall", "rb", buffering=0) as found:
                fields = found.read(256).split()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False
        if len(fields) > _COMMAND:
            return int(fields[_COMMAND], 16) in (_F_OFD_SETLK, _F_OFD_SETLKW)
    return False
