"""Asking a running daemon, through the control file of its mount or its Unix socket. Synchronous, typed."""

import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from agentfs_client import question, wire
from agentfs_client.daemon_operations import DaemonOperations
from agentfs_client.question import HELLO, OnProgress, Question, delivery
from agentfs_client.transport import CONTROL_FILE, FileTransport, SocketTransport, Transport

_R = TypeVar("_R", bound=wire.Reply)
_T = TypeVar("_T")


class EventStream:
    """What happens in branches from the moment it was made: an iterator over a conversation that is given over to it.

    It ends when the one branch that it is about has gone; DaemonGoneError when the daemon ends. close(), or leaving it as a
    context manager, ends the conversation.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __iter__(self) -> "EventStream":
        return self

    def __next__(self) -> wire.Event:
        try:
            with delivery():
                reply = wire.decode_reply(self._transport.further())
            found = question.event(reply)
        except BaseException:
            self.close()
            raise
        if found is None:
            self.close()
            raise StopIteration
        return found

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class ControlClient(DaemonOperations):
    """One conversation with a daemon; a context manager. Every method raises AgentFSError for a refusal.

    Threads that share it are answered one after the other. It is the process's that began it: a forked child begins its own.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._turn, self._pid = threading.Lock(), os.getpid()
        self._usable = True
        try:
            self.hello = self._answer(HELLO)
        except BaseException:
            transport.close()
            raise

    @classmethod
    def connect(cls, socket_path: str, timeout_s: float | None = None) -> "ControlClient":
        """Over the daemon's socket."""
        return cls(SocketTransport(socket_path, timeout_s))

    @classmethod
    def open_mount(cls, mountpoint: str) -> "ControlClient":
        """Over the control file of a mount."""
        return cls(FileTransport(os.path.join(mountpoint, CONTROL_FILE)))

    def close(self) -> None:
        self._usable = False
        self._transport.close()

    def hang_up(self) -> None:
        """For another thread: a request under way fails with DaemonGoneError, and the daemon gives up a long one. Over the socket
        only; close() is due all the same."""
        self._usable = False
        self._transport.hang_up()

    def __enter__(self) -> "ControlClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def is_usable(self) -> bool:
        """False once it was closed, or the daemon is known to have gone, and in a forked child."""
        return self._usable and self._is_ours() and not self._transport.has_ended()

    def _is_ours(self) -> bool:
        """Replies of a conversation that two processes share would go to either of them."""
        return self._pid == os.getpid()

    def ask(
        self, request: wire.Request, expected: type[_R], descriptors: Sequence[int] = (), on_progress: OnProgress | None = None
    ) -> _R:
        """One request, and its reply if that is what was expected; AgentFSError for any other."""
        return self._answer(question.ask(request, expected, on_progress=on_progress, descriptors=descriptors))

    def _answer(self, asked: Question[_T]) -> _T:
        """A request left without its reply (a timeout, Ctrl-C) ends the conversation: a later one would be given that reply,
        and a long one is given up by the daemon when we have gone."""
        body = asked.encode(carries_descriptors=self._transport.carries_descriptors)
        if not self._is_ours():  # before the lock, which a thread may have held when this process was forked
            raise question.ended()
        with self._turn:
            if not self._usable:
                raise question.ended()
            try:
                with delivery():
                    reply = wire.decode_reply(self._transport.exchange(body, asked.descriptors))
                while isinstance(reply, wire.Progress):
                    asked.tell(reply)
                    with delivery():
                        reply = wire.decode_reply(self._transport.further())
            except BaseException:
                self.close()
                raise
            came = self._transport.take_descriptors()
        return asked.answer(reply, came)

    def events(self, branch: str | None = None) -> EventStream:
        """What happens in a branch (None: in every one, for a bound process in its own) from now on.

        Over the socket only. This conversation is given over to it: nothing else can be asked any more. A ``timeout_s`` of
        connect() is how long it may be quiet.
        """
        self.ask(wire.Events(branch=branch), wire.EventsOk)
        self._usable = False
        return EventStream(self._transport)
