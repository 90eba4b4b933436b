"""The daemon's own process: its descriptors and standard streams, its terminal, its garbage collector."""

import contextlib
import gc
import os
import resource
import sys

from agentfsd.process.daemon_process import open_log

_ALLOCATIONS = 50_000  # between two looks of the garbage collector


def has_terminal() -> bool:
    """Return whether the process has a terminal, whose hangup sends SIGHUP."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def stderr_to(path: str) -> None:
    """Redirect standard error to a file, once the starting process stops reading it: libraries may still write there."""
    fd = open_log(path)
    os.dup2(fd, 2)
    os.close(fd)


def collect_seldom() -> None:
    """Run the garbage collector seldom. Few objects form cycles, and a scan of a hundred thousand files delays every request."""
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 50)


def raise_descriptor_limit() -> None:
    """Raise the limit as far as the system allows: each open file and each known process takes a descriptor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open("/proc/sys/fs/nr_open") as file:
        highest = int(file.read())
    for limit in (highest, hard):  # above the hard limit only root may go
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            return


def keep_only(*wanted: int) -> None:
    """Close inherited descriptors: some process may be waiting for the other end of a pipe to close."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, *wanted):
            with contextlib.suppress(OSError):
                os.close(int(name))


def let_go_of_output() -> None:
    """Ignore output errors at exit: after its terminal hung up, a process has not failed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
