"""A client that asks for files, as the user who it is."""

import os
from typing import TypeVar

import trio

from agentfs_client import wire
from agentfsd.binding.table import Bindings
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.control.peer import Peer
from agentfsd.control.service import ControlService
from agentfsd.types import Caller
from tests.control.serving import services_for
from tests.overlays import Opened

USER, GROUP, OTHER_GROUP = 61001, 62001, 62002

R = TypeVar("R", bound=wire.Reply)


class Conversation:
    """One peer of a service that belongs to *owner*."""

    def __init__(self, opened: Opened, uid: int, gid: int, groups: tuple[int, ...] = (), **info: object) -> None:
        self.bindings = Bindings()
        told = DaemonInfo("0", 0, "/lower", "/mnt", str(opened.base), "native", "hostfs", 0, uid, shown_at=("/mnt",), **info)  # type: ignore[arg-type]
        self.service = ControlService(services_for(opened.overlay, self.bindings, told))
        self.peer = Peer(Caller(os.getpid(), uid, gid), groups=groups)

    def say(self, request: wire.Request) -> wire.Reply:
        return wire.decode_reply(trio.run(self.service.answer, wire.encode(request), self.peer))

    def ask(self, request: wire.Request, expected: type[R]) -> R:
        reply = self.say(request)
        assert isinstance(reply, expected), reply
        return reply

    def write(self, path: str, content: bytes, mode: str = "overwrite", branch: str | None = None) -> wire.FileInfo:
        create = wire.FileCreate(path=path, mode=mode, branch=branch)  # type: ignore[arg-type]
        handle = self.ask(create, wire.FileOpened).handle
        return self.ask(wire.FileCommit(handle=handle, data=content), wire.FileReply).file

    def read(self, path: str) -> bytes:
        return self.ask(wire.FileOpen(path=path, read_bytes=1000), wire.FileOpened).data

    def names(self, path: str = "") -> list[str]:
        return [found.path for found in self.ask(wire.FileList(path=path), wire.FilesReply).files]

    def refused(self, request: wire.Request) -> str:
        reply = self.say(request)
        assert isinstance(reply, wire.Error), reply
        assert reply.message
        assert "\n" not in reply.message
        return reply.code

    def close(self) -> None:
        self.peer.close()
        self.bindings.close()
