"""The kernel's side of a native session, played over a socket: one request, at most one reply, as fuse.h has them."""

import errno
import os
import socket
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import trio

from agentfsd.binding.table import Bindings
from agentfsd.control.control_file import ControlFile
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.control.service import ControlService
from agentfsd.fuse import resumption
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.connections import Connections
from agentfsd.fuse.ledger import Ledger
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.handshake import IoMode
from agentfsd.fuse.native.native_connection import REPEATED
from agentfsd.fuse.native.native_session import NativeSession
from agentfsd.fuse.native.reactor import Reactor
from agentfsd.fuse.notifier import Notifier
from tests.control.serving import services_for
from tests.overlays import Opened

ALL_FLAGS = (1 << 40) - 1
ROOT = 1
_BUFFER_BYTES = 4 << 20
_SO_SNDBUFFORCE = 32


class Answer(NamedTuple):
    """``code`` is an errno, 0 for success."""

    code: int
    body: bytes


class Entry(NamedTuple):
    """What LOOKUP and its kind answer, as far as tests ask."""

    node: int
    ino: int
    size: int
    mode: int
    nlink: int


def unpack_entry(body: bytes) -> Entry:
    fields = fuse.ENTRY_OUT.unpack_from(body)
    return Entry(fields[0], fields[6], fields[7], fields[15], fields[16])


class AtOnce(Reactor):
    """Runs what has to wait until it is done: the kernel of a test has one request under way at a time."""

    def start(self, work: Callable[..., Any], *arguments: Any) -> None:
        trio.run(work, *arguments)


