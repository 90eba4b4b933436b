"""Asking a running daemon without holding up an event loop, trio's or asyncio's: agentfs_client.control, awaited. By anyio."""

import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Protocol, TypeVar

from agentfs_client import locate, question, wire
from agentfs_client.address import unix_address
from agentfs_client.daemon_operations import DaemonOperations
from agentfs_client.extras import needed_for
from agentfs_client.question import HELLO, OnProgress, Question, delivery
from agentfs_client.transport import (
    CONTROL_FILE,
    FileTransport,
    close_all,
    connection_closed,
    hung_up,
    no_further_reply,
    receive,
    reply_length,
    unanswered,
)

with needed_for("awaiting needs", "async"):
    import anyio
    import anyio.abc
    import anyio.lowlevel
    import anyio.to_thread

_READ_BYTES = 1 << 17

_R = TypeVar("_R", bound=wire.Reply)
_T = TypeVar("_T")


class AsyncTransport(Protocol):
    @property
    def carries_descriptors(self) -> bool:
        """Whether descriptors can go with a request and come with a reply."""
        ...

    async def exchange(self, body: bytes, descriptors: Sequence[int] = ()) -> bytes:
        """Sends one request, and descriptors with it, and returns its (first) reply."""
        ...

    async def further(self) -> bytes:
        """The next reply to the same request, where it has several. One that is cancelled can be called again."""
        ...

    def take_descriptors(self) -> list[int]:
        """Those that came with the last reply, close-on-exec; the caller's from now on. What nobody takes is closed."""
        ...

    def has_ended(self) -> bool:
        """Whether the other end is known to have gone. Asks nobody."""
        ...

    async def aclose(self) -> None:
        """Also in a task that is being cancelled."""
        ...


class AsyncFileTransport:
    """The control file, in worker threads. A request that is cancelled is worked on to its end, and its reply dropped.

    Each request opens the file: the descriptor is its thread's own, and not closed under an abandoned one.
    """

    carries_descriptors = False

    def __init__(self, path: str) -> None:
        self._path = path

    async def exchange(self, body: bytes, descriptors: Sequence[int] = ()) -> bytes:
        return await anyio.to_thread.run_sync(self._exchange, body, descriptors, abandon_on_cancel=True)

    def _exchange(self, body: bytes, descriptors: Sequence[int]) -> bytes:
        transport = FileTransport(self._path)
        try:
            return transport.exchange(body, descriptors)
        finally:
            transport.close()

    async def further(self) -> bytes:
        raise no_further_reply()

    def take_descriptors(self) -> list[int]:
        return []

    def has_ended(self) -> bool:
        return False

    async def aclose(self) -> None:
        pass


