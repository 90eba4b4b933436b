"""Requests that make a name: MKDIR, MKNOD, SYMLINK, CREATE, TMPFILE, LINK."""

import errno
import os
import stat

from agentfsd.core import data, directory_entries, requested_changes
from agentfsd.core.directory_entries import Owner
from agentfsd.core.permissions import READ, WRITE, Credentials, check
from agentfsd.core.tree import Inode
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.handlers.file_handles import open_handle
from agentfsd.fuse.handlers.lookup import check_name, parent_of
from agentfsd.fuse.kernel_nodes import DirNode, FileNode
from agentfsd.fuse.name_reservations import stale
from agentfsd.fuse.reply import CallContext, LookupReply


def _make(
    conn: Connection, parent_id: int, name: bytes, mode: int, ctx: CallContext, *, rdev: int = 0, target: bytes = b""
) -> tuple[DirNode, Inode]:
    """Return the directory's node, and what was made in it."""
    parent, tree, directory = parent_of(conn, parent_id, name, ctx)
    if conn.guard.rules.active:
        _check_made(conn, ctx, parent, directory, name, mode)
    conn.shared.reservations.check(ctx.pid, directory, name)
    owner = Owner(ctx.uid, ctx.gid, ctx.umask)
    by = conn.changes.by(ctx.pid, parent)
    inode = requested_changes.make(by, tree, directory, name, mode, owner, rdev=rdev, target=target)
    conn.shared.reservations.made(ctx.pid)
    return parent, inode


def _check_made(conn: Connection, ctx: CallContext, parent: DirNode, directory: Inode, name: bytes, mode: int) -> None:
    caller = conn.guard.in_directory(ctx, parent, directory.tree)
    if caller is not None and stat.S_ISLNK(mode):
        caller.check_symlink(directory, name)
    elif caller is not None:
        caller.check_name(directory, name, is_dir=stat.S_ISDIR(mode))


def mkdir(conn: Connection, parent_id: int, name: bytes, mode: int, ctx: CallContext) -> LookupReply:
    """Answer MKDIR; *mode* has permission bits only."""
    parent, child = _make(conn, parent_id, name, stat.S_IFDIR | mode, ctx)
    return conn.replies.entry(parent, name, child)


def mknod(conn: Connection, parent_id: int, name: bytes, mode: int, rdev: int, ctx: CallContext) -> LookupReply:
    """Answer MKNOD; *mode* has the type, too."""
    try:
        parent, child = _make(conn, parent_id, name, mode, ctx, rdev=rdev)
    except FileExistsError:
        if stat.S_ISREG(mode):  # an open(2), perhaps, which has not said O_EXCL
            _look_again(conn, parent_id, name, ctx)
        raise
    reply = conn.replies.entry(parent, name, child)
    if not child.opens:
        child.release_files()
    return reply


def symlink(conn: Connection, parent_id: int, name: bytes, target: bytes, ctx: CallContext) -> LookupReply:
    """Answer SYMLINK."""
    parent, child = _make(conn, parent_id, name, stat.S_IFLNK | 0o777, ctx, target=target)
    return conn.replies.entry(parent, name, child)


def create(
    conn: Connection, parent_id: int, name: bytes, mode: int, flags: int, ctx: CallContext
) -> tuple[int, Inode, LookupReply]:
    """Answer CREATE: return the handle's number, the file, and the answer to its look-up."""
    parent, tree, directory = parent_of(conn, parent_id, name, ctx)
    inode = tree.find(directory, name)
    if inode is None:
        inode = _make(conn, parent_id, name, stat.S_IFREG | mode, ctx)[1]
        flags &= ~os.O_TRUNC
    elif flags & os.O_EXCL:
        raise FileExistsError(errno.EEXIST, "name exists")
    else:
        check_name(conn, ctx, parent, directory, name, is_dir=False)
        _look_again(conn, parent_id, name, ctx)
        _check_open(inode, flags, ctx)
    requested_changes.open_(conn.changes.by_thread(ctx.pid), inode, flags)
    return _open_made(conn, parent, name, inode, flags, ctx)


