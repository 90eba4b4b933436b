"""OPEN and RELEASE of regular files."""

import errno
import os

from agentfsd.core import data, inode_attributes, requested_changes
from agentfsd.core.tree import Inode
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.handles import FileHandle, TextHandle
from agentfsd.fuse.reply import CallContext


def open_handle(conn: Connection, inode: Inode, flags: int, ctx: CallContext) -> int:
    """Enter a handle for an open that core has counted already; return its number."""
    handle = FileHandle(inode, ctx.uid == 0, flags & os.O_ACCMODE)
    if handle.writes:
        handle.drops_pages = conn.shared.opened_for_writing(conn.cache, inode)
    node = conn.nodes.find_file(inode)
    return conn.handles.add(handle, node.id if node is not None else 0)


def open_file(conn: Connection, node_id: int, flags: int, ctx: CallContext) -> tuple[int, Inode]:
    """Answer OPEN: return the handle's number and the file.

    Args:
        flags: Those of open(2). With O_TRUNC call truncated() afterwards where the session knows the caller's privileges.
    """
    inode = conn.access.inode(node_id, ctx)
    if not inode.is_file and not inode.is_dir:
        raise OSError(errno.EINVAL, "the kernel opens these without us")
    if conn.guard.rules.active:
        conn.guard.check_open(ctx, inode, writes=flags & os.O_ACCMODE != os.O_RDONLY or bool(flags & os.O_TRUNC))
    requested_changes.open_(conn.changes.by_thread(ctx.pid), inode, flags)
    if conn.shared.moves_atime and data.note_access(inode, flags):
        conn.notifier.expire_attributes_now(node_id)
    return open_handle(conn, inode, flags, ctx), inode


def truncated(inode: Inode, *, keeps_setid: bool) -> None:
    """After an open with O_TRUNC: take away what a write takes away."""
    inode_attributes.drop_capabilities(inode)
    if not keeps_setid:
        inode_attributes.drop_setid(inode)


def file_of(conn: Connection, number: int) -> Inode | None:
    """Return what an open file stands for; None for one in ``.agentfs``."""
    handle = conn.handles[number]
    return handle.inode if isinstance(handle, FileHandle) else None


def may_keep_setid(conn: Connection, number: int) -> bool:
    """Return whether a write keeps setuid bits, by who opened the file: for a kernel that does not say who writes."""
    handle = conn.handles[number]
    return isinstance(handle, FileHandle) and handle.privileged


def release(conn: Connection, number: int) -> None:
    """Answer RELEASE: the last descriptor of an open has gone."""
    handle = conn.handles.remove(number)
    if isinstance(handle, FileHandle):
        if handle.since_ns:
            conn.changes.tell_if_modified(handle.inode, handle.opener, handle.since_ns)
        data.release(handle.inode)
        if handle.writes and not conn.cache.tree_id:
            conn.shared.page_owners.end(handle.inode)
    elif isinstance(handle, TextHandle) and handle.channel is not None:
        handle.channel.close()
