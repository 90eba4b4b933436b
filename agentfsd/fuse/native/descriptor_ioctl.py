"""ioctl(2) on a file of the mount by which a program gets the real descriptor of its content: see handoff/.

The kernel says which file it is and who asks; the descriptor goes over that process's socket. Source: client/interpose/shim.h.
"""

import errno
import os
import struct

from agentfs_client.interpose import FORWARD, REQUEST
from agentfsd.core import permissions
from agentfsd.core.tree import Inode
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.handles import FileHandle
from agentfsd.fuse.native.control_ioctl import done
from agentfsd.fuse.native.native_connection import Parts, Reply
from agentfsd.fuse.reply import CallContext
from agentfsd.handoff.descriptor_forwarding import Forwarding, GivenDescriptor, WantedDescriptor
from agentfsd.handoff.interpose_server import InterposeConversation

_OBJECT = struct.Struct("=QQ")
_TOLD = struct.Struct("=Q")
OBJECT = 2 << 30 | _OBJECT.size << 16 | 0xAF << 8 | 3
TELL = 1 << 30 | _TOLD.size << 16 | 0xAF << 8 | 4  # the daemon asks itself which file a descriptor stands for
COMMANDS = (FORWARD, OBJECT, TELL)


def answer(conn: Connection, inode: Inode | None, handle: int, ctx: CallContext, command: int, content: bytes) -> Reply:
    """Answer an ioctl that asks for a descriptor, or about one; ENOTTY where none are given out."""
    forwarding, doorway = conn.shared.forwarding, conn.shared.doorway
    if forwarding is None or doorway is None or forwarding.why_not or inode is None:
        raise OSError(errno.ENOTTY, "no descriptors are given out here")
    if command == OBJECT:
        status = forwarding.object_of(inode)
        return done(_OBJECT.pack(status.st_dev, status.st_ino))
    if command == TELL:
        forwarding.told(_TOLD.unpack(content)[0], inode, ctx.pid)
        return done(b"")
    if len(content) != REQUEST.size:
        raise OSError(errno.EINVAL, "another length")
    cookie, ticket, flags, version, _, _ = REQUEST.unpack(content)
    pid = conn.bindings.process_of(ctx.pid)
    conversation, wanted = doorway.find(cookie, pid, version, forwarding.settings), WantedDescriptor(flags)
    _check_mode(conn, inode, handle, wanted, ctx, conversation)
    given = forwarding.give_at_once(inode, wanted, pid)
    if given is None:
        return _push_later(forwarding, inode, wanted, pid, conversation, content)
    return _push(given, ticket, conversation, content)


def _check_mode(
    conn: Connection, inode: Inode, handle: int, wanted: WantedDescriptor, ctx: CallContext, conversation: InterposeConversation
) -> None:
    """Check that a process gets no more access than its open has; without a handle, than an open would give it."""
    opened = conn.handles.get(handle)
    reads = wanted.flags & os.O_ACCMODE != os.O_WRONLY
    if isinstance(opened, FileHandle):
        if wanted.writes and not opened.writes:
            raise OSError(errno.EBADF, "it is not open for writing")
        needed = permissions.READ if reads and opened.writes else 0  # whether it was opened for reading, too, is not known
    else:
        needed = (permissions.READ if reads else 0) | (permissions.WRITE if wanted.writes else 0)
    if (ctx.uid, ctx.gid) != (conversation.uid, conversation.gid):
        raise PermissionError(errno.EACCES, "somebody else now than at the beginning of the conversation")
    conn.guard.check_open(ctx, inode, writes=wanted.writes)
    if needed:  # more than what came with the descriptor: as at an open, of which another branch's process gets none
        conn.access.check_caller(inode.tree, ctx)
        permissions.check(inode, needed, conversation.credentials())


async def _push_later(
    forwarding: Forwarding, inode: Inode, wanted: WantedDescriptor, pid: int, conversation: InterposeConversation, content: bytes
) -> Parts:
    given = await forwarding.give(inode, wanted, pid)
    return _push(given, REQUEST.unpack(content)[1], conversation, content)


def _push(given: GivenDescriptor, ticket: int, conversation: InterposeConversation, content: bytes) -> Parts:
    try:
        status = os.fstat(given.fd)
        conversation.push(ticket, given.fd, status)
    finally:
        os.close(given.fd)
    return done(content[:-16] + _OBJECT.pack(status.st_dev, status.st_ino))