class FakeKernel:
    """A session over the overlay in *base*, and the kernel that it believes to talk to."""

    def __init__(self, base: Path, io: IoMode = "cached") -> None:
        self._base, self._io = base, io
        self._dead: list[object] = []  # of daemons that were killed: no destructor of theirs may do anything
        self._dies = (0, "")
        self.opened = Opened(base)
        self.bindings = Bindings()
        self.connection = self._connect(None)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.socket, theirs):
            try:
                end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
            except PermissionError:
                pytest.skip("needs CAP_NET_ADMIN: messages of a mebibyte")
        self.reactor = AtOnce()
        self.connections.locks.start = self.reactor.start_aside
        self.session = NativeSession(self.connection, self.reactor, theirs.detach(), io)
        self._unique = 2

    def _connect(self, ledger: Ledger | None) -> Connection:
        base = self._base
        info = DaemonInfo("0", os.getpid(), str(base / "lower"), "/mnt", str(base), "native", "hostfs", 0, os.geteuid())
        control = ControlFile(ControlService(services_for(self.opened.overlay, self.bindings, info)))
        self.connections = Connections(self.opened.overlay, self.bindings, control, None)
        tree_id = "" if self._io == "cached" else self.opened.overlay.default_id
        return Connection.make(self.connections, Notifier(), None, tree_id, ledger)

    def die(self) -> None:
        """SIGKILL for the daemon; the next one goes on with the connection."""
        nodes = self.connection.nodes
        nodes.records.ledger.set_facts(msgspec.msgpack.encode(self.session.facts))
        for file in nodes.files():
            file.inode.doomed = 0
            file.inode.release_files()
        self._dead += [self.opened.overlay, self.connections, self.connection, self.session, nodes.former, list(nodes.files())]
        self.opened.store.db.abandon(str(self._base / "meta.db"))
        self.opened.lower.close()
        self.opened.backstore.close()
        self.opened.open()
        self.connection = self._connect(Ledger(os.dup(nodes.records.ledger.fd)))
        nodes.records.ledger.close()
        self.connections.locks.start = self.reactor.start_aside
        self.session = NativeSession(self.connection, self.reactor, self.session.fd, self._io)
        resumption.take_locks({"": self.connection}, resumption.resume(self.session))

    def dies_at(self, request: int, when: str) -> None:
        """Kill the daemon at a request from now on (1: the next), *before* or *after* it is carried out; it gets no answer."""
        self._dies = (request, when)

    def close(self) -> None:
        if hasattr(self.session, "requests"):
            self.session.end()
        elif not self.session.ended:
            self.session.abandon()
        self.socket.close()
        self.bindings.close()
        self.opened.close()
        os.close(self.reactor._waker)
        self.reactor._epoll.close()

    # -- the handshake

    def offer(self, major: int = 7, minor: int = 45, flags: int = ALL_FLAGS, cut: int = 64) -> tuple[Any, ...] | Answer:
        """The fields of the INIT reply, or the refusal; Unsupported is raised after the refusal was sent."""
        body = struct.pack("=IIIII44x", major, minor, 65536, flags & 0xFFFFFFFF, flags >> 32)[:cut]
        self.socket.send(fuse.IN_HEADER.pack(fuse.IN_HEADER.size + len(body), fuse.INIT, 1, 0, 0, 0, 0, 0, 0) + body)
        self.session.shake_hands()
        answer = self.reply_to(1)
        assert answer is not None and answer.code == 0
        return fuse.INIT_OUT.unpack(answer.body)

    def begin(self) -> "FakeKernel":
        self.offer()
        return self

    # -- requests

    def raw(self, message: bytes) -> None:
        self.socket.send(message)
        self.session.step()

    def replies(self) -> list[bytes]:
        """All that was sent to the kernel since the last request."""
        found = []
        with suppress(BlockingIOError):
            while message := self.socket.recv(_BUFFER_BYTES, socket.MSG_DONTWAIT):
                found.append(message)
        return found

    def reply_to(self, unique: int) -> Answer | None:
        """The one reply to a request, None when there was none."""
        messages = self.replies()
        if not messages:
            return None
        assert len(messages) == 1, messages
        length, code, to = fuse.OUT_HEADER.unpack_from(messages[0])
        assert to == unique
        assert length == len(messages[0])
        assert -4095 <= code <= 0
        assert code == 0 or length == fuse.OUT_HEADER.size
        return Answer(-code, messages[0][fuse.OUT_HEADER.size :])

    def message(
        self, opcode: int, node: int, body: bytes = b"", uid: int | None = None, pid: int | None = None, off_by: int = 0
    ) -> tuple[int, bytes]:
        """(unique, the request's bytes)."""
        self._unique += 2
        who = (os.geteuid() if uid is None else uid, os.getegid(), os.getpid() if pid is None else pid)
        length = max(0, fuse.IN_HEADER.size + len(body) + off_by)
        return self._unique, fuse.IN_HEADER.pack(length, opcode, self._unique, node, *who, 0, 0) + body

    def ask(self, opcode: int, node: int, body: bytes = b"") -> Answer:
        unique, message = self.message(opcode, node, body)
        left, when = self._dies
        self._dies = (max(0, left - 1), when)
        if left == 1:
            if when == "after":
                self.raw(message)
                self.replies()
            self.die()
            unique |= REPEATED
            message = message[:8] + struct.pack("=Q", unique) + message[16:]
        self.raw(message)
        answer = self.reply_to(unique)
        assert answer is not None
        return answer

    def get(self, opcode: int, node: int, body: bytes = b"") -> bytes:
        """The answer's body; OSError as the kernel would give it to the caller."""
        code, found = self.ask(opcode, node, body)
        if code:
            raise OSError(code, os.strerror(code))
        return found

    # -- what a caller of the system sees

    @property
    def opens(self) -> bool:
        return self.session.io != "zero-message"

    def forget(self, node: int, count: int = 1) -> None:
        self.raw(self.message(fuse.FORGET, node, fuse.FORGET_IN.pack(count))[1])
        assert self.replies() == []

    def lookup(self, parent: int, name: bytes) -> Entry:
        found = unpack_entry(self.get(fuse.LOOKUP, parent, name + b"\0"))
        if not found.node:
            raise FileNotFoundError(errno.ENOENT, "negative")
        return found

    def walk(self, path: str) -> int:
        node = ROOT
        for name in path.encode().split(b"/"):
            if name:
                node = self.lookup(node, name).node
        return node

    def open(self, node: int, flags: int = os.O_RDONLY) -> int:
        """A handle; 0 where files are not opened."""
        if not self.opens:
            return 0
        handle: int = fuse.OPEN_OUT.unpack(self.get(fuse.OPEN, node, fuse.OPEN_IN.pack(flags, 0)))[0]
        return handle

    def release(self, node: int, handle: int) -> None:
        if self.opens:
            self.get(fuse.RELEASE, node, fuse.RELEASE_IN.pack(handle, 0, 0, 0))

    def create(self, parent: int, name: bytes, mode: int = 0o644) -> int:
        """A new file, closed; its node."""
        if not self.opens:
            body = fuse.MKNOD_IN.pack(stat.S_IFREG | mode, 0, 0o022, 0) + name + b"\0"
            return unpack_entry(self.get(fuse.MKNOD, parent, body)).node
        head = fuse.CREATE_IN.pack(os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IFREG | mode, 0o022, 0)
        body = self.get(fuse.CREATE, parent, head + name + b"\0")
        node = unpack_entry(body).node
        self.release(node, fuse.OPEN_OUT.unpack_from(body, fuse.ENTRY_OUT.size)[0])
        return node

    def write(self, node: int, content: bytes, offset: int) -> int:
        handle = self.open(node, os.O_WRONLY)
        try:
            body = fuse.WRITE_IN.pack(handle, offset, len(content), 0, 0, 0, 0) + content
            written: int = fuse.SIZE_OUT.unpack(self.get(fuse.WRITE, node, body))[0]
        finally:
            self.release(node, handle)
        return written

    def read(self, node: int, size: int = 1 << 20, offset: int = 0) -> bytes:
        handle = self.open(node)
        try:
            return self.get(fuse.READ, node, fuse.READ_IN.pack(handle, offset, size, 0, 0, 0, 0))
        finally:
            self.release(node, handle)

    def listing(self, node: int, size: int = 4096) -> dict[bytes, Entry]:
        """All names of a directory by READDIRPLUS, without ``.`` and ``..``."""
        handle, offset = 0, 0
        if self.opens:
            handle = fuse.OPEN_OUT.unpack(self.get(fuse.OPENDIR, node, fuse.OPEN_IN.pack(0, 0)))[0]
        found: dict[bytes, Entry] = {}
        while True:
            body = self.get(fuse.READDIRPLUS, node, fuse.READ_IN.pack(handle, offset, size, 0, 0, 0, 0))
            assert len(body) <= size
            if not body:
                break
            for entry, name, offset in plus_entries(body):  # noqa: B007 - the last one is where to go on
                if name not in (b".", b".."):
                    assert name not in found
                    found[name] = entry
        if self.opens:
            self.get(fuse.RELEASEDIR, node, fuse.RELEASE_IN.pack(handle, 0, 0, 0))
        return found


def plus_entries(body: bytes) -> list[tuple[Entry, bytes, int]]:
    """(entry, name, where to go on) of a READDIRPLUS answer, which must end where an entry ends."""
    found, position = [], 0
    while position < len(body):
        entry = unpack_entry(body[position:])
        position += fuse.ENTRY_OUT.size
        _, following, length, _ = fuse.DIRENT.unpack_from(body, position)
        name = body[position + fuse.DIRENT.size :][:length]
        assert len(name) == length
        position += fuse.DIRENT.size + length + -length % 8
        found.append((entry, name, following))
    assert position == len(body)
    return found
