"""Requests about a directory's listing: OPENDIR, READDIR, READDIRPLUS, RELEASEDIR, FSYNCDIR."""

import errno
from collections.abc import Iterator

import trio

from agentfsd.core import inode_stat
from agentfsd.core.linked_worktrees import GIT_FILE
from agentfsd.core.rule_checks import RuledCaller
from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.handlers import control_directory
from agentfsd.fuse.handlers.control_directory import DOTS, dot_entry
from agentfsd.fuse.handlers.lookup import forget
from agentfsd.fuse.handles import DirHandle
from agentfsd.fuse.kernel_nodes import DirNode, VirtualNode
from agentfsd.fuse.reply import CallContext, ListedName, LookupReply
from agentfsd.types import CONTROL_DIR


def opendir(conn: Connection, node_id: int, ctx: CallContext) -> int:
    """Answer OPENDIR: return a handle's number."""
    node = conn.nodes[node_id]
    if isinstance(node, VirtualNode):
        return conn.handles.add(_virtual(conn, node, ctx), node_id)
    directory, tree, inode = conn.access.directory(node_id, ctx)
    handle = DirHandle(directory, tree.id)
    handle.opener = ctx.pid
    handle.caller = conn.guard.in_directory(ctx, directory, tree)
    if handle.caller is not None:
        handle.caller.check_open(inode, writes=False)
    return conn.handles.add(handle, node_id)


def _virtual(conn: Connection, node: VirtualNode, ctx: CallContext) -> DirHandle:
    handle = DirHandle(node, "")
    handle.opener, handle.bound = ctx.pid, conn.bindings.branch_of(ctx.pid)
    if node.kind == "branches" and handle.bound is not None:
        raise PermissionError(errno.EACCES, "a bound process sees its own branch only")
    return handle


def read_directory(conn: Connection, number: int, start: int) -> Iterator[ListedName]:
    """List an open directory from a position on. Each entry that is taken counts as a look-up: see untaken()."""
    handle = conn.handles[number]
    if not isinstance(handle, DirHandle):
        raise OSError(errno.EBADF, "no directory")
    if isinstance(handle.node, VirtualNode):
        yield from control_directory.list_virtual(conn, handle.node, handle, start)
        return
    tree = conn.access.tree_by_id(handle.tree_id)
    directory = conn.access.bound_inode(handle.node, tree)
    if start == 0 or not handle.listing:  # the kernel may have had what comes before *start* from another open's listing
        conn.replies.watch(handle.node, directory)
        shared = handle.is_shared or conn.replies.caches(handle.node.view, tree)
        names = _names(handle.node, tree, directory)
        handle.listing = [*DOTS, *(_in_order(conn, handle.node, names) if shared else names)]
        conn.handles.listed(handle)
    yield from _list(conn, handle.node, directory, handle.listing, start, handle.caller)


def read_unopened(conn: Connection, node_id: int, start: int, ctx: CallContext) -> Iterator[ListedName]:
    """List a directory where the kernel opens none: every name keeps its position for all who list at once."""
    node = conn.nodes[node_id]
    if isinstance(node, VirtualNode):
        yield from control_directory.list_virtual(conn, node, _virtual(conn, node, ctx), start)
        return
    parent, tree, directory = conn.access.directory(node_id, ctx)
    caller = conn.guard.in_directory(ctx, parent, tree)
    if caller is not None:
        caller.check_open(directory, writes=False)
    if start == 0 or not parent.order:
        conn.replies.watch(parent, directory)
        _in_order(conn, parent, _names(parent, tree, directory))
    yield from _list(conn, parent, directory, [*DOTS, *parent.order], start, caller)


def _names(node: DirNode, tree: Tree, directory: Inode) -> list[bytes]:
    hidden = CONTROL_DIR if node.parent is None else None
    return [name for name in tree.names(directory) if name != hidden]


def _in_order(conn: Connection, node: DirNode, names: list[bytes]) -> list[bytes]:
    """Return names that a directory has or had: each stays where it stood in earlier listings, or positions would change."""
    known = set(node.order)
    if len(known) > 2 * len(names) + 64:
        node.order, known = [], set()
    new = [name for name in names if name not in known]
    if new:
        node.order += new
        conn.nodes.records.ordered(node)
    return node.order


def _list(
    conn: Connection, parent: DirNode, directory: Inode, listing: list[bytes], start: int, caller: RuledCaller | None
) -> Iterator[ListedName]:
    tree = directory.tree
    for position in range(start, len(listing)):
        name = listing[position]
        if position < len(DOTS):
            inode = directory if position == 0 or directory.parent is None else directory.parent
            yield ListedName(name, dot_entry(conn.replies.attributes(inode)), position + 1)
            continue
        if name == GIT_FILE and parent.parent is None and control_directory.shows_git_file(conn, parent):
            yield ListedName(name, control_directory.git_file(conn, parent), position + 1)
            continue
        try:
            child = inode_stat.look(tree, directory, name)
            if child is None:
                continue
            if caller is not None and caller.hides(directory, name, is_dir=child[0].is_dir):
                continue
            reply = conn.replies.entry(parent, name, *child)
        except OSError:
            continue  # it changed or vanished in the lower since the listing was made
        yield ListedName(name, reply, position + 1)


def untaken(conn: Connection, entry: LookupReply) -> None:
    """Take back the look-up of an entry that did not fit into the answer, or went without attributes."""
    if entry.node_id:
        conn.nodes.not_taken(entry.node_id)
        forget(conn, entry.node_id, 1)


def may_cache_listing(conn: Connection, number: int) -> bool:
    """Return whether all who list an open directory see the same, and note it in the handle."""
    handle = conn.handles[number]
    if not isinstance(handle, DirHandle) or isinstance(handle.node, VirtualNode):
        return False
    handle.is_shared = not _differs(conn, handle) and conn.replies.caches(
        handle.node.view, conn.access.tree_by_id(handle.tree_id)
    )
    return handle.is_shared


def _differs(conn: Connection, handle: DirHandle) -> bool:
    """Return whether rules hide names of this branch from some who may list it here, and not from others."""
    return conn.guard.rules.hides and not conn.cache.tree_id and conn.guard.rules.hides_below(handle.tree_id)


def releasedir(conn: Connection, number: int) -> None:
    """Answer RELEASEDIR."""
    conn.handles.remove(number)


async def sync_names(conn: Connection) -> None:
    """Answer FSYNCDIR: bring all rows to the disk, in a thread."""
    conn.overlay.store.commit()
    await trio.to_thread.run_sync(conn.overlay.store.sync)
