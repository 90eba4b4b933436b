"""Decodes OPEN, CREATE, TMPFILE and RELEASE for ``handlers/``, and chooses the flags that an open is answered with."""

import os
from collections.abc import Awaitable

from agentfsd.core import copyup
from agentfsd.core.tree import Inode
from agentfsd.fuse.handlers import control_directory, creation, file_data, file_handles, listing
from agentfsd.fuse.handles import DirHandle, FileHandle
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native import lock_requests, request_bodies
from agentfsd.fuse.native.native_connection import REPEATED, Decoder, NativeConnection, Parts, Reply, not_here
from agentfsd.fuse.native.request_bodies import PERMISSIONS, masked
from agentfsd.fuse.reply import CallContext, LookupReply


def _create(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    if native.zero:  # the kernel sends MKNOD from now on, and opens files itself
        raise not_here()
    flags, mode, umask, _ = fuse.CREATE_IN.unpack_from(body)
    name = request_bodies.name(body[fuse.CREATE_IN.size :])
    made = creation.create(native.services, node_id, name, mode & PERMISSIONS, flags, masked(ctx, umask))
    return created(native, *made, ctx, flags)


def created(native: NativeConnection, number: int, inode: Inode, entry: LookupReply, ctx: CallContext, flags: int) -> Parts:
    """Answer CREATE, with what ``handlers/creation.py`` returned."""
    return [fuse.pack_entry(entry), _opened(native, number, inode, ctx, flags, made=True)]


def _tmpfile(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    flags, mode, umask, _ = fuse.CREATE_IN.unpack_from(body)
    number, inode, entry = creation.tmpfile(native.services, node_id, mode & PERMISSIONS, flags, masked(ctx, umask))
    if native.zero:  # TMPFILE always opens; reads and writes come by node all the same
        _release_handle(native, number)
        number = 0
    return [fuse.pack_entry(entry), _opened(native, number, inode, ctx, flags, made=True)]


def _open(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    if native.zero:
        raise not_here()
    conn = native.services
    flags, open_flags = fuse.OPEN_IN.unpack_from(body)
    text = control_directory.open_text(conn, node_id, ctx)
    if text is not None:
        return _open_text(text)
    if flags & os.O_TRUNC and conn.guard.rules.active:  # here too: nothing that waits below may have to ask
        conn.guard.check_change(ctx, conn.access.inode(node_id, ctx))
    if flags & os.O_TRUNC and file_data.others_have_pages(conn, inode := conn.access.inode(node_id, ctx)):
        return _open_emptied(native, inode, node_id, flags, open_flags, ctx)
    return _open_file(native, node_id, flags, open_flags, ctx)


async def _open_emptied(
    native: NativeConnection, inode: Inode, node_id: int, flags: int, open_flags: int, ctx: CallContext
) -> Parts:
    request = native.services.handles.request
    await file_data.pages_back(native.services, inode)
    native.services.handles.request = request
    return _open_file(native, node_id, flags, open_flags, ctx)


def _open_file(native: NativeConnection, node_id: int, flags: int, open_flags: int, ctx: CallContext) -> Parts:
    number, inode = file_handles.open_file(native.services, node_id, flags, ctx)
    if flags & os.O_TRUNC:
        file_handles.truncated(inode, keeps_setid=not open_flags & fuse.OPEN_KILL_SUIDGID)
    return [_opened(native, number, inode, ctx, flags)]


async def _open_text(number: Awaitable[int]) -> Parts:
    return [fuse.OPEN_OUT.pack(await number, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH, 0)]


def _opened(native: NativeConnection, number: int, inode: Inode, ctx: CallContext, flags: int, *, made: bool = False) -> bytes:
    """Return the reply to an open. Cached pages are kept, as notifications drop those that become invalid, or dropped here.

    A notification that an open waits for could wait in turn for a page that a write holds.
    """
    opened = native.services.handles.get(number)
    if not isinstance(opened, FileHandle):
        return fuse.OPEN_OUT.pack(number, fuse.FOPEN_KEEP_CACHE, 0)
    closing = lock_requests.open_flags(native, opened, flags, made=made)
    backing = native.passthrough.enter(inode, writes=opened.writes) if native.passthrough is not None and inode.is_file else 0
    if not backing:
        native.services.handles.opened(opened, 0)
        return fuse.OPEN_OUT.pack(number, (0 if opened.drops_pages else fuse.FOPEN_KEEP_CACHE) | closing, 0)
    opened.passed = True
    if opened.writes:
        opened.opener, opened.since_ns = ctx.pid, copyup.now_ns()
    native.services.handles.opened(opened, backing)
    native.services.changes.file_changed(inode, data=True)  # other connections must drop what they have cached of it
    return fuse.OPEN_OUT.pack(number, fuse.FOPEN_PASSTHROUGH | closing, backing)


def _release(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    _release_handle(native, fuse.RELEASE_IN.unpack_from(body)[0])
    return None


def _release_handle(native: NativeConnection, number: int) -> None:
    handle = native.services.handles.get(number)
    if isinstance(handle, FileHandle):
        lock_requests.released(native, handle.inode, handle)
        if native.passthrough is not None:
            native.passthrough.leave(handle.inode, handle.passed)
    if isinstance(handle, DirHandle):
        listing.releasedir(native.services, number)
    else:
        file_handles.release(native.services, number)


def release_former(native: NativeConnection) -> None:
    """Release the handle that the present request got from the daemon before, whose answer the kernel does not have."""
    number = native.requested.pop(native.unique & ~REPEATED, None)
    if number is not None:
        _release_handle(native, number)


def close(native: NativeConnection) -> None:
    """End a connection: answer its lock waiters and close its handles."""
    lock_requests.close(native)
    for number in native.services.handles.numbers():
        _release_handle(native, number)
    native.idle.clear()


DECODERS: dict[int, Decoder] = {
    fuse.OPEN: _open, fuse.CREATE: _create, fuse.TMPFILE: _tmpfile, fuse.RELEASE: _release,
}  # fmt: skip
