"""The daemon's own process: its descriptors and standard streams, its terminal, its garbage collector."""

import contextlib
import gc
import os
import resource
import sys

_ALLOCATIONS = 50_000  # between two looks of the garbage collector


def has_terminal() -> bool:
    """Whether there is a terminal whose hangup would be told to us, by SIGHUP."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def stderr_to(path: str) -> None:
    """Until now whoever started us listened there; libraries and the interpreter may still have something to say."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(fd, 2)
    os.close(fd)


def collect_seldom() -> None:
    """Few of our objects form cycles, and looking through a hundred thousand files for them makes everybody wait."""
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 50)


def raise_descriptor_limit() -> None:
    """One descriptor for each open file and for each process that was seen: as many as the system gives."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open("/proc/sys/fs/nr_open") as file:
        highest = int(file.read())
    for limit in (highest, hard):  # above the hard limit only root may go
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            return


def keep_only(*wanted: int) -> None:
    """Closes what was inherited by accident: somebody may wait for the other end of a pipe."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, *wanted):
            with contextlib.suppress(OSError):
                os.close(int(name))


def let_go_of_output() -> None:
    """At the end: what a terminal that was hung up does not take any more is no failure of ours."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
