"""The native FUSE session: reads requests from /dev/fuse, calls a decoder, writes the reply. A daemon may have several."""

import errno
import logging
import os
import secrets
import select
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
import trio

from agentfsd.asking.questions import AnswerNeeded
from agentfsd.core.tree import Inode
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.errno_map import errno_of
from agentfsd.fuse.name_reservations import NameReserved
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native import open_requests, repeated_requests
from agentfsd.fuse.native.handshake import MAX_WRITE_BYTES, IoMode, Unsupported, agree, wanted
from agentfsd.fuse.native.native_connection import REPEATED, NativeConnection
from agentfsd.fuse.native.request_table import DECODERS, NAMES
from agentfsd.fuse.notifier import Owed, all_taken
from agentfsd.fuse.reply import NO_REPLY, CallContext
from agentfsd.fuse.request_profiling import look_closer, note_refusal

log = logging.getLogger(__name__)

_BUFFER_BYTES = MAX_WRITE_BYTES + (1 << 16)
_HANDSHAKE_S = 2  # the kernel sends INIT at once
_SILENT = (fuse.FORGET, fuse.BATCH_FORGET, fuse.INTERRUPT)  # the kernel expects no answer to these

# What must not be done twice when the kernel sends it again: the journal notes that it was done.
_ONCE = frozenset(repeated_requests.DECODERS)
_NUMBER_BITS = 20  # of a connection's number, below a request's number


class ConnectionFacts(msgspec.Struct):
    """What the daemon and the kernel have agreed upon, for the next daemon.

    Attributes:
        number: Tells connections apart in the numbers of requests.
        tree_id: The one branch that the connection shows; "" where each caller sees its own.
        io: As NativeSession.io.
        minor: As NativeSession.minor.
        offered: As NativeSession.offered.
        device: The st_dev of the file system; 0 where we do not know it.
    """

    number: int
    tree_id: str
    io: IoMode
    minor: int
    offered: int
    device: int


