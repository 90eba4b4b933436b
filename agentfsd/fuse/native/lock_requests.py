"""Decodes lock requests for fuse/lock_service.py. A request that waits is answered when it is granted or interrupted.

The kernel sends FLUSH at each close, which costs a message, but not for an open that was answered with FOPEN_NOFLUSH.
"""

import errno
import os
from collections.abc import Awaitable, Hashable
from typing import Any

from agentfsd.core.file_locks import LAST, READ, UNLOCK, WRITE, Lock, LockRequest, Waiter
from agentfsd.core.tree import Inode
from agentfsd.fuse.handles import FileHandle, TextHandle
from agentfsd.fuse.lock_service import LockConflict
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.native_connection import Decoder, NativeConnection, Parts, Reply, nothing
from agentfsd.fuse.reply import NO_REPLY, CallContext


def open_flags(native: NativeConnection, handle: FileHandle, flags: int, *, made: bool) -> int:
    """Return FOPEN_NOFLUSH for an open whose close most likely releases no lock: see docs/explanation/locks.md.

    That is an open for reading alone, or for writing alone of a file that it has *made*, while the file has no record locks.
    """
    access = flags & os.O_ACCMODE
    quiet = access == os.O_RDONLY or (access == os.O_WRONLY and made)
    handle.flushes = not quiet or native.services.shared.locks.table.has_ranges(handle.inode)
    return 0 if handle.flushes else fuse.FOPEN_NOFLUSH


def getlk(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    file, wanted = _wanted(native, node_id, body)
    locks = native.services.shared.locks
    conflict = locks.table.test(file, wanted)
    if conflict is None and locks.has_peer(file):
        return _tested(locks.test_peer(file, wanted), wanted)
    return _lk_out(conflict, wanted)


async def _tested(work: Awaitable[LockConflict | None], wanted: LockRequest) -> Parts:
    return _lk_out(await work, wanted)


def _lk_out(conflict: Lock | LockConflict | None, wanted: LockRequest) -> Parts:
    if conflict is None:
        return [fuse.LK_OUT.pack(wanted.start, wanted.end, UNLOCK, 0)]
    return [fuse.LK_OUT.pack(conflict.start, conflict.end, conflict.kind, conflict.pid)]


def setlk(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    file, wanted = _wanted(native, node_id, body)
    work = native.services.shared.locks.set_now(file, wanted)
    if work is not None:
        return _set(native, work, file, wanted, ctx.pid)
    _granted(native, file, wanted, ctx.pid)
    return None


async def _set(native: NativeConnection, work: Awaitable[None], file: Hashable, wanted: LockRequest, tid: int) -> None:
    await work
    _granted(native, file, wanted, tid)


def setlkw(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    """Answer SETLKW through a waiter. A task for each would keep the reactor polling."""
    file, wanted = _wanted(native, node_id, body)
    unique = native.unique

    def answer(code: int) -> None:
        native.waiting.pop(unique, None)
        if not code:
            _granted(native, file, wanted, ctx.pid)
        native.answer_later(unique, code)

    waiter = native.waiting[unique] = Waiter(file, wanted, ctx.pid, answer)
    native.services.shared.locks.wait(waiter)
    return NO_REPLY


def interrupt(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    """Answer INTERRUPT: lock requests, and those that ask somebody, wait long enough to be interrupted; others finish."""
    unique = fuse.INTERRUPT_IN.unpack_from(body)[0]
    if unique in native.asking:
        native.asking[unique].cancel()
    waiter = native.waiting.get(unique)
    if waiter is not None:
        native.services.shared.locks.interrupt(waiter)
    return NO_REPLY


def flush(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    """Answer FLUSH (close(2)); ENOSYS stops it for good on a connection whose kernel keeps the locks."""
    if native.zero:
        return nothing(native, node_id, ctx, body)
    handle, _, _, owner = fuse.FLUSH_IN.unpack_from(body)
    locks = native.services.shared.locks
    if not len(locks.table):
        return None
    work = locks.drop_ranges(_file(native, node_id, handle)[0], owner)
    return None if work is None else _done(work)


async def _done(work: Awaitable[None]) -> None:
    await work


def released(native: NativeConnection, inode: Inode, handle: FileHandle) -> None:
    """Drop the locks of an open whose last descriptor was closed."""
    locks = native.services.shared.locks
    work = locks.drop_handle(inode, handle)
    if work is not None:
        locks.start(_done, work)


def close(native: NativeConnection) -> None:
    """Answer all waiters of a connection that has ended."""
    for scope in native.asking.values():
        scope.cancel()
    for waiter in list(native.waiting.values()):
        native.services.shared.locks.interrupt(waiter)


def _granted(native: NativeConnection, file: Hashable, wanted: LockRequest, tid: int) -> None:
    if not wanted.flock and wanted.kind != UNLOCK and not getattr(wanted.handle, "flushes", False):
        native.services.shared.locks.ends_with(file, tid, wanted.pid, wanted.owner)


def _wanted(native: NativeConnection, node_id: int, body: memoryview) -> tuple[Hashable, LockRequest]:
    number, owner, start, end, kind, pid, flags, _ = fuse.LK_IN.unpack_from(body)
    if native.zero:
        raise OSError(errno.ENOSYS, "the kernel keeps the locks of this connection")
    if kind not in (READ, WRITE, UNLOCK) or not start <= end <= LAST:
        raise OSError(errno.EINVAL, "no such lock")
    file, handle = _file(native, node_id, number)
    return file, LockRequest(owner, kind, start, end, bool(flags & fuse.LK_FLOCK), pid, handle)


def _file(native: NativeConnection, node_id: int, number: int) -> tuple[Hashable, Any]:
    """Return what a lock is of (an inode, or a node of ``.agentfs``), and the handle through which it comes."""
    handle = native.services.handles[number]
    if isinstance(handle, FileHandle):
        return handle.inode, handle
    if isinstance(handle, TextHandle):
        return native.services.nodes[node_id], handle
    raise OSError(errno.EBADF, "no open file")


DECODERS: dict[int, Decoder] = {
    fuse.GETLK: getlk, fuse.SETLK: setlk, fuse.SETLKW: setlkw, fuse.FLUSH: flush, fuse.INTERRUPT: interrupt,
}  # fmt: skip
