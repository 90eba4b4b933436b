"""Requests about attributes: GETATTR, STATX, SETATTR, READLINK, STATFS."""

import os

from agentfsd.core import requested_changes
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.tree import Inode
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.kernel_nodes import VirtualNode
from agentfsd.fuse.reply import LONG_S, NOW_S, AttributesReply, CallContext


def getattr_(conn: Connection, node_id: int, ctx: CallContext) -> AttributesReply:
    """Answer GETATTR and STATX."""
    node = conn.nodes[node_id]
    if isinstance(node, VirtualNode):
        return AttributesReply(conn.replies.virtual_attributes(node), LONG_S if node.is_dir else NOW_S)
    return conn.replies.shown(node, conn.access.open_inode(node_id, ctx))


def setattr_(
    conn: Connection, node_id: int, new: NewAttributes, by_handle: bool, ctx: CallContext, *, keeps_setid: bool
) -> AttributesReply:
    """Answer SETATTR.

    Args:
        by_handle: The caller has the file open (fchmod, ftruncate): its branch does not matter.
        keeps_setid: The caller may leave setuid bits where chown and truncate would take them away.
    """
    node = conn.nodes[node_id]
    if isinstance(node, VirtualNode):  # `> control` in a shell truncates: nothing to do
        return AttributesReply(conn.replies.virtual_attributes(node), NOW_S)
    inode = conn.access.open_inode(node_id, ctx) if by_handle else conn.access.inode(node_id, ctx)
    if not by_handle:
        conn.guard.check_change(ctx, inode)
    requested_changes.set_attributes(conn.changes.by(ctx.pid, node), inode, new, privileged=keeps_setid)
    return conn.replies.shown(node, inode)


def file_to_resize(conn: Connection, node_id: int, by_handle: bool, ctx: CallContext) -> Inode | None:
    """Return the file that a SETATTR with a size is about; None for what is in ``.agentfs``."""
    if isinstance(conn.nodes[node_id], VirtualNode):
        return None
    if by_handle:
        return conn.access.open_inode(node_id, ctx)
    inode = conn.access.inode(node_id, ctx)
    conn.guard.check_change(ctx, inode)
    return inode


def readlink(conn: Connection, node_id: int, ctx: CallContext) -> bytes:
    """Answer READLINK."""
    inode = conn.access.inode(node_id, ctx)
    conn.guard.check_open(ctx, inode, writes=False)
    return inode.tree.readlink(inode)


def statfs(conn: Connection) -> os.statvfs_result:
    """Answer STATFS: the room where contents are stored."""
    return conn.overlay.backstore.statvfs()
