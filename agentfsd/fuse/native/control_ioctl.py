"""ioctl(2) on what is in the mount: the control requests on its root, and the inode flags that lsattr(1) asks for.

Source: linux/fs.h for FS_IOC_*; ioctl(2) for how a number says its size and direction.
"""

import errno
import struct

from agentfsd.fuse.connection import Connection
from agentfsd.fuse.handlers.node_attributes import getattr_
from agentfsd.fuse.kernel_nodes import ROOT_NODE
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.native_connection import Parts, Reply
from agentfsd.fuse.reply import CallContext

# _IOWR(0xAF, 1, 16380 bytes): the length of the request and the request; then the same of the reply.
CONTROL = 3 << 30 | 16380 << 16 | 0xAF << 8 | 1
_GET_FLAGS, _SET_FLAGS, _FSGETXATTR = 0x80086601, 0x40086602, 0x801C581F
_LENGTH = struct.Struct("=I")


def answer(conn: Connection, node_id: int, ctx: CallContext, command: int, content: bytes, room: int) -> Reply:
    """Answer an ioctl; *room* is how many bytes the caller has for the result. ENOTTY for what we do not know."""
    if command == CONTROL and node_id == ROOT_NODE:
        return _control(conn, ctx, content, room)
    if command == _GET_FLAGS:
        getattr_(conn, node_id, ctx)
        return done(struct.pack("=i", 0))
    if command == _FSGETXATTR:
        getattr_(conn, node_id, ctx)
        return done(bytes(28))
    if command == _SET_FLAGS and not any(content[:4]):
        return done(b"")
    raise OSError(errno.EOPNOTSUPP if command == _SET_FLAGS else errno.ENOTTY, "no such ioctl")


def done(content: bytes) -> Parts:
    """Return the reply to an ioctl that succeeded."""
    return [fuse.IOCTL_OUT.pack(0, 0, 0, 0), content]


async def _control(conn: Connection, ctx: CallContext, content: bytes, room: int) -> Parts:
    """EMSGSIZE when the reply does not fit: the control file has no such limit."""
    if len(content) < _LENGTH.size or not 0 < _LENGTH.unpack_from(content)[0] <= len(content) - _LENGTH.size:
        raise OSError(errno.EINVAL, "the length of the request comes first")
    if ctx.uid not in (0, conn.shared.owner_uid):
        raise PermissionError(errno.EACCES, "the mount's owner and root only")
    (length,) = _LENGTH.unpack_from(content)
    channel = conn.shared.control.open(conn.access.caller(ctx))
    try:
        await channel.write(content[_LENGTH.size : _LENGTH.size + length])
        reply = channel.read(1 << 30)
    finally:
        channel.close()
    if _LENGTH.size + len(reply) > room:
        raise OSError(errno.EMSGSIZE, "the reply is too long for an ioctl")
    return done(_LENGTH.pack(len(reply)) + reply)
