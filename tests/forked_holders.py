"""Starts the mount holder of a forked daemon (tests/forked_daemons.py) as a fork, too.

A daemon has threads when it starts its holder, and must not fork then. So it forks before, and the fork waits until it is wanted.
It then has the descriptors, environment and command line of a new Python. Every further holder of the daemon is started in one.
"""

import fcntl
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from agentfsd.fuse import branch_mounts
from agentfsd.process import descriptors
from tests import forked_programs

_MODULE = "agentfsd.fuse.mount_holder"
_MESSAGE_BYTES = 100_000
_HIGH = 500  # more than any descriptor of a daemon that starts
_start = branch_mounts._start

ShowCommandLine = Callable[[list[str]], bool]


def prepare(show: ShowCommandLine) -> None:
    """Fork, and let the daemon use the fork as its first holder. *show* changes the command line of a process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _wait(theirs, show)
        finally:
            os._exit(1)
    theirs.close()
    branch_mounts._start = partial(_use, ours, pid)  # type: ignore[assignment]
    descriptors.keep_only = partial(descriptors.keep_only, ours.fileno())


class _Process:
    """What the daemon uses of subprocess.Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            self._code = os.waitstatus_to_exitcode(ended[1])
        return self._code

    def wait(self, timeout: float = 60) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(_MODULE, timeout)
            time.sleep(0.005)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, 9)


def _use(link: socket.socket, pid: int, command: list[str], inherited: Sequence[int], environment: Mapping[str, str]) -> Any:
    branch_mounts._start = _start
    with link:
        socket.send_fds(link, [pickle.dumps((command, list(inherited), dict(environment)))], list(inherited))
    return _Process(pid)


def _wait(link: socket.socket, show: ShowCommandLine) -> NoReturn:
    _close_all_but(link.fileno())
    message, received, _, _ = socket.recv_fds(link, _MESSAGE_BYTES, 8)
    link.close()
    if not message:
        os._exit(0)
    command, wanted, environment = pickle.loads(message)
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH) for fd in received]
    for fd in received:
        os.close(fd)
    for fd, target in zip(moved, wanted, strict=True):
        os.dup2(fd, target)
        os.close(fd)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for target in (0, 1):
        os.dup2(nothing, target)
    os.close(nothing)
    if not show(command):
        os.execve(command[0], command, environment)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = command[3:]
    del sys.modules[_MODULE]  # it runs as the main program
    forked_programs.run(_MODULE)


def _close_all_but(kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            try:
                os.close(int(name))
            except OSError:  # the one with which the directory was read
                pass
