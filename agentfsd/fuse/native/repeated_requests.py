"""Requests that the kernel sends again because the daemon that had read them was killed (FUSE_NOTIFY_RESEND, Linux 6.9).

Most are simply carried out: doing them twice is doing them once. Those here must not be: a second mkdir(2) would fail with
EEXIST. The journal says which of them were carried out (metadata/database.py), and a decoder here then only makes the answer.
"""

from agentfsd.fuse.handlers import creation, lookup, removal
from agentfsd.fuse.handlers.lookup import parent_of
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native import open_requests, request_bodies
from agentfsd.fuse.native.native_connection import Decoder, NativeConnection, Reply
from agentfsd.fuse.reply import CallContext


def _made(native: NativeConnection, node_id: int, ctx: CallContext, name: memoryview) -> Reply:
    return [fuse.pack_entry(lookup.lookup(native.services, node_id, request_bodies.name(name), ctx))]


def _mkdir(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return _made(native, node_id, ctx, body[fuse.MKDIR_IN.size :])


def _mknod(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return _made(native, node_id, ctx, body[fuse.MKNOD_IN.size :])


def _symlink(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return _made(native, node_id, ctx, body)


def _link(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return _made(native, node_id, ctx, body[fuse.LINK_IN.size :])


def _create(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    flags, *_ = fuse.CREATE_IN.unpack_from(body)
    name = request_bodies.name(body[fuse.CREATE_IN.size :])
    made = creation.reopen_created(native.services, node_id, name, flags, ctx)
    return open_requests.created(native, *made, ctx, flags)


def _unlink(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return None


def _rmdir(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    name = request_bodies.name(body)
    parent, tree, _ = parent_of(native.services, node_id, name, ctx)
    removal.directory_removed(native.services, parent, name, tree)
    return None


def _rename(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    removal.renamed_before(native.services, node_id, *request_bodies.rename(body), ctx)
    return None


def _rename2(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    removal.renamed_before(native.services, node_id, *request_bodies.rename2(body), ctx)
    return None


def _attribute(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return None


DECODERS: dict[int, Decoder] = {
    fuse.MKDIR: _mkdir, fuse.MKNOD: _mknod, fuse.SYMLINK: _symlink, fuse.LINK: _link, fuse.CREATE: _create,
    fuse.UNLINK: _unlink, fuse.RMDIR: _rmdir, fuse.RENAME: _rename, fuse.RENAME2: _rename2,
    fuse.SETXATTR: _attribute, fuse.REMOVEXATTR: _attribute,
}  # fmt: skip
