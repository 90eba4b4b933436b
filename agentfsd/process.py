"""What a daemon needs of its process: a log, descriptors, and a word to whoever started it. Knows nothing of overlays."""

import contextlib
import gc
import logging
import logging.handlers
import os
import resource
import sys

import msgspec

from agentfsd import journal, logs, runtime
from agentfsd.config import DaemonConfig, Readiness
from agentfsd.errors import invalid

_ALLOCATIONS = 50_000  # between two looks of the garbage collector
LOG_BYTES = 4 << 20
LEVELS = ("debug", "info", "warning", "error")


class Ready:
    """The pipe to whoever started us."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for us to say it."""
        return self._fd >= 0

    def tell(self, message: Readiness) -> None:
        """Only the first message counts."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(BrokenPipeError):
                os.write(fd, msgspec.json.encode(message) + b"\n")
            os.close(fd)


def start_log(orders: DaemonConfig, state: runtime.State) -> None:
    """To the journal, the terminal, or STATE/daemon.log."""
    logging.basicConfig(level=_level(os.environ.get("AGENTFS_LOG", "INFO")), handlers=[_handler(orders, state)])


def _level(name: str) -> str:
    if name.lower() not in LEVELS:
        raise invalid(f"AGENTFS_LOG={name} is no level of a log", f"give one of {', '.join(LEVELS)}")
    return name.upper()


def _handler(orders: DaemonConfig, state: runtime.State) -> logging.Handler:
    if orders.foreground and journal.listens(2):
        return journal.handler({"AGENTFS_MOUNT": orders.mountpoint, "AGENTFS_LOWER": orders.lower, "AGENTFS_STATE": state.path})
    handler = (
        logging.StreamHandler() if orders.foreground
        else logging.handlers.RotatingFileHandler(state.log, maxBytes=LOG_BYTES, backupCount=1)
    )  # fmt: skip
    text = journal.OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(logs.Json() if orders.log_format == "json" else text)
    return handler


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
