"""ioctl(2) on what is in the mount: the control requests on its root, and the inode flags that lsattr(1) asks for.

Source: linux/fs.h for FS_IOC_*; ioctl(2) for how a number says its size and direction.
"""

import errno
import struct
from typing import TYPE_CHECKING

from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.nodes import ROOT_NODE
from agentfsd.fuse.operations import Operations
from agentfsd.fuse.reply import CallContext

if TYPE_CHECKING:
    from agentfsd.fuse.native.requests import Parts, Reply

# _IOWR(0xAF, 1, 16380 bytes): the length of the request and the request; then the same of the reply.
CONTROL = 3 << 30 | 16380 << 16 | 0xAF << 8 | 1
_GET_FLAGS, _SET_FLAGS, _FSGETXATTR = 0x80086601, 0x40086602, 0x801C581F
_LENGTH = struct.Struct("=I")


def answer(ops: Operations, node: int, ctx: CallContext, command: int, content: bytes, room: int) -> "Reply":
    if command == CONTROL and node == ROOT_NODE:
        return _control(ops, ctx, content, room)
    if command == _GET_FLAGS:
        ops.getattr(node, ctx)
        return done(struct.pack("=i", 0))
    if command == _FSGETXATTR:
        ops.getattr(node, ctx)
        return done(bytes(28))
    if command == _SET_FLAGS and not any(content[:4]):
        return done(b"")
    raise OSError(errno.EOPNOTSUPP if command == _SET_FLAGS else errno.ENOTTY, "no such ioctl")


def done(content: bytes) -> "Parts":
    return [fuse.IOCTL_OUT.pack(0, 0, 0, 0), content]


async def _control(ops: Operations, ctx: CallContext, content: bytes, room: int) -> "Parts":
    """EMSGSIZE when the reply does not fit: the control file has no such limit."""
    if len(content) < _LENGTH.size or not 0 < _LENGTH.unpack_from(content)[0] <= len(content) - _LENGTH.size:
        raise OSError(errno.EINVAL, "the length of the request comes first")
    if ctx.uid not in (0, ops.connections.owner_uid):
        raise PermissionError(errno.EACCES, "the mount's owner and root only")
    (length,) = _LENGTH.unpack_from(content)
    channel = ops.connections.control.open(ops.caller(ctx))
    try:
        await channel.write(content[_LENGTH.size : _LENGTH.size + length])
        reply = channel.read(1 << 30)
    finally:
        channel.close()
    if _LENGTH.size + len(reply) > room:
        raise OSError(errno.EMSGSIZE, "the reply is too long for an ioctl")
    return done(_LENGTH.pack(len(reply)) + reply)