class TaskStarter(Protocol):
    """The reactor, as a session sees it: starts tasks for requests that wait, and removes sessions that end."""

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None: ...
    def start_aside(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None: ...
    def remove(self, session: "NativeSession") -> None: ...


class NativeSession:
    """The session of one connection.

    Attributes:
        io: How files get to processes: see docs/explanation/connections.md. After shake_hands(), what this kernel can do of that.
        minor: The protocol's minor version.
        offered: The flags that the kernel offered in INIT.
        on_end: Called before the connection ends.
        answered_s: When the last request was answered, on the monotonic clock; kept for the reactor.
    """

    kind = "native"

    def __init__(self, connection: Connection, reactor: TaskStarter, fd: int, io: IoMode) -> None:
        self.connection, self.reactor, self.io = connection, reactor, io
        self.fd = fd
        self._number = secrets.randbits(_NUMBER_BITS)
        self._database, self._handles = connection.overlay.store.db, connection.handles
        self._ledger = connection.nodes.records.ledger
        self._former: set[int] = set()  # requests that the daemon before has carried out, and that may come again
        self._counted: tuple[int, list[int]] = (0, [])
        self.minor = 0
        self.offered = 0
        self.ended = False
        self.on_end: Callable[[], object] = lambda: None
        self.answered_s = 0.0
        self._changes = connection.changes
        self._traffic = connection.shared.traffic
        self._slow = self._traffic.slow
        self._tallies = [self._traffic.tally("fuse", op) for op in NAMES]
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)

    # -- beginning and end

    def shake_hands(self) -> None:
        """Answer INIT, the kernel's first request; Unsupported if there is no common protocol version."""
        if not select.select([self.fd], [], [], _HANDSHAKE_S)[0]:
            raise Unsupported("the kernel did not begin to talk")
        os.set_blocking(self.fd, False)
        length = os.readv(self.fd, [self._buffer])
        _, opcode, unique, *_ = fuse.IN_HEADER.unpack_from(self._buffer)
        if length < fuse.IN_HEADER.size + fuse.INIT_IN_SHORT.size or opcode != fuse.INIT:
            raise Unsupported("that is no FUSE connection, or somebody speaks on it already")
        try:
            agreed = agree(self._view[fuse.IN_HEADER.size : length], self.io)
        except Unsupported:
            self._fail(unique, errno.EPROTO)
            raise
        self.io, self.minor, self.offered = agreed.io, agreed.minor, agreed.offered
        self._send(unique, [agreed.reply])
        self._connect()
        self.note_facts()

    def _connect(self) -> None:
        long_setxattr = bool(self.offered & wanted(self.io) & fuse.SETXATTR_EXT)
        self.requests = NativeConnection(self.connection, self.reply, self.fd, self.io, long_setxattr=long_setxattr)

    def resume(self) -> None:
        """Go on with a connection of the daemon before, in place of shake_hands(). OSError when its ledger says nothing of it."""
        try:
            facts = msgspec.msgpack.decode(self._ledger.facts, type=ConnectionFacts)
        except msgspec.DecodeError:
            raise OSError(errno.EINVAL, "the ledger of that connection cannot be read") from None
        self._number, self.io, self.minor, self.offered = facts.number, facts.io, facts.minor, facts.offered
        self.connection.cache.device = facts.device
        self._connect()
        self.requests.former_ends = self._ledger.marks()
        self._counted = self._ledger.counted()
        self._former = {key for key in self._database.unanswered if self.is_request_of(key)}

    def note_facts(self) -> None:
        """Record what the next daemon needs to know."""
        self._ledger.set_facts(msgspec.msgpack.encode(self.facts))

    @property
    def facts(self) -> ConnectionFacts:
        """What the next daemon needs to know to go on with this connection."""
        cache = self.connection.cache
        return ConnectionFacts(self._number, cache.tree_id, self.io, self.minor, self.offered, cache.device)

    def is_request_of(self, key: int) -> bool:
        """Return whether a number of ``Database.unanswered`` is that of a request here."""
        return key & ((1 << _NUMBER_BITS) - 1) == self._number

    def begin(self) -> None:
        """Start notifications, and have the kernel send again what another daemon has read and not answered."""
        self.note_facts()
        self.connection.notifier.start(self.fd, expires=bool(self.offered & fuse.HAS_EXPIRE_ONLY))
        if self._ledger.life:
            self._write([fuse.OUT_HEADER.pack(fuse.OUT_HEADER.size, fuse.NOTIFY_RESEND, 0)])

    def end(self) -> None:
        """End the connection: close its handles and its descriptor. Do nothing if it has ended."""
        if self.ended:
            return
        self.ended = True
        self.on_end()
        self.connection.notifier.stop()
        open_requests.close(self.requests)
        self.connection.shared.remove(self.connection.cache)
        os.close(self.fd)

    def abandon(self) -> None:
        """Close the descriptor of a session that add() was never called for."""
        self.ended = True
        os.close(self.fd)

    def knows(self, inode: Inode) -> bool:
        """Return whether the kernel has a node of a file here."""
        return self.connection.nodes.find_file(inode) is not None

    # -- requests

    def step(self) -> bool:
        """Answer one request; return False if there is none now."""
        if self.ended:
            return False
        try:
            length = os.readv(self.fd, [self._buffer])
        except BlockingIOError:
            return False
        except OSError as exc:
            if exc.errno == errno.ENODEV:  # unmounted everywhere
                self.reactor.remove(self)
                return False
            if exc.errno in (errno.ENOENT, errno.EINTR):  # the request was interrupted before we read it
                return True
            raise
        self.answer(length)
        return True

    def answer(self, length: int) -> None:
        """Answer the request that is in the buffer. *length* is in bytes."""
        if length < fuse.IN_HEADER.size:
            return
        said, opcode, unique, node_id, uid, gid, pid, *_ = fuse.IN_HEADER.unpack_from(self._buffer)
        if opcode not in DECODERS or said != length:
            if opcode not in _SILENT:
                self._fail(unique, errno.EIO if opcode in DECODERS else errno.ENOSYS)
            return
        began_ns = time.monotonic_ns()
        ctx = CallContext(pid, uid, gid)
        try:
            reply = self._carry_out(opcode, unique, node_id, ctx, self._view[fuse.IN_HEADER.size : length])
        except (NameReserved, AnswerNeeded) as exc:
            later = self._in_turn(exc, unique, opcode, node_id, ctx, bytes(self._view[fuse.IN_HEADER.size : length]))
            start = self.reactor.start if isinstance(exc, NameReserved) else self.reactor.start_aside
            start(self._finish, unique, opcode, later, node_id, pid, began_ns)
            return
        except Exception as exc:  # noqa: BLE001 - becomes an errno
            code = _code(exc, opcode)
            self._failed(code, opcode, node_id, pid, began_ns)
            self._refuse(unique, opcode, code)
            return
        if reply is not None and not isinstance(reply, list):
            self.reactor.start(self._finish, unique, opcode, reply, node_id, pid, began_ns)
            return
        if self._changes.unsettled:
            reply = [bytes(part) for part in reply] if reply is not None else None  # all reads of a connection share one buffer
            self.reactor.start(self._settle, unique, opcode, reply, self._changes.take_unsettled(), node_id, pid, began_ns)
            return
        if reply is not NO_REPLY:
            self._send(unique, reply)
        self._count(opcode, node_id, pid, began_ns)

    def _carry_out(self, opcode: int, unique: int, node_id: int, ctx: CallContext, body: memoryview) -> Any:
        """Call a request's decoder. A request that was carried out before the daemon was killed only gets its answer."""
        request = unique & ~REPEATED
        self.requests.unique = unique
        if unique & REPEATED:
            self._take_back(request)
        elif self._former and opcode not in _SILENT:  # all that were to come again have come
            self._database.unanswered -= self._former
            self._former.clear()
        self._handles.request = request
        self._ledger.begins(request)
        if opcode not in _ONCE:
            return DECODERS[opcode](self.requests, node_id, ctx, body)
        key = self._key(unique)
        if unique & REPEATED and key in self._database.unanswered:
            return repeated_requests.DECODERS[opcode](self.requests, node_id, ctx, body)
        self._database.request = key
        try:
            return DECODERS[opcode](self.requests, node_id, ctx, body)
        finally:
            self._database.request = 0

    def _take_back(self, request: int) -> None:
        """Take back what the daemon before has counted and opened for a request whose answer the kernel did not get."""
        self._former.discard(self._key(request))
        open_requests.release_former(self.requests)
        counted_by, places = self._counted
        if counted_by == request:
            self._counted = (0, [])
            for at in places:
                self.connection.nodes.uncount(at)

    def _key(self, unique: int) -> int:
        return (unique & ~REPEATED) << _NUMBER_BITS | self._number

    async def _in_turn(
        self, exc: NameReserved | AnswerNeeded, unique: int, opcode: int, node_id: int, ctx: CallContext, body: bytes
    ) -> Any:
        """Repeat a request until its name is no longer reserved for another thread, and its question is answered."""
        while True:
            await (exc.over() if isinstance(exc, NameReserved) else self._answered(exc, unique))
            try:
                reply = self._carry_out(opcode, unique, node_id, ctx, memoryview(body))
            except (NameReserved, AnswerNeeded) as again:
                exc = again
                continue
            return reply if reply is None or isinstance(reply, list) else await reply

    async def _answered(self, exc: AnswerNeeded, unique: int) -> None:
        """Wait for the answer to a question. InterruptedError if a signal interrupts the process that asks."""
        with trio.CancelScope() as scope:
            self.requests.asking[unique] = scope
            try:
                await exc.over()
            finally:
                del self.requests.asking[unique]
        if scope.cancelled_caught:
            raise InterruptedError(errno.EINTR, "interrupted while a question waited")

    async def _finish(self, unique: int, opcode: int, work: Awaitable[Any], node_id: int, tid: int, began_ns: int) -> None:
        try:
            reply = await work
        except Exception as exc:  # noqa: BLE001 - becomes an errno
            code = _code(exc, opcode)
            self._failed(code, opcode, node_id, tid, began_ns)
            self._refuse(unique, opcode, code)
            return
        await self._settle(unique, opcode, reply, self._changes.take_unsettled(), node_id, tid, began_ns)

    def _refuse(self, unique: int, opcode: int, code: int) -> None:
        if self._changes.unsettled:
            self.reactor.start(self._refuse_later, unique, opcode, code, self._changes.take_unsettled())
        elif opcode not in _SILENT:
            self._fail(unique, code)

    async def _refuse_later(self, unique: int, opcode: int, code: int, owed: Owed) -> None:
        """Answer with an errno once other kernels know what the request has changed nevertheless."""
        await all_taken(owed)
        if opcode not in _SILENT:
            self._fail(unique, code)

    async def _settle(self, unique: int, opcode: int, reply: Any, owed: Owed, node_id: int, tid: int, began_ns: int) -> None:
        await all_taken(owed)
        self._send(unique, reply)
        self._count(opcode, node_id, tid, began_ns)

    def _count(self, opcode: int, node_id: int, tid: int, began_ns: int) -> None:
        """Count an answered request. Every request comes here, so this costs only 0.3 us while no profile runs."""
        took_ns = time.monotonic_ns() - began_ns
        tally = self._tallies[opcode]
        tally.total_ns += took_ns
        tally.classes[took_ns.bit_length()] += 1
        if took_ns > self._slow.limit_ns or self._traffic.profiles:
            look_closer(self.connection, tally.op, took_ns, node_id, tid)

    def _failed(self, code: int, opcode: int, node_id: int, tid: int, began_ns: int) -> None:
        self._tallies[opcode].errors += 1
        note_refusal(self.connection, NAMES[opcode], code, node_id, tid)
        self._count(opcode, node_id, tid, began_ns)

    def _send(self, unique: int, parts: list[bytes | memoryview] | None) -> None:
        if parts is None:
            self._answer(unique, [fuse.OUT_HEADER.pack(fuse.OUT_HEADER.size, 0, unique)])
            return
        length = fuse.OUT_HEADER.size + sum(map(len, parts))
        self._answer(unique, [fuse.OUT_HEADER.pack(length, 0, unique), *parts])

    def reply(self, unique: int, code: int) -> None:
        """Answer a request that waited: *code* is an errno, 0 for success."""
        if code:
            self._fail(unique, code)
        else:
            self._send(unique, None)

    def _fail(self, unique: int, code: int) -> None:
        self._answer(unique, [fuse.OUT_HEADER.pack(fuse.OUT_HEADER.size, -code, unique)])

    def _answer(self, unique: int, parts: list[bytes | memoryview]) -> None:
        self._write(parts)
        if self._database.unanswered:
            self._database.unanswered.discard(self._key(unique))

    def _write(self, parts: list[bytes | memoryview]) -> None:
        if self.ended:
            return
        try:
            os.writev(self.fd, parts)
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENODEV):  # the request was interrupted, or the connection has ended
                log.warning("the kernel refused a reply: %s", exc.strerror)


def _code(exc: Exception, opcode: int) -> int:
    return errno_of(exc, NAMES[opcode])
