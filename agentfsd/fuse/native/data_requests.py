"""Requests about a file's data, from their bytes to ``handlers/file_data.py`` and back.

A file that is open for writing at the mount point while runs see it, too, has one owner of its pages at a time: a READ or WRITE
of any other connection waits for its turn (fuse/page_owners.py).
"""

import errno
import os
from typing import NamedTuple

from agentfsd.core import copyup
from agentfsd.core.tree import Inode
from agentfsd.fuse.handlers import control_directory, file_data
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.native_connection import READ_BYTES, REPEATED, Decoder, NativeConnection, Parts, Reply
from agentfsd.fuse.notifier import Owed
from agentfsd.fuse.page_owners import PageOwner
from agentfsd.fuse.reply import CallContext


def _read(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    number, offset, size, *_ = fuse.READ_IN.unpack_from(body)
    inode = native.file(node_id, number, ctx)
    if inode is None:
        return [control_directory.read_text(native.services, number, size, offset)]
    owner = _other_owner(native, inode)
    if owner is not None:
        return _in_turn(owner, inode, _read, native, node_id, ctx, bytes(body))
    if size > READ_BYTES:
        size = READ_BYTES
    length = file_data.read_into(native.services, inode, native.page_view[:size], offset)
    return [native.page_view[:length]]


class _Write(NamedTuple):
    """What a WRITE asks for, besides its data.

    Attributes:
        append: ``offset`` is what the kernel believes to be the end.
        request: The number of the request.
    """

    node_id: int
    inode: Inode
    offset: int
    keeps_setid: bool
    append: bool
    tid: int
    request: int


def _write(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    number, offset, size, flags, _, open_flags, _ = fuse.WRITE_IN.unpack_from(body)
    content = body[fuse.WRITE_IN.size : fuse.WRITE_IN.size + size]
    if len(content) < size:
        raise OSError(errno.EINVAL, "the data is cut short")
    inode = _file_to_write(native, node_id, number, ctx, flags)
    if inode is None:
        return _write_text(native, number, bytes(content))
    from_cache = flags & fuse.WRITE_CACHE  # a write-back of pages: no other connection has any, no program waits
    owner = _other_owner(native, inode) if not from_cache else None
    if owner is not None:
        return _in_turn(owner, inode, _write, native, node_id, ctx, bytes(body))
    append = bool(open_flags & os.O_APPEND and not from_cache)
    work = _Write(node_id, inode, offset, not flags & fuse.WRITE_KILL_SUIDGID, append, ctx.pid, native.unique)
    if not copyup.is_owned(inode) and file_data.must_copy(inode):
        return _write_later(native, work, bytes(content), flags)
    written, owed = _write_now(native, work, content), native.services.changes.take_unsettled()
    if owed and not from_cache:
        return _written(native, inode, written, owed)
    return [fuse.SIZE_OUT.pack(written, 0)]


def _file_to_write(native: NativeConnection, node_id: int, number: int, ctx: CallContext, flags: int) -> Inode | None:
    try:
        return native.file(node_id, number, ctx, writes=True)
    except OSError as exc:
        if exc.errno == errno.EROFS and flags & fuse.WRITE_CACHE:  # a mapping was written: its pages must not stay
            native.services.notifier.expire_data(node_id)
        raise


def _write_now(native: NativeConnection, work: _Write, content: bytes | memoryview) -> int:
    """Write; an append goes to the file's end as it is now."""
    node_id, inode, offset, keeps_setid, append, tid, request = work
    if append:
        offset, append = _end(native, node_id, inode, offset, request)
    return file_data.write(native.services, inode, content, offset, keeps_setid=keeps_setid, tid=tid, append=append)


def _end(native: NativeConnection, node_id: int, inode: Inode, believed: int, request: int) -> tuple[int, bool]:
    """Return where an append goes, and whether the end may still move.

    One that the kernel sends again, after the daemon was killed, goes where it went.
    """
    number = request & ~REPEATED
    if request & REPEATED and number in native.former_ends:
        native.services.nodes.records.ledger.mark(number, native.former_ends[number])  # the first mark may go meanwhile
        return native.former_ends[number], False
    end = file_data.end_of(native.services, node_id, inode, believed)
    native.services.nodes.records.ledger.mark(number, end)
    return end, True


async def _write_later(native: NativeConnection, work: _Write, content: bytes, flags: int) -> Parts:
    await file_data.copy_ahead(native.services, work.inode)
    written, owed = _write_now(native, work, content), native.services.changes.take_unsettled()
    if owed and not flags & fuse.WRITE_CACHE:
        return await _written(native, work.inode, written, owed)
    return [fuse.SIZE_OUT.pack(written, 0)]


async def _written(native: NativeConnection, inode: Inode, written: int, owed: Owed) -> Parts:
    """Answer a program's write once other connections know. Pages written back are answered at once; fsync waits for them."""
    await native.services.shared.written(native.services.cache, inode, owed)
    return [fuse.SIZE_OUT.pack(written, 0)]


def _other_owner(native: NativeConnection, inode: Inode) -> PageOwner | None:
    """Return the page owner if another connection must give back pages before this request is answered, else None."""
    owners = native.services.shared.page_owners
    owner = owners.of(inode) if owners else None
    return owner if owner is not None and not owner.is_open_to(inode, native.services.cache) else None


async def _in_turn(
    owner: PageOwner, inode: Inode, decoder: Decoder, native: NativeConnection, node_id: int, ctx: CallContext, body: bytes
) -> Parts:
    native.services.shared.answer_writes(native.services.cache, inode)
    unique = native.unique
    await owner.take(inode, native.services.cache)
    native.unique = unique
    reply = decoder(native, node_id, ctx, memoryview(body))
    if reply is not None and not isinstance(reply, list):
        return await reply
    return [bytes(part) for part in reply] if reply is not None else None  # all reads of the connection share one buffer


async def _write_text(native: NativeConnection, number: int, text: bytes) -> Parts:
    await control_directory.write_text(native.services, number, text)
    return [fuse.SIZE_OUT.pack(len(text), 0)]


def _fsync(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    number, flags, _ = fuse.FSYNC_IN.unpack_from(body)
    inode = native.file(node_id, number, ctx)
    return _sync(native, inode, bool(flags & fuse.FSYNC_DATA_ONLY)) if inode is not None else None


async def _sync(native: NativeConnection, inode: Inode, data_only: bool) -> Parts:
    await native.services.shared.settled()  # notifications of earlier write-backs, whose answers did not wait
    await file_data.sync(inode, data_only=data_only)
    return None


def _fallocate(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    number, offset, length, mode, _ = fuse.FALLOCATE_IN.unpack_from(body)
    file_data.check_allocation(mode)
    return _allocate(native, native.regular(node_id, number, ctx, writes=True), mode, offset, length, ctx.pid)


async def _allocate(native: NativeConnection, inode: Inode, mode: int, offset: int, length: int, tid: int) -> Parts:
    await file_data.allocate(native.services, inode, mode, offset, length, tid)
    return None


def _lseek(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    number, offset, whence, _ = fuse.LSEEK_IN.unpack_from(body)
    return [fuse.LSEEK_OUT.pack(file_data.seek(native.regular(node_id, number, ctx), offset, whence))]


def _copy_file_range(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return _copy(native, *_copied(native, node_id, ctx, body), ctx.pid, wide=False)


def _copy_file_range_64(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return _copy(native, *_copied(native, node_id, ctx, body), ctx.pid, wide=True)


def _copied(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> tuple[Inode, int, Inode, int, int]:
    """Return source, offset there, target, offset there, and the length, all offsets in bytes."""
    number, offset, target_id, target_number, target_offset, length, _ = fuse.COPY_FILE_RANGE_IN.unpack_from(body)
    source = native.regular(node_id, number, ctx)
    return source, offset, native.regular(target_id, target_number, ctx, writes=True), target_offset, length


async def _copy(
    native: NativeConnection, source: Inode, offset: int, target: Inode, target_offset: int, length: int, tid: int, *, wide: bool
) -> Parts:
    copied = await file_data.copy_range(native.services, source, offset, target, target_offset, length, tid)
    return [fuse.COPIED_OUT.pack(copied) if wide else fuse.SIZE_OUT.pack(copied, 0)]


DECODERS: dict[int, Decoder] = {
    fuse.READ: _read, fuse.WRITE: _write, fuse.FSYNC: _fsync, fuse.FALLOCATE: _fallocate, fuse.LSEEK: _lseek,
    fuse.COPY_FILE_RANGE: _copy_file_range, fuse.COPY_FILE_RANGE_64: _copy_file_range_64,
}  # fmt: skip