def reopen_created(conn: Connection, parent_id: int, name: bytes, flags: int, ctx: CallContext) -> tuple[int, Inode, LookupReply]:
    """Answer a CREATE that made its file before the daemon was killed. Returns as create()."""
    parent, tree, directory = parent_of(conn, parent_id, name, ctx)
    inode = tree.lookup(directory, name)
    data.open_(inode, flags & ~(os.O_TRUNC | os.O_EXCL | os.O_CREAT))
    return _open_made(conn, parent, name, inode, flags, ctx)


def _open_made(
    conn: Connection, parent: DirNode, name: bytes, inode: Inode, flags: int, ctx: CallContext
) -> tuple[int, Inode, LookupReply]:
    """Return a handle of a file that core has opened, the file, and the answer to its look-up."""
    try:
        reply = conn.replies.entry(parent, name, inode)
    except BaseException:
        data.release(inode)
        raise
    return open_handle(conn, inode, flags, ctx), inode, reply


def _look_again(conn: Connection, parent_id: int, name: bytes, ctx: CallContext) -> None:
    """Raise ESTALE at the first try to make a file under a name that exists, of which this connection's kernel does not know.

    The kernel looks the name up then, and opens what is there, with its own check of permissions.
    """
    _, _, directory = conn.access.directory(parent_id, ctx)
    if conn.shared.reservations.look_again(ctx.pid, directory, name):
        raise stale()


def _check_open(inode: Inode, flags: int, ctx: CallContext) -> None:
    """Check whether the caller may open a file: the kernel, which believes it to be new, has not. EACCES, ESTALE."""
    if not inode.is_file:
        raise stale()
    access = flags & os.O_ACCMODE
    wanted = {os.O_RDONLY: READ, os.O_WRONLY: WRITE}.get(access, READ | WRITE) | (WRITE if flags & os.O_TRUNC else 0)
    check(inode, wanted, Credentials(ctx.uid, ctx.gid, frozenset({ctx.gid}), privileged=ctx.uid == 0))


def tmpfile(conn: Connection, parent_id: int, mode: int, flags: int, ctx: CallContext) -> tuple[int, Inode, LookupReply]:
    """Answer TMPFILE: make a file without a name in that directory's branch; link() may give it one. Returns as create()."""
    parent, tree, directory = conn.access.directory(parent_id, ctx)
    check_name(conn, ctx, parent, directory, b"\0", is_dir=False)
    made = directory_entries.tmpfile(tree, directory, stat.S_IFREG | mode, Owner(ctx.uid, ctx.gid, ctx.umask))
    data.open_(made, flags & ~os.O_TRUNC)
    reply = conn.replies.unnamed(made)
    return open_handle(conn, made, flags, ctx), made, reply


def link(conn: Connection, node_id: int, new_parent_id: int, new_name: bytes, ctx: CallContext) -> LookupReply:
    """Answer LINK: give a file a second name. EPERM for a directory, EXDEV for another branch's file."""
    parent, tree, directory = parent_of(conn, new_parent_id, new_name, ctx)
    node = conn.nodes[node_id]
    if not isinstance(node, FileNode):
        raise PermissionError(errno.EPERM, "only a file can have two names")
    if node.inode.tree is not tree:
        raise OSError(errno.EXDEV, "another branch")
    caller = conn.guard.in_directory(ctx, parent, tree)
    if caller is not None:
        caller.check_link(node.inode, directory, new_name)
    conn.shared.reservations.check(ctx.pid, directory, new_name)
    requested_changes.link(conn.changes.by(ctx.pid, parent), tree, node.inode, directory, new_name)
    return conn.replies.entry(parent, new_name, node.inode)
