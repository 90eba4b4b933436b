"""Starts the daemons of forked commands (tests/forked_commands.py) as forks, too: what takes the time of a start are the imports.

Such a daemon has the session, descriptors, signals, environment and command line of one that is started in a new Python.
Services, keepers after a kill, successors, and `agentfsd` as a program of its own start their daemons in a new Python.
"""

import ctypes
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Mapping
from typing import NoReturn

from agentfsd.process import daemon_process
from tests import forked_holders, forked_programs

_MODULE = "agentfsd.daemon"
ROOM = "room for the command line of a daemon".ljust(600, ".")  # an argument of the process that forks
_spawn = daemon_process.spawn


def load() -> None:
    """Import what a daemon imports, in the process that forks."""
    import agentfsd.daemon.__main__

    del sys.modules[agentfsd.daemon.__main__.__name__]  # each daemon runs it as its main program


def use() -> None:
    """Let this command start its daemon as a fork."""
    daemon_process.spawn = _fork


def _fork(
    arguments: list[str],
    environment: Mapping[str, str],
    errors_fd: int,
    inherited: Collection[int],
    defaults: Collection[int] = (),
) -> int:
    """What daemon_process.spawn() does."""
    if threading.active_count() > 1 or arguments[:4] != [sys.executable, "-P", "-m", _MODULE]:
        return _spawn(arguments, environment, errors_fd, inherited, defaults)
    for fd in inherited:
        os.set_inheritable(fd, True)
    pid = os.fork()
    if pid == 0:
        try:
            _become(arguments, environment, errors_fd, defaults)
        finally:
            os._exit(1)
    return pid


def _become(arguments: list[str], environment: Mapping[str, str], errors_fd: int, defaults: Collection[int]) -> NoReturn:
    daemon_process.spawn = _spawn
    os.setsid()
    _set_streams(errors_fd)
    _set_signals(defaults)
    if not _set_command_line(arguments):
        os.execve(arguments[0], arguments, environment)
    for name in os.listdir("/proc/self/fd"):
        try:
            if fcntl.fcntl(int(name), fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                os.close(int(name))
        except OSError:  # the one with which the directory was read
            pass
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:], sys.path[:] = arguments[3:], sys.path[1:]
    sys.modules["agentfsd.fuse.branch_locks"]._THIS_DAEMON = time.time_ns()
    forked_holders.prepare(_set_command_line)
    forked_programs.run(_MODULE)


def _set_streams(errors_fd: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for target, fd in enumerate((nothing, nothing, errors_fd)):
        os.dup2(fd, target)  # what standard output has not written yet, the command writes
    os.close(nothing)


def _set_signals(defaults: Collection[int]) -> None:
    """As after execve() and the start of Python: handlers are gone, ignored signals stay ignored."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if number in defaults or signal.getsignal(number) not in (signal.SIG_IGN, signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _set_command_line(arguments: list[str]) -> bool:
    """Show *arguments* as the process's command line; return whether there was room for it."""
    shown = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
    with open("/proc/self/stat", "rb") as file:
        begin, end = map(int, file.read().rpartition(b") ")[2].split()[45:47])  # arg_start and arg_end of proc(5)
    if len(shown) > end - begin:
        return False
    ctypes.memmove(begin, shown.ljust(end - begin, b"\0"), end - begin)
    return True
