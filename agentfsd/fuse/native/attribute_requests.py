"""Requests about attributes, extended ones too, from their bytes to ``handlers/`` and back."""

import errno

from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.tree import Inode
from agentfsd.fuse.handlers import extended_attributes, file_data, node_attributes
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native import request_bodies
from agentfsd.fuse.native.native_connection import Decoder, NativeConnection, Parts, Reply, nothing
from agentfsd.fuse.reply import CallContext


def _getattr(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return [fuse.pack_attributes(*node_attributes.getattr_(native.services, node_id, ctx))]


def _statx(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return [fuse.pack_statx(*node_attributes.getattr_(native.services, node_id, ctx))]


def _setattr(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    conn = native.services
    valid, new = request_bodies.new_attributes(body)
    # Where we are not asked at opens, an open with O_TRUNC cannot be told from ftruncate(2): the caller is checked at both.
    by_handle = bool(valid & fuse.FATTR_FH) and not native.zero
    keeps_setid = not valid & fuse.FATTR_KILL_SUIDGID
    if new.size is not None:
        inode = node_attributes.file_to_resize(conn, node_id, by_handle, ctx)
        if inode is not None and (file_data.others_have_pages(conn, inode) or (new.size and file_data.must_copy(inode))):
            return _resize(native, node_id, inode, new, by_handle, ctx, keeps_setid)
    return [fuse.pack_attributes(*node_attributes.setattr_(conn, node_id, new, by_handle, ctx, keeps_setid=keeps_setid))]


async def _resize(
    native: NativeConnection, node_id: int, inode: Inode, new: NewAttributes, by_handle: bool, ctx: CallContext, keeps_setid: bool
) -> Parts:
    conn = native.services
    await file_data.pages_back(conn, inode)
    if new.size:
        await file_data.copy_ahead(conn, inode)
    return [fuse.pack_attributes(*node_attributes.setattr_(conn, node_id, new, by_handle, ctx, keeps_setid=keeps_setid))]


def _readlink(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return [node_attributes.readlink(native.services, node_id, ctx)]


def _statfs(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return [fuse.pack_statfs(node_attributes.statfs(native.services))]


def _getxattr(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    size, _ = fuse.GETXATTR_IN.unpack_from(body)
    name = request_bodies.word(body[fuse.GETXATTR_IN.size :])
    return _sized(extended_attributes.getxattr(native.services, node_id, name, ctx), size)


def _listxattr(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    size, _ = fuse.GETXATTR_IN.unpack_from(body)
    return _sized(b"".join(name + b"\0" for name in extended_attributes.listxattr(native.services, node_id, ctx)), size)


def _sized(value: bytes, size: int) -> Reply:
    """Answer how long an attribute is (*size* 0), or the whole of it; OSError (ERANGE) when it is longer than *size*."""
    if not size:
        return [fuse.SIZE_OUT.pack(len(value), 0)]
    if len(value) > size:
        raise OSError(errno.ERANGE, "longer than that")
    return [value]


def _setxattr(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    size, flags, *more = native.setxattr_in.unpack_from(body)
    name, _, rest = bytes(body[native.setxattr_in.size :]).partition(b"\0")
    in_group = not (more and more[0] & fuse.SETXATTR_ACL_KILL_SGID)
    if len(rest) < size:
        raise OSError(errno.EINVAL, "the value is cut short")
    extended_attributes.setxattr(native.services, node_id, name, rest[:size], flags, ctx, in_group=in_group)
    return None


def _removexattr(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    extended_attributes.removexattr(native.services, node_id, request_bodies.word(body), ctx)
    return None


DECODERS: dict[int, Decoder] = {
    fuse.GETATTR: _getattr, fuse.STATX: _statx, fuse.SETATTR: _setattr, fuse.READLINK: _readlink, fuse.STATFS: _statfs,
    fuse.GETXATTR: _getxattr, fuse.LISTXATTR: _listxattr, fuse.SETXATTR: _setxattr, fuse.REMOVEXATTR: _removexattr,
    fuse.ACCESS: nothing,  # the kernel checks permissions itself (default_permissions)
}  # fmt: skip
