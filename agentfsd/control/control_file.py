"""The control file of a mount, and the two status files beside it."""

import trio

from agentfs_client import wire
from agentfsd.control import status_text
from agentfsd.control.authorization import check_known
from agentfsd.control.peer import Peer
from agentfsd.control.service import ControlService
from agentfsd.types import Caller


class ControlFile:
    """Opens the control file and renders the status files. See types.ControlOpener."""

    def __init__(self, service: ControlService) -> None:
        self._service = service

    def open(self, caller: Caller) -> "ControlFileHandle":
        """Open the control file for a caller."""
        return ControlFileHandle(self._service, Peer(caller))

    async def status_text(self, caller: Caller) -> bytes:
        """Return the status for people."""
        reply = await self._status(caller)
        return (await trio.to_thread.run_sync(status_text.status, reply)).encode()

    async def status_json(self, caller: Caller) -> bytes:
        """Return the status as JSON."""
        return wire.encode(await self._status(caller), json=True)

    async def _status(self, caller: Caller) -> wire.StatusReply:
        bound_to = self._service.services.bindings.branch_of(caller.pid)
        check_known(caller.pid, bound_to)
        return await self._service.status(bound_to)


class ControlFileHandle:
    """One open of the control file.

    One write is one whole request. Reads return its reply; each continues where the last one ended. A new request replaces the
    reply.
    """

    def __init__(self, service: ControlService, peer: Peer) -> None:
        self._service, self._peer = service, peer
        self._reply = memoryview(b"")

    async def write(self, data: bytes) -> None:
        """Handle one request, and keep its reply for read()."""
        self._reply = memoryview(b"")
        self._reply = memoryview(await self._service.answer(data, self._peer))

    def read(self, size: int) -> bytes:
        """Return the next part of the reply, at most *size* bytes."""
        part, self._reply = bytes(self._reply[:size]), self._reply[size:]
        return part

    def close(self) -> None:
        """End the conversation."""
        self._reply = memoryview(b"")
        self._service.leave(self._peer)
        self._peer.close()
