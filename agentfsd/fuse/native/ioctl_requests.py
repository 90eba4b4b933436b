"""Decodes IOCTL and passes it on: commands about descriptors, or all others."""

from agentfsd.fuse.native import control_ioctl, descriptor_ioctl
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.native_connection import Decoder, NativeConnection, Reply
from agentfsd.fuse.reply import CallContext


def _ioctl(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    number, _, command, _, in_size, out_size = fuse.IOCTL_IN.unpack_from(body)
    content = bytes(body[fuse.IOCTL_IN.size : fuse.IOCTL_IN.size + in_size])
    if command in descriptor_ioctl.COMMANDS:
        inode = native.file(node_id, number, ctx)
        return descriptor_ioctl.answer(native.services, inode, number, ctx, command, content)
    return control_ioctl.answer(native.services, node_id, ctx, command, content, out_size)


DECODERS: dict[int, Decoder] = {fuse.IOCTL: _ioctl}
