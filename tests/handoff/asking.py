"""Asks for real descriptors as a program does, without the preloaded library and without the client library's help."""

import array
import fcntl
import itertools
import json
import os
import secrets
import socket
import struct
from pathlib import Path
from typing import Any

from agentfs_client.address import unix_address

HELLO, FORWARD, OBJECT = struct.Struct("=8sIIQ"), struct.Struct("=QQIIQQ"), struct.Struct("=QQ")
IOC_FORWARD = 3 << 30 | FORWARD.size << 16 | 0xAF << 8 | 2
IOC_OBJECT = 2 << 30 | OBJECT.size << 16 | 0xAF << 8 | 3


_kept: list[int | socket.socket] = []


def keep(fd: int) -> int:
    """To be closed by let_go(), if it is still open then."""
    _kept.append(fd)
    return fd


def drop(fd: int) -> None:
    """Closes it now."""
    _kept.remove(fd)
    os.close(fd)


def let_go() -> None:
    """Closes whatever the last test has asked for."""
    while _kept:
        held = _kept.pop()
        if isinstance(held, socket.socket):
            held.close()
            continue
        os.close(held)


class Shim:
    """What the preloaded library does: one conversation."""

    def __init__(self, path: str | Path, version: int = 1) -> None:
        self.version, self.cookie, self._tickets = version, secrets.randbits(64) | 1, itertools.count(1)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _kept.append(self.socket)
        with unix_address(str(path)) as address:
            self.socket.connect(address)
        self.socket.send(HELLO.pack(b"AGENTFS\1", version, 0, self.cookie))

    def forward(self, fd: int, flags: int | None = None) -> int:
        """The real descriptor for one of the mount; OSError."""
        ticket = next(self._tickets)
        flags = fcntl.fcntl(fd, fcntl.F_GETFL) if flags is None else flags
        asked = bytearray(FORWARD.pack(self.cookie, ticket, flags, self.version, 0, 0))
        fcntl.ioctl(fd, IOC_FORWARD, asked, True)
        said, fds, _, _ = socket.recv_fds(self.socket, 64, 4, socket.MSG_DONTWAIT)
        assert len(fds) == 1
        found = os.fstat(fds[0])
        assert OBJECT.unpack(asked[-16:]) == OBJECT.unpack(said[8:]) == (found.st_dev, found.st_ino)
        assert said[:8] == struct.pack("=Q", ticket)
        return keep(fds[0])


def object_of(fd: int) -> tuple[int, int]:
    """(st_dev, st_ino) of the object behind a file of the mount."""
    told = bytearray(OBJECT.size)
    fcntl.ioctl(fd, IOC_OBJECT, told, True)
    dev, ino = OBJECT.unpack(told)
    return dev, ino


def ask(path: str | Path, request: dict[str, Any], *descriptors: int) -> tuple[dict[str, Any], list[int]]:
    """One request over the control socket, in JSON; the reply, and what came with it."""
    with socket.socket(socket.AF_UNIX) as daemon, unix_address(str(path)) as address:
        daemon.connect(address)
        body = json.dumps(request).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        daemon.sendmsg([struct.pack("<I", len(body)) + body], rights)
        header, fds, _, _ = socket.recv_fds(daemon, 4, 4)
        size, reply = struct.unpack("<I", header)[0], b""
        while len(reply) < size:
            reply += daemon.recv(size - len(reply))
        return json.loads(reply), [keep(fd) for fd in fds]