class AsyncSocketTransport:
    """The daemon's Unix socket: messages behind their length. Descriptors come with the first bytes of a message.

    Receiving is done on the socket itself: anyio's stream would leave descriptors open in programs that are started meanwhile.
    """

    carries_descriptors = True

    def __init__(self, stream: anyio.abc.UNIXSocketStream) -> None:
        self._stream = stream
        self._socket: socket.socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)
        self._received = bytearray()  # of the message that is being received, never of the one behind it
        self._came: list[int] = []

    @classmethod
    async def connect(cls, path: str) -> "AsyncSocketTransport":
        try:
            with unix_address(path) as address:
                return cls(await anyio.connect_unix(address))
        except OSError as exc:
            raise unanswered(path, exc) from exc

    async def exchange(self, body: bytes, descriptors: Sequence[int] = ()) -> bytes:
        message = wire.frame(body)
        try:
            await (self._stream.send_fds(message, list(descriptors)) if descriptors else self._stream.send(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as exc:
            raise connection_closed() from exc
        return await self.further()

    async def further(self) -> bytes:
        await anyio.lowlevel.checkpoint()  # also when it has been received already: others want to run, too
        if not self._received:
            close_all(self._came)
        await self._receive(wire.HEADER_BYTES)
        await self._receive(wire.HEADER_BYTES + reply_length(bytes(self._received[: wire.HEADER_BYTES])))
        body = bytes(self._received[wire.HEADER_BYTES :])
        self._received.clear()
        return body

    async def _receive(self, size: int) -> None:
        """Waits until *size* bytes are there."""
        while len(self._received) < size:
            try:
                part = receive(self._socket, min(size - len(self._received), _READ_BYTES), self._came)
            except BlockingIOError:
                await self._until_readable()
                continue
            except OSError as exc:
                raise connection_closed() from exc
            if not part:
                raise connection_closed()
            self._received += part

    async def _until_readable(self) -> None:
        try:
            await anyio.wait_readable(self._socket)
        except (anyio.ClosedResourceError, ValueError) as exc:  # ValueError: it was closed before we could wait
            raise connection_closed() from exc

    def take_descriptors(self) -> list[int]:
        came, self._came = self._came, []
        return came

    def has_ended(self) -> bool:
        return hung_up(self._socket)

    async def aclose(self) -> None:
        close_all(self._came)
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
        await anyio.aclose_forcefully(self._stream)


class AsyncEventStream:
    """What happens in branches: an asynchronous iterator over a conversation that is given over to it.

    It begins when it is entered as a context manager, or with the first iteration. It ends when the one branch that it is about
    has gone; DaemonGoneError when the daemon ends. A wait for the next event may be cancelled (by a timeout) and begun again.
    """

    def __init__(self, begin: Callable[[], Awaitable[AsyncTransport]]) -> None:
        self._begin = begin
        self._transport: AsyncTransport | None = None

    def __aiter__(self) -> "AsyncEventStream":
        return self

    async def __anext__(self) -> wire.Event:
        transport = await self._begun()
        try:
            with delivery():
                reply = wire.decode_reply(await transport.further())
            found = question.event(reply)
        except Exception:
            await self.aclose()
            raise
        if found is None:
            await self.aclose()
            raise StopAsyncIteration
        return found

    async def _begun(self) -> AsyncTransport:
        if self._transport is None:
            self._transport = await self._begin()
        return self._transport

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()

    async def __aenter__(self) -> "AsyncEventStream":
        await self._begun()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        await self.aclose()


class AsyncControlClient(DaemonOperations):
    """One conversation with a daemon; an asynchronous context manager. Every method raises AgentFSError for a refusal.

    Tasks that share it are answered one after the other; for several requests at once open several. A request that is cancelled
    ends the conversation: the daemon gives it up, and nothing else can be asked. Time limits are anyio's (``fail_after``).
    ``on_progress`` is called in the event loop.
    """

    hello: wire.HelloOk

    def __init__(self, transport: AsyncTransport) -> None:
        """Not yet a conversation: see begin()."""
        self._transport = transport
        self._turn = anyio.Lock()
        self._usable = True

    @classmethod
    async def connect(cls, socket_path: str) -> "AsyncControlClient":
        """Over the daemon's socket: ``async with await AsyncControlClient.connect(path) as daemon``."""
        return await cls(await AsyncSocketTransport.connect(socket_path)).begin()

    @classmethod
    async def open_mount(cls, mountpoint: str) -> "AsyncControlClient":
        """Over the control file of a mount. What is cancelled there is worked on to its end."""
        return await cls(AsyncFileTransport(os.path.join(mountpoint, CONTROL_FILE))).begin()

    @classmethod
    async def find(cls, mount: str | None = None) -> "AsyncControlClient":
        """The daemon of a mount: the one named, or whichever locate.find() finds."""
        found = await anyio.to_thread.run_sync(locate.find, mount)
        return await (cls.open_mount(found.mountpoint) if found.socket is None else cls.connect(found.socket))

    async def begin(self) -> "AsyncControlClient":
        """Says hello, over a transport that was given to the constructor; connect() and open_mount() have done it."""
        try:
            self.hello = await self._answer(HELLO)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        self._usable = False
        await self._transport.aclose()

    async def __aenter__(self) -> "AsyncControlClient":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        await self.aclose()

    @property
    def is_usable(self) -> bool:
        """False once it was closed, or the daemon is known to have gone."""
        return self._usable and not self._transport.has_ended()

    async def ask(
        self, request: wire.Request, expected: type[_R], descriptors: Sequence[int] = (), on_progress: OnProgress | None = None
    ) -> _R:
        """One request, and its reply if that is what was expected; AgentFSError for any other."""
        return await self._answer(question.ask(request, expected, on_progress=on_progress, descriptors=descriptors))

    async def _answer(self, asked: Question[_T]) -> _T:
        body = asked.encode(carries_descriptors=self._transport.carries_descriptors)
        async with self._turn:
            if not self._usable:
                raise question.ended()
            try:
                with delivery():
                    reply = wire.decode_reply(await self._transport.exchange(body, asked.descriptors))
                while isinstance(reply, wire.Progress):
                    asked.tell(reply)
                    with delivery():
                        reply = wire.decode_reply(await self._transport.further())
            except BaseException:
                await self.aclose()
                raise
            came = self._transport.take_descriptors()
        return asked.answer(reply, came)

    def events(self, branch: str | None = None) -> AsyncEventStream:
        """What happens in a branch (None: in every one, for a bound process in its own) from when it is entered.

        Over the socket only. This conversation is given over to it: nothing else can be asked any more.
        """

        async def begin() -> AsyncTransport:
            await self.ask(wire.Events(branch=branch), wire.EventsOk)
            self._usable = False
            return self._transport

        return AsyncEventStream(begin)
