"""Carry messages to a daemon and back, through the control file of its mount or its Unix socket. This module knows no message."""

import array
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from agentfs_client import registry, wire
from agentfs_client.address import unix_address
from agentfs_client.errors import DaemonGoneError, ProtocolError, gone

RESTARTING_S = 20.0  # how long to wait for a daemon that is being started in the place of a killed one
RETRY_S = 0.02
CONTROL_FILE = ".agentfs/control"
_READ_BYTES = 1 << 17
_ROOM = socket.CMSG_SPACE(4 * 4)  # space for four descriptors; the kernel closes those that do not fit


class Transport(Protocol):
    @property
    def carries_descriptors(self) -> bool:
        """Whether a request and a reply can carry descriptors."""
        ...

    def exchange(self, body: bytes, descriptors: Sequence[int] = ()) -> bytes:
        """Send one request with its descriptors, and return its first reply."""
        ...

    def further(self) -> bytes:
        """Return the next reply to the same request, if the request has several."""
        ...

    def take_descriptors(self) -> list[int]:
        """Return the close-on-exec descriptors that came with the last reply. The caller closes them; the transport closes those
        that nobody takes.
        """
        ...

    def has_ended(self) -> bool:
        """Whether the other end is known to be gone. Sends nothing."""
        ...

    def hang_up(self) -> None:
        """End the exchange of another thread, if the transport can do that."""
        ...

    def close(self) -> None: ...


class FileTransport:
    """The control file: one write per request, then reads until the reply ends."""

    carries_descriptors = False

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as exc:
            raise DaemonGoneError(
                exc.errno or errno.EIO, "no-mount", f"{path} cannot be opened: {os.strerror(exc.errno or errno.EIO)}",
                "is that directory an agentfsd mount, and yours?",
            ) from exc  # fmt: skip

    def exchange(self, body: bytes, descriptors: Sequence[int] = ()) -> bytes:
        os.write(self._fd, body)
        parts = []
        while part := os.read(self._fd, _READ_BYTES):
            parts.append(part)
        return b"".join(parts)

    def further(self) -> bytes:
        raise no_further_reply()

    def take_descriptors(self) -> list[int]:
        return []

    def has_ended(self) -> bool:
        return self._fd < 0

    def hang_up(self) -> None:
        """Do nothing: only the kernel's answer ends a read that waits for it."""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SocketTransport:
    """The daemon's Unix socket. Each message follows its length; descriptors arrive with the first bytes of a message."""

    carries_descriptors = True

    def __init__(self, path: str, timeout_s: float | None) -> None:
        self.path, self.timeout_s = path, timeout_s
        self._came: list[int] = []
        deadline = time.monotonic() + RESTARTING_S
        while True:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(timeout_s)
            try:
                with unix_address(path) as address:
                    self._socket.connect(address)
            except OSError as exc:
                self._socket.close()
                if time.monotonic() > deadline or not is_restarting(path, exc):
                    raise unanswered(path, exc) from exc
                time.sleep(RETRY_S)
            else:
                return

    def exchange(self, body: bytes, descriptors: Sequence[int] = ()) -> bytes:
        message = wire.frame(body)
        sent = socket.send_fds(self._socket, [message], list(descriptors)) if descriptors else 0
        self._socket.sendall(message[sent:])
        return self.further()

    def further(self) -> bytes:
        close_all(self._came)
        header = self._receive(wire.HEADER_BYTES, lambda size: receive(self._socket, size, self._came))
        return self._receive(reply_length(header), self._socket.recv)

    def take_descriptors(self) -> list[int]:
        came, self._came = self._came, []
        return came

    def has_ended(self) -> bool:
        return hung_up(self._socket)

    def hang_up(self) -> None:
        with suppress(OSError):  # already closed
            self._socket.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _receive(size: int, some: Callable[[int], bytes]) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = some(min(size - len(parts), _READ_BYTES))
            if not part:
                raise connection_closed()
            parts += part
        return bytes(parts)

    def close(self) -> None:
        self._socket.close()
        close_all(self._came)


def receive(connection: socket.socket, size: int, descriptors: list[int]) -> bytes:
    """Receive at most *size* bytes. Append descriptors that come with them to *descriptors*; they are close-on-exec from the
    start.
    """
    part, ancillary, _, _ = connection.recvmsg(size, _ROOM, socket.MSG_CMSG_CLOEXEC)
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
            descriptors.extend(numbers)
    return part


def close_all(descriptors: list[int]) -> None:
    """Close the descriptors and empty the list."""
    while descriptors:
        os.close(descriptors.pop())


def hung_up(connection: socket.socket) -> bool:
    """Tell whether either end of the connection is closed. A reply that another thread waits for does not count as closed."""
    if connection.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def is_restarting(path: str, exc: OSError) -> bool:
    """Tell whether nobody listens at a daemon's socket because the daemon was killed, and another is being started."""
    if exc.errno not in (errno.ECONNREFUSED, errno.ENOENT):
        return False
    record = registry.read_record(os.path.join(os.path.dirname(path), "daemon.json"))
    return record is not None and record.alive() and (not record.serves() or exc.errno == errno.ECONNREFUSED)


def unanswered(path: str, exc: OSError) -> DaemonGoneError:
    """Return the exception for a socket where nobody listens."""
    number, why = exc.errno or errno.EIO, exc.strerror or exc
    return DaemonGoneError(number, "no-daemon", f"nobody answers at {path}: {why}", "`agentfsd mount` starts a daemon")


def connection_closed() -> DaemonGoneError:
    return gone("the daemon closed the connection", errno.EPIPE)


def no_further_reply() -> ProtocolError:
    return ProtocolError(errno.EPROTO, "bad-reply", "the daemon promised more than one reply on the control file")


def reply_length(header: bytes) -> int:
    """Return the length in bytes of the reply that follows *header*."""
    length = wire.frame_length(header)
    if length > wire.MAX_REPLY_BYTES:
        raise ProtocolError(errno.EPROTO, "bad-frame", f"the daemon announced a reply of {length} bytes")
    return length
