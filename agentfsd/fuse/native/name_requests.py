"""Requests about names, from their bytes to ``handlers/`` and back."""

import errno

from agentfsd.fuse.handlers import creation, lookup, removal
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native import request_bodies
from agentfsd.fuse.native.native_connection import Decoder, NativeConnection, Reply
from agentfsd.fuse.native.request_bodies import PERMISSIONS, masked
from agentfsd.fuse.reply import NO_REPLY, CallContext


def _lookup(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return [fuse.pack_entry(lookup.lookup(native.services, node_id, request_bodies.name(body), ctx))]


def _forget(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    _forget_one(native, node_id, fuse.FORGET_IN.unpack_from(body)[0])
    return NO_REPLY


def _batch_forget(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    count, _ = fuse.BATCH_FORGET_IN.unpack_from(body)
    for position in range(count):
        offset = fuse.BATCH_FORGET_IN.size + position * fuse.FORGET_ONE.size
        if offset + fuse.FORGET_ONE.size > len(body):
            break
        _forget_one(native, *fuse.FORGET_ONE.unpack_from(body, offset))
    return NO_REPLY


def _forget_one(native: NativeConnection, node_id: int, count: int) -> None:
    gone = lookup.forget(native.services, node_id, count)
    if gone is not None and native.idle:
        native.idle.pop(gone, None)


def _mkdir(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    mode, umask = fuse.MKDIR_IN.unpack_from(body)
    name = request_bodies.name(body[fuse.MKDIR_IN.size :])
    return [fuse.pack_entry(creation.mkdir(native.services, node_id, name, mode & PERMISSIONS, masked(ctx, umask)))]


def _mknod(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    mode, rdev, umask, _ = fuse.MKNOD_IN.unpack_from(body)
    name = request_bodies.name(body[fuse.MKNOD_IN.size :])
    if mode & ~PERMISSIONS not in request_bodies.KINDS:
        raise OSError(errno.EINVAL, "no such kind of file")
    return [fuse.pack_entry(creation.mknod(native.services, node_id, name, mode, rdev, masked(ctx, umask)))]


def _symlink(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    name = request_bodies.name(body)
    target = request_bodies.word(body[len(name) + 1 :])
    return [fuse.pack_entry(creation.symlink(native.services, node_id, name, target, ctx))]


def _link(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    (old_id,) = fuse.LINK_IN.unpack_from(body)
    name = request_bodies.name(body[fuse.LINK_IN.size :])
    return [fuse.pack_entry(creation.link(native.services, old_id, node_id, name, ctx))]


def _unlink(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    removal.unlink(native.services, node_id, request_bodies.name(body), ctx)
    return None


def _rmdir(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    removal.rmdir(native.services, node_id, request_bodies.name(body), ctx)
    return None


def _rename(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    removal.rename(native.services, node_id, *request_bodies.rename(body), ctx)
    return None


def _rename2(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    removal.rename(native.services, node_id, *request_bodies.rename2(body), ctx)
    return None


DECODERS: dict[int, Decoder] = {
    fuse.LOOKUP: _lookup, fuse.FORGET: _forget, fuse.BATCH_FORGET: _batch_forget, fuse.MKDIR: _mkdir, fuse.MKNOD: _mknod,
    fuse.SYMLINK: _symlink, fuse.LINK: _link, fuse.UNLINK: _unlink, fuse.RMDIR: _rmdir, fuse.RENAME: _rename,
    fuse.RENAME2: _rename2,
}  # fmt: skip
