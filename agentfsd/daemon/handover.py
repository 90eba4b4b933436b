"""Replaces a daemon while it serves, as for an update: the next daemon starts beside it, and takes over when it is ready.

The one that is replaced stops between two requests and ends as if it had been killed: the next one goes on from there
(fuse/resumption.py). So programs wait for as long as it takes to open the state, and not for an interpreter to start.
"""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

from agentfsd.domain_errors import Refusal
from agentfsd.fuse.keeper import CONFIG
from agentfsd.linux import process_syscalls
from agentfsd.metadata import inspection
from agentfsd.metadata.schema import SCHEMA_VERSION
from agentfsd.process import daemon_process
from agentfsd.process.kept_descriptors import KeptDescriptors, hand_over, receive, send
from agentfsd.state.state_directory import StateDirectory

KEEPER = "keeper"  # the kept descriptor of the socket to the keeper
READY_S = 60.0


class Successor:
    """The next daemon, as the one that is replaced sees it. Its process has imported all, and has opened nothing yet."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self._process, self._connection = process, connection
        self.pid = 0
        self._pidfd = -1

    @classmethod
    def start(cls, kept: KeptDescriptors, keeper_pid: int, log: str) -> "Successor":
        """Start it, and wait until it is ready. Call it in a thread.

        Args:
            kept: What it will get.
            keeper_pid: The process id of the keeper; 0 for none.
            log: The file for its standard error; "" for ours.

        Raises:
            Refusal: It cannot serve: the present daemon goes on.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        config_fd = os.dup(kept.all()[CONFIG])
        os.lseek(config_fd, 0, os.SEEK_SET)
        command = [*daemon_process.taking_over(config_fd, theirs.fileno(), keeper_pid), "--waits"]
        errors = daemon_process.open_log(log) if log else 2
        path = os.pathsep.join(each for each in sys.path if each)
        try:
            process = subprocess.Popen(
                command, pass_fds=[config_fd, theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=errors, env={**os.environ, "PYTHONPATH": path}, start_new_session=bool(log),
            )  # fmt: skip
        finally:
            theirs.close()
            os.close(config_fd)
            if log:
                os.close(errors)
        made = cls(process, ours)
        made._await_ready()
        return made

    def _await_ready(self) -> None:
        self._connection.settimeout(READY_S)
        try:
            message, _ = receive(self._connection)
        except OSError as exc:
            message = {"error": f"it was not ready within {READY_S:.0f} s" if isinstance(exc, TimeoutError) else exc.strerror}
        if message is None or message.get("error"):
            self.give_up()
            why = message["error"] if message is not None else "it ended"
            raise Refusal(
                errno.EIO, "not-replaced", f"the next daemon cannot take over: {why}", "this one goes on; the log says more"
            )
        self._process.wait()
        self.pid = message["pid"]
        try:
            self._pidfd = process_syscalls.pidfd_open(self.pid, thread=False)
        except OSError as exc:
            self.give_up()
            raise Refusal(
                errno.EIO, "not-replaced", f"the next daemon has ended: {exc.strerror}", "this one goes on; the log says more"
            ) from exc

    def give_up(self) -> None:
        """End it."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)

    def take_over(self, kept: KeptDescriptors, keeper: socket.socket | None, last: Callable[[], object]) -> NoReturn:
        """Hand everything over, and end this process at once.

        Args:
            kept: The descriptors.
            keeper: The socket to the keeper.
            last: Called when all is handed over.

        Raises:
            OSError: The next daemon has ended; this one goes on.
        """
        hand_over(self._connection, kept.all() | ({KEEPER: keeper.fileno()} if keeper is not None else {}))
        last()
        os._exit(0)


def report_ready(connection: socket.socket, state: StateDirectory) -> None:
    """The next daemon's side: say that it is ready, or why it cannot be. OSError.

    It leaves its parent: systemd would kill the child of another process without a SIGTERM before (service_enter_stop).
    """
    if os.fork() > 0:
        os._exit(0)
    version = inspection.schema_version(state.metadata)
    if version > SCHEMA_VERSION:
        why = f"it knows schema {SCHEMA_VERSION} of the state, which has schema {version}"
        send(connection, {"error": why})
        raise OSError(errno.EPROTO, why)
    send(connection, {"ready": True, "pid": os.getpid()})
