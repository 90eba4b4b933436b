"""The daemon's Unix socket: the same requests as the control file, framed by their length."""

import array
import errno
import logging
import socket
import struct
from collections.abc import Sequence

import trio

from agentfs_client import wire
from agentfsd.control.peer import Peer
from agentfsd.control.progress_channel import ClientGone, ProgressChannel
from agentfsd.control.service import ControlService, error_reply, too_long
from agentfsd.linux import owners_socket
from agentfsd.types import Caller

log = logging.getLogger(__name__)

_CREDENTIALS = struct.Struct("iII")
_SO_PEERPIDFD = 77  # Linux 6.5
_SO_PEERGROUPS = 59
_GROUPS_BYTES = 1024  # the most that Python asks a socket for
_SEND_TIMEOUT_S = 30
_BACKLOG = 64
_ROOM = socket.CMSG_SPACE(8 * 4)  # for some descriptors; the kernel drops what does not fit


def listen(path: str, former: int | None = None) -> trio.SocketListener:
    """Listen on a socket that only the owner and root can reach: see owners_socket. *former*: that of the daemon before."""
    listener = owners_socket.owners_socket(path, socket.SOCK_STREAM, _BACKLOG, former)
    return trio.SocketListener(trio.socket.from_stdlib_socket(listener))


class ControlSocketServer:
    """Serves the control socket. ``clients`` counts the open connections."""

    def __init__(self, service: ControlService) -> None:
        self._service = service
        self.clients = 0
        self._came = 0

    def recent_clients(self) -> int:
        """Return how many connections are open, or were opened since the last call: a short one is not missed."""
        recent, self._came = max(self.clients, self._came), 0
        return recent

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept connections and answer their requests until cancelled."""
        await trio.serve_listeners(self._converse, [listener])

    async def _converse(self, stream: trio.SocketStream) -> None:
        self.clients += 1
        self._came += 1
        try:
            async with stream:
                peer = _peer(stream)
                try:
                    await self._requests(stream, peer)
                finally:
                    self._service.leave(peer)
                    peer.close()
        except (ClientGone, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            log.debug("a client went away in mid-sentence")
        except Exception:
            log.exception("a conversation failed")
        finally:
            self.clients -= 1

    async def _requests(self, stream: trio.SocketStream, peer: Peer) -> None:
        while header := await _receive(stream, wire.HEADER_BYTES, peer):
            length = wire.frame_length(header)
            if length > wire.MAX_REQUEST_BYTES:
                await _send(stream, wire.encode(error_reply(too_long(length))))
                return  # the bytes that follow cannot be split into messages
            body = await _receive(stream, length, peer)
            if body is None:
                return
            try:
                reply = await self._service.answer(body, peer, ProgressChannel(stream, wire.is_json(body)))
                await _send(stream, reply, peer.outgoing)
            finally:
                peer.drop_descriptors()


def _peer(stream: trio.SocketStream) -> Peer:
    """Return the process that connected. Another process may hold the descriptor by now."""
    credentials = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(Caller(*_CREDENTIALS.unpack(credentials)), _pidfd(stream), _groups(stream))


def _pidfd(stream: trio.SocketStream) -> int | None:
    """Return a pidfd of the process that connected: -1 if it has ended, None if the kernel cannot give one."""
    try:
        return stream.socket.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as exc:
        return None if exc.errno in (errno.ENOPROTOOPT, errno.ENODATA) else -1


def _groups(stream: trio.SocketStream) -> list[int] | None:
    """Return the supplementary groups of the process that connected; None if they are too many."""
    numbers = array.array("I")
    try:
        numbers.frombytes(stream.socket.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES))
    except OSError:
        return None
    return numbers.tolist()


async def _receive(stream: trio.SocketStream, size: int, peer: Peer) -> bytes | None:
    """Receive exactly *size* bytes, and keep the descriptors that come with them; None if the client has closed its end."""
    parts = bytearray()
    while len(parts) < size:
        part, ancillary, _, _ = await stream.socket.recvmsg(min(size - len(parts), 1 << 16), _ROOM, socket.MSG_CMSG_CLOEXEC)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                peer.descriptors.extend(numbers)
        if not part:
            return None
        parts += part
    return bytes(parts)


async def _send(stream: trio.SocketStream, body: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a message; its descriptors go with the first bytes."""
    message, sent = wire.frame(body), 0
    with trio.fail_after(_SEND_TIMEOUT_S):
        if descriptors:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            sent = await stream.socket.sendmsg([message], rights)
        await stream.send_all(message[sent:])
