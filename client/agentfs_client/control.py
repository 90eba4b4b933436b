"""Send requests to a running daemon through the control file of its mount or its Unix socket. Synchronous and typed."""

import errno
import os
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypeVar

from agentfs_client import question, wire
from agentfs_client.daemon_operations import DaemonOperations
from agentfs_client.errors import AgentFSError, DaemonGoneError
from agentfs_client.question import HELLO, OnProgress, Question, delivery
from agentfs_client.repeatable import REPEATABLE
from agentfs_client.transport import CONTROL_FILE, RESTARTING_S, RETRY_S, FileTransport, SocketTransport, Transport

_R = TypeVar("_R", bound=wire.Reply)
_T = TypeVar("_T")


class EventStream:
    """An iterator over events in branches from its creation on. It takes over its conversation with the daemon.

    It ends when the one branch that it watches is deleted. close(), or leaving the context, ends the conversation.

    Raises:
        DaemonGoneError: the daemon ended.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __iter__(self) -> "EventStream":
        return self

    def __next__(self) -> wire.Event:
        try:
            with delivery():
                reply = wire.decode_reply(self._transport.further())
            event = question.event(reply)
        except BaseException:
            self.close()
            raise
        if event is None:
            self.close()
            raise StopIteration
        return event

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class ControlClient(DaemonOperations):
    """A conversation with a daemon; a context manager.

    The daemon answers threads that share a conversation one after the other. The conversation belongs to the process that began
    it; a forked child begins its own.

    Raises:
        AgentFSError: every method raises it if the daemon refuses the request.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._turn, self._pid = threading.Lock(), os.getpid()
        self._usable = True
        self._obeyed: Question[Any] | None = None
        try:
            self.hello = self._answer(HELLO)
        except BaseException:
            self._transport.close()
            raise

    @classmethod
    def connect(cls, socket_path: str, timeout_s: float | None = None) -> "ControlClient":
        """Connect to the daemon's socket.

        Args:
            socket_path: path of the socket.
            timeout_s: how long to wait for each reply, in seconds; None waits without limit.
        """
        return cls(SocketTransport(socket_path, timeout_s))

    @classmethod
    def open_mount(cls, mountpoint: str) -> "ControlClient":
        """Use the control file of a mount."""
        return cls(FileTransport(os.path.join(mountpoint, CONTROL_FILE)))

    def close(self) -> None:
        self._usable = False
        self._transport.close()

    def hang_up(self) -> None:
        """End the conversation from another thread. Works over the socket only.

        The present request fails with DaemonGoneError, and the daemon abandons it if it is a long one. close() is still
        necessary.
        """
        self._usable = False
        self._transport.hang_up()

    def __enter__(self) -> "ControlClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def is_usable(self) -> bool:
        """False after close, in a forked child, or if the daemon is known to be gone."""
        return self._usable and self._is_ours() and not self._transport.has_ended()

    def _is_ours(self) -> bool:
        """Whether this process began the conversation. If two processes shared it, either could receive the other's reply."""
        return self._pid == os.getpid()

    def ask(
        self, request: wire.Request, expected: type[_R], descriptors: Sequence[int] = (), on_progress: OnProgress | None = None
    ) -> _R:
        """Send one request and return its reply. Raises AgentFSError for a reply of another type."""
        return self._answer(question.ask(request, expected, on_progress=on_progress, descriptors=descriptors))

    def _answer(self, asked: Question[_T]) -> _T:
        """Send a request and return its answer.

        If the caller stops waiting (a timeout, Ctrl-C), this ends the conversation. Otherwise the next request would receive the
        late reply, and the daemon would not abandon a long request.
        """
        body = asked.encode(carries_descriptors=self._transport.carries_descriptors)
        if not self._is_ours():  # check before taking the lock: another thread may have held it at the fork
            raise question.ended()
        with self._turn:
            if not self._usable:
                raise question.ended()
            if self._transport.has_ended():
                self._go_on()
            try:
                reply = self._exchange(body, asked)
            except DaemonGoneError as exc:
                reply = self._exchange_again(body, asked, exc)
            except BaseException:
                self.close()
                raise
            if isinstance(asked.request, wire.RulesObey) and isinstance(reply, asked.expected):
                self._obeyed = asked
            came = self._transport.take_descriptors()
        return asked.answer(reply, came)

    def _exchange(self, body: bytes, asked: Question[Any]) -> wire.Reply:
        with delivery():
            reply = wire.decode_reply(self._transport.exchange(body, asked.descriptors))
        while isinstance(reply, wire.Progress):
            asked.tell(reply)
            with delivery():
                reply = wire.decode_reply(self._transport.further())
        return reply

    def _exchange_again(self, body: bytes, asked: Question[Any], gone: DaemonGoneError) -> wire.Reply:
        """Ask the next daemon, and the one after it if that is killed as well. Raise *gone* if this is not to be asked twice."""
        deadline = time.monotonic() + RESTARTING_S
        try:
            while type(asked.request) in REPEATABLE and _was_killed(gone) and time.monotonic() < deadline and self._go_on():
                try:
                    return self._exchange(body, asked)
                except DaemonGoneError as exc:
                    gone = exc
            raise gone
        except BaseException:
            self.close()
            raise

    def _go_on(self) -> bool:
        """Go on with the daemon that was started in the place of one that was killed. Return False if there is none.

        The rules that this conversation obeys hold for the new one, too.
        """
        before, deadline = self._transport, time.monotonic() + RESTARTING_S
        if not isinstance(before, SocketTransport) or not self._usable:  # after hang_up() nobody waits for an answer
            return False
        is_killed = True
        while is_killed and time.monotonic() < deadline:
            try:
                self._transport = SocketTransport(before.path, before.timeout_s)
                for asked in (HELLO, self._obeyed):
                    if asked is not None:
                        asked.answer(self._exchange(asked.encode(carries_descriptors=True), asked))
            except (AgentFSError, OSError) as exc:
                is_killed = isinstance(exc, DaemonGoneError) and _was_killed(exc) and self._transport is not before
                if self._transport is not before:
                    self._transport.close()
                self._transport = before
                time.sleep(RETRY_S * is_killed)  # one that hangs up for another reason is not called all the time
            else:
                before.close()
                return True
        return False

    def events(self, branch: str | None = None) -> EventStream:
        """Return the events of a branch from now on. Works over the socket only.

        The stream takes over this conversation, which accepts no other request afterwards. The ``timeout_s`` of connect() limits
        the time without events.

        Args:
            branch: the branch to watch. None means every branch, or for a bound process its own.
        """
        self.ask(wire.Events(branch=branch), wire.EventsOk)
        self._usable = False
        return EventStream(self._transport)


def _was_killed(gone: DaemonGoneError) -> bool:
    """Return whether a daemon that gave no answer may have been killed; one that lets us wait in vain hangs or was stopped."""
    return gone.errno != errno.ETIMEDOUT
