"""Starts a daemon's process. What the descriptors that it gets are for, agentfsd/daemon/__main__.py says."""

import os
import sys
from collections.abc import Collection, Mapping


def command(config_fd: int, *options: str) -> list[str]:
    """Return a daemon's command line."""
    # -P: never import from the current directory, where anybody may have put a trio.py.
    return [sys.executable, "-P", "-m", "agentfsd.daemon", "--config-fd", str(config_fd), *options]


def taking_over(config_fd: int, kept_fd: int, keeper_pid: int) -> list[str]:
    """Return the command line of a daemon that goes on with what another one has left."""
    return command(config_fd, "--kept-fd", str(kept_fd), "--keeper-pid", str(keeper_pid))


def open_log(path: str) -> int:
    """Open a daemon's log, for its standard error."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def spawn(
    arguments: list[str],
    environment: Mapping[str, str],
    errors_fd: int,
    inherited: Collection[int],
    defaults: Collection[int] = (),
) -> int:
    """Start a daemon in a session of its own; return its process id.

    Args:
        arguments: Its command line.
        environment: Its environment.
        errors_fd: Its standard error.
        inherited: The descriptors that it gets.
        defaults: Signals that we ignore, and that it must not.
    """
    for fd in inherited:
        os.set_inheritable(fd, True)
    return os.posix_spawn(
        arguments[0], arguments, environment, setsid=True, setsigdef=defaults,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, errors_fd, 2),
        ],
    )  # fmt: skip
