"""Send requests to a running daemon without blocking the event loop of trio or asyncio. This is the awaited form of
agentfs_client.control; it uses anyio.
"""

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
        """Whether a request and a reply can carry descriptors."""
        ...

    async def exchange(self, body: bytes, descriptors: Sequence[int] = ()) -> bytes:
        """Send one request with its descriptors, and return its first reply."""
        ...

    async def further(self) -> bytes:
        """Return the next reply to the same request, if the request has several. After a cancellation this can be
        called again.
        """
        ...

    def take_descriptors(self) -> list[int]:
        """Return the close-on-exec descriptors that came with the last reply. The caller closes them; the transport closes those
        that nobody takes.
        """
        ...

    def has_ended(self) -> bool:
        """Whether the other end is known to be gone. Sends nothing."""
        ...

    async def aclose(self) -> None:
        """Close the transport, even in a task that is being cancelled."""
        ...


class AsyncFileTransport:
    """The control file, used in worker threads. The daemon finishes a cancelled request, and its reply is dropped.

    Each request opens the file anew. So a thread whose caller was cancelled keeps its own descriptor, which nobody closes while
    it works.
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
    """The daemon's Unix socket. Each message follows its length; descriptors arrive with the first bytes of a message.

    This class receives from the socket directly: anyio's stream would leak descriptors to programs that are started meanwhile.
    """

    carries_descriptors = True

    def __init__(self, stream: anyio.abc.UNIXSocketStream) -> None:
        self._stream = stream
        self._socket: socket.socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)
        self._received = bytearray()  # bytes of the present message only, never of the next one
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
        await anyio.lowlevel.checkpoint()  # let other tasks run even if the reply is already here
        if not self._received:
            close_all(self._came)
        await self._receive(wire.HEADER_BYTES)
        await self._receive(wire.HEADER_BYTES + reply_length(bytes(self._received[: wire.HEADER_BYTES])))
        body = bytes(self._received[wire.HEADER_BYTES :])
        self._received.clear()
        return body

    async def _receive(self, size: int) -> None:
        """Wait until *size* bytes have been received."""
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
        except (anyio.ClosedResourceError, ValueError) as exc:  # ValueError: the socket was closed before the wait began
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
    """An asynchronous iterator over events in branches. It takes over its conversation with the daemon.

    It begins when the context is entered, or with the first iteration. It ends when the one branch that it watches is deleted. A
    wait for the next event may be cancelled, for example by a timeout, and repeated.

    Raises:
        DaemonGoneError: the daemon ended.
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
            event = question.event(reply)
        except Exception:
            await self.aclose()
            raise
        if event is None:
            await self.aclose()
            raise StopAsyncIteration
        return event

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
    """A conversation with a daemon; an asynchronous context manager.

    The daemon answers tasks that share a conversation one after the other; open several conversations for parallel requests.
    Cancelling a request ends the conversation: the daemon abandons the request and accepts no other. Use anyio for time limits
    (``fail_after``). ``on_progress`` is called in the event loop.

    Raises:
        AgentFSError: every method raises it if the daemon refuses the request.
    """

    hello: wire.HelloOk

    def __init__(self, transport: AsyncTransport) -> None:
        """Take a transport. The conversation begins with begin()."""
        self._transport = transport
        self._turn = anyio.Lock()
        self._usable = True

    @classmethod
    async def connect(cls, socket_path: str) -> "AsyncControlClient":
        """Connect to the daemon's socket: ``async with await AsyncControlClient.connect(path) as daemon``."""
        return await cls(await AsyncSocketTransport.connect(socket_path)).begin()

    @classmethod
    async def open_mount(cls, mountpoint: str) -> "AsyncControlClient":
        """Use the control file of a mount. The daemon finishes even requests that are cancelled."""
        return await cls(AsyncFileTransport(os.path.join(mountpoint, CONTROL_FILE))).begin()

    @classmethod
    async def find(cls, mount: str | None = None) -> "AsyncControlClient":
        """Connect to the daemon of *mount*, or of the mount that locate.find() finds."""
        place = await anyio.to_thread.run_sync(locate.find, mount)
        return await (cls.open_mount(place.mountpoint) if place.socket is None else cls.connect(place.socket))

    async def begin(self) -> "AsyncControlClient":
        """Exchange greetings over the transport that the constructor took. connect() and open_mount() have already done this."""
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
        """False after close, or if the daemon is known to be gone."""
        return self._usable and not self._transport.has_ended()

    async def ask(
        self, request: wire.Request, expected: type[_R], descriptors: Sequence[int] = (), on_progress: OnProgress | None = None
    ) -> _R:
        """Send one request and return its reply. Raises AgentFSError for a reply of another type."""
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
        """Return the events of a branch from the moment the stream is entered. Works over the socket only.

        The stream takes over this conversation, which accepts no other request afterwards.

        Args:
            branch: the branch to watch. None means every branch, or for a bound process its own.
        """

        async def begin() -> AsyncTransport:
            await self.ask(wire.Events(branch=branch), wire.EventsOk)
            self._usable = False
            return self._transport

        return AsyncEventStream(begin)
