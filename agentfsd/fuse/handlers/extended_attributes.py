"""Requests about extended attributes: GETXATTR, LISTXATTR, SETXATTR, REMOVEXATTR."""

import errno

from agentfsd.core import acl, inode_attributes, requested_changes
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.kernel_nodes import VirtualNode
from agentfsd.fuse.reply import CallContext


def getxattr(conn: Connection, node_id: int, name: bytes, ctx: CallContext) -> bytes:
    """Answer GETXATTR; OSError (ENODATA) when there is none of that name."""
    if isinstance(conn.nodes[node_id], VirtualNode):
        raise OSError(errno.ENODATA, "no such attribute")
    inode = conn.access.inode(node_id, ctx)
    if name.startswith(b"user."):  # others need no permission to read the file, and ls asks for them
        conn.guard.check_open(ctx, inode, writes=False)
    return inode_attributes.getxattr(inode.tree, inode, name)


def listxattr(conn: Connection, node_id: int, ctx: CallContext) -> list[bytes]:
    """Answer LISTXATTR; ``trusted.`` names are root's to see."""
    if isinstance(conn.nodes[node_id], VirtualNode):
        return []
    inode = conn.access.inode(node_id, ctx)
    names = inode_attributes.listxattr(inode.tree, inode)
    return names if ctx.uid == 0 else [name for name in names if not name.startswith(b"trusted.")]


def setxattr(conn: Connection, node_id: int, name: bytes, value: bytes, flags: int, ctx: CallContext, *, in_group: bool) -> None:
    """Answer SETXATTR.

    Args:
        flags: XATTR_CREATE or XATTR_REPLACE, or 0.
        in_group: The caller may set an ACL and leave the setgid bit.
    """
    inode = conn.access.inode(node_id, ctx)
    conn.guard.check_change(ctx, inode)
    by = conn.changes.by(ctx.pid, conn.nodes[node_id])
    requested_changes.set_xattr(by, inode, name, value, flags, in_group=in_group)


def removexattr(conn: Connection, node_id: int, name: bytes, ctx: CallContext) -> None:
    """Answer REMOVEXATTR."""
    inode = conn.access.inode(node_id, ctx)
    conn.guard.check_change(ctx, inode)
    requested_changes.remove_xattr(conn.changes.by(ctx.pid, conn.nodes[node_id]), inode, name)


def is_access_acl(name: bytes) -> bool:
    """Return whether an attribute is the POSIX access ACL, which touches the mode as well."""
    return name == acl.ACCESS
