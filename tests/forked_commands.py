"""Runs commands of `agentfsd` in forks of a process that has imported them.

A command is a process of its own, with its own number, directory, environment and exit code, as when a shell starts it.
Only the start of Python and the imports, which take ten times the processor time of most commands, happen once per test worker.
"""

import atexit
import contextlib
import ctypes
import os
import pickle
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests import forked_daemons, forked_programs

_MODULE = "agentfsd.cli.main"
_ROOT = Path(__file__).parent.parent
_AT_START = ("PYTHON", "LD_", "LC_", "LANG")  # beginnings of variables that Python or the loader reads when a program starts
_MESSAGE_BYTES = 100_000  # less than what a socket takes at once
_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)  # the number of clone(2)
_CLONE_PARENT = 0x8000


class _Request(NamedTuple):
    arguments: tuple[str, ...]
    directory: str
    environment: dict[str, str]
    umask: int
    is_child: bool  # of the process that asks


class ForkedCommands:
    """The client's side: the process that forks is started with the first command."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._started_with = _read_at_start(os.environ)
        self._requests: socket.socket | None = None

    def run(self, arguments: tuple[str, ...], timeout_s: float, **options: Any) -> subprocess.CompletedProcess[str] | None:
        """Run a command as subprocess.run() would, and capture its output.

        Args:
            arguments: Those of `agentfsd`.
            timeout_s: After which the command is killed, in seconds.
            options: Of subprocess.run().

        Returns:
            What came out, or None where only a new start of Python will do, because of *options* or of who asks.

        Raises:
            subprocess.TimeoutExpired: The command took longer.
        """
        message = self._message(arguments, is_child=False, **options)
        if message is None:
            return None
        stdin = os.open("/dev/null", os.O_RDONLY) if options.get("stdin") == subprocess.DEVNULL else os.dup(0)
        out, theirs_out = os.pipe()
        errors, theirs_errors = os.pipe()
        reply, theirs_reply = socket.socketpair()
        with reply:
            with theirs_reply:
                passed = [stdin, theirs_out, theirs_errors, theirs_reply.fileno()]
                try:
                    socket.send_fds(self._server(), [message], passed)
                finally:
                    for fd in passed[:3]:
                        os.close(fd)
            said = _read_all([out, errors, reply.fileno()], timeout_s, arguments)
        _pid, _, code = said[2].decode().partition("\n")
        assert code, "the process that forks has died"
        return subprocess.CompletedProcess(arguments, int(code), _text(said[0]), _text(said[1]))

    def start(self, arguments: tuple[str, ...], **options: Any) -> "subprocess.Popen[str] | None":
        """Start a command as subprocess.Popen() would with text=True: it is a child of this process.

        Args:
            arguments: Those of `agentfsd`.
            options: Of subprocess.Popen().

        Returns:
            The process, or None where only a new start of Python will do, because of *options* or of who asks.
        """
        kept = {name: value for name, value in options.items() if name in ("cwd", "env")}
        if _CLONE is None or not options.keys() <= {"cwd", "env", "stdin", "stdout", "stderr", "bufsize"}:
            return None
        message = self._message(arguments, is_child=True, **kept)
        if message is None:
            return None
        return _Forked(self._server(), message, arguments, **{name: options[name] for name in options.keys() - kept.keys()})

    def _message(self, arguments: tuple[str, ...], *, is_child: bool, **options: Any) -> bytes | None:
        environment = dict(options.get("env") or os.environ)
        if os.getpid() != self._owner or os.geteuid() != os.getuid() or not options.keys() <= {"cwd", "env", "stdin"}:
            return None
        if options.get("stdin") not in (None, subprocess.DEVNULL) or _read_at_start(environment) != self._started_with:
            return None
        old = os.umask(0o077)
        os.umask(old)
        directory = os.path.abspath(options.get("cwd") or ".")
        message = pickle.dumps(tuple(_Request(tuple(map(os.fspath, arguments)), directory, environment, old, is_child)))
        return message if len(message) < _MESSAGE_BYTES else None

    def _server(self) -> socket.socket:
        if self._requests is None:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.forked_commands", str(theirs.fileno()), forked_daemons.ROOM], cwd=_ROOT,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                )  # fmt: skip
            atexit.register(self._end, self._requests, process)
        return self._requests

    def _end(self, requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
        requests.close()
        if os.getpid() == self._owner:
            process.wait()


class _Forked(subprocess.Popen[str]):
    """A command that the process that forks has made a child of this one."""

    def __init__(self, server: socket.socket, message: bytes, arguments: tuple[str, ...], **streams: Any) -> None:
        self._asked = server, message
        super().__init__(["agentfsd", *arguments], text=True, **streams)

    def _execute_child(self, _args: Any, *rest: Any) -> None:
        """What subprocess.Popen calls to fork and execute, with the ends of its pipes: -1 for a stream of this process."""
        pipes = rest[9:15]
        ends = [end if end != -1 else number for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        server, message = self._asked
        reply, theirs = socket.socketpair()
        with reply:
            with theirs:
                socket.send_fds(server, [message], [*ends, theirs.fileno()])
            self.pid = int(reply.recv(100))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _read_at_start(environment: Any) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


def _text(said: bytearray) -> str:
    return said.decode().replace("\r\n", "\n")


def _read_all(fds: list[int], timeout_s: float, arguments: tuple[str, ...]) -> list[bytearray]:
    """Read two pipes and the reply to their ends."""
    deadline = time.monotonic() + timeout_s
    said = [bytearray() for _ in fds]
    with selectors.DefaultSelector() as selector:
        for number, fd in enumerate(fds):
            selector.register(fd, selectors.EVENT_READ, number)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                with contextlib.suppress(ProcessLookupError, ValueError):
                    os.kill(int(said[2].partition(b"\n")[0]), 9)
                raise subprocess.TimeoutExpired(["agentfsd", *arguments], timeout_s, bytes(said[0]), bytes(said[1]))
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                said[key.data] += data
                if not data:
                    selector.unregister(key.fd)
    for fd in fds[:2]:
        os.close(fd)
    return said


def _serve(requests: socket.socket) -> tuple[_Request, list[int]] | None:
    """Fork for each request: return it in the child, with the descriptors that came along; None when nobody asks any more."""
    running: dict[int, tuple[int, socket.socket]] = {}  # a descriptor of the child, which is ready when it ends
    waiting = select.poll()
    waiting.register(requests, select.POLLIN)
    while True:
        for fd, _ in waiting.poll():
            if fd != requests.fileno():
                waiting.unregister(fd)
                os.close(fd)
                _end(*running.pop(fd))
                continue
            message, fds, _, _ = socket.recv_fds(requests, 2 * _MESSAGE_BYTES, 4)
            if not message:
                return None
            request = _Request(*pickle.loads(message))
            pid = _fork_beside() if request.is_child else os.fork()
            if pid == 0:
                _forget(requests, running)
                return request, fds
            reply = socket.socket(fileno=fds.pop())
            reply.send(b"%d\n" % pid)
            for passed in fds:
                os.close(passed)
            if request.is_child:
                reply.close()
                continue
            ended = os.pidfd_open(pid)
            running[ended] = pid, reply
            waiting.register(ended, select.POLLIN)


def _fork_beside() -> int:
    """Do what fork() does, but make the new process a child of this one's parent; this process has one thread."""
    pid: int = ctypes.PyDLL(None, use_errno=True).syscall(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    elif pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return pid


def _end(pid: int, reply: socket.socket) -> None:
    _, status = os.waitpid(pid, 0)
    with reply, contextlib.suppress(OSError):  # nobody waits any more
        reply.send(b"%d" % os.waitstatus_to_exitcode(status))


def _forget(requests: socket.socket, running: dict[int, tuple[int, socket.socket]]) -> None:
    requests.close()
    for ended, (_, reply) in running.items():
        os.close(ended)
        reply.close()


def _become(request: _Request, fds: list[int]) -> None:
    """Do what `python -m agentfsd.cli.main` does."""
    for target, fd in enumerate(fds[:3]):
        os.dup2(fd, target)
    for fd in fds:
        os.close(fd)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    os.umask(request.umask)
    time.tzset()
    sys.argv[1:] = request.arguments
    sys.path[0] = request.directory
    forked_daemons.use()
    forked_programs.run(_MODULE)


def _main() -> None:
    import gc

    from agentfsd.cli.main import main

    list(main.commands.values())  # each is imported when it is first asked for
    forked_daemons.load()
    del sys.modules[_MODULE]  # each command runs it as its main program
    gc.collect()
    gc.freeze()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        _become(*asked)


if __name__ == "__main__":
    _main()
