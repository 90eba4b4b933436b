"""Requests that take a name away or move it: UNLINK, RMDIR, RENAME, RENAME2."""

import errno

from agentfsd.core import requested_changes
from agentfsd.core.directory_entries import RENAME_EXCHANGE
from agentfsd.core.rule_checks import RuledCaller
from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.handlers.lookup import check_name, parent_of
from agentfsd.fuse.kernel_nodes import DirNode
from agentfsd.fuse.reply import CallContext


def unlink(conn: Connection, parent_id: int, name: bytes, ctx: CallContext) -> None:
    """Answer UNLINK."""
    parent, tree, directory = parent_of(conn, parent_id, name, ctx)
    check_name(conn, ctx, parent, directory, name, is_dir=False)
    requested_changes.unlink(conn.changes.by(ctx.pid, parent), tree, directory, name)


def rmdir(conn: Connection, parent_id: int, name: bytes, ctx: CallContext) -> None:
    """Answer RMDIR."""
    parent, tree, directory = parent_of(conn, parent_id, name, ctx)
    check_name(conn, ctx, parent, directory, name, is_dir=True)
    inode = tree.lookup(directory, name)
    if inode.is_dir and tree.is_empty(inode):
        _part_from_others(conn, parent, [(parent, name, inode)])
    requested_changes.rmdir(conn.changes.by(ctx.pid, parent), tree, directory, name)
    directory_removed(conn, parent, name, tree)


def directory_removed(conn: Connection, parent: DirNode, name: bytes, tree: Tree) -> None:
    """Detach the node of a directory that has been removed."""
    node = conn.nodes.seen(parent, name, tree.id)
    if node is not None:
        conn.nodes.unlink_directory(node)
    conn.changes.revive(parent, name, tree.id)


def _part_from_others(conn: Connection, parent: DirNode, moving: list[tuple[DirNode, bytes, Inode | None]]) -> None:
    """Before the kernel moves or removes a directory's node: see that no other branch stands in it.

    This branch gets a node of its own, and ESTALE makes the kernel look the name up again and come back with that node.
    """
    if parent.view.tree_id:
        return
    parted = False
    for directory, name, inode in moving:
        if inode is None or not inode.is_dir:
            continue
        node = conn.nodes.seen(directory, name, inode.tree.id)
        if node is not None and directory.children.get(name) is node and len(node.bound) > 1:
            conn.nodes.make_private(directory, name, inode)
            parted = True
    if parted:
        raise OSError(errno.ESTALE, "look again")


def rename(
    conn: Connection, old_parent_id: int, old_name: bytes, new_parent_id: int, new_name: bytes, flags: int, ctx: CallContext
) -> None:
    """Answer RENAME and RENAME2.

    Args:
        flags: Those of renameat2(2).

    Raises:
        OSError: EXDEV between two branches or two views; what rename(2) gives; ESTALE has the kernel look again.
    """
    old_parent, tree, old_dir = parent_of(conn, old_parent_id, old_name, ctx)
    new_parent, new_tree, new_dir = parent_of(conn, new_parent_id, new_name, ctx)
    if new_tree is not tree or old_parent.view is not new_parent.view:
        raise OSError(errno.EXDEV, "another view")
    source, target = tree.lookup(old_dir, old_name), tree.find(new_dir, new_name)
    caller = conn.guard.in_directory(ctx, old_parent, tree)
    if caller is not None:
        _check_rules(caller, (old_dir, old_name, source), (new_dir, new_name, target), flags)
    conn.shared.reservations.check(ctx.pid, new_dir, new_name)
    _part_from_others(conn, old_parent, [(old_parent, old_name, source), (new_parent, new_name, target)])
    requested_changes.rename(
        conn.changes.by(ctx.pid, old_parent, new_parent), tree, old_dir, old_name, new_dir, new_name, flags
    )  # fmt: skip
    if source.is_dir or (flags & RENAME_EXCHANGE and target is not None and target.is_dir):
        conn.guard.rules.directory_moved()
    _move_directories(conn, (old_parent, old_name, source), (new_parent, new_name, target), tree, flags)
    conn.nodes.records.ledger.mark(_moved(conn), 1)
    _follow_names(conn, (old_parent, old_name), (new_parent, new_name), tree, flags)


def _moved(conn: Connection) -> int:
    """Return the mark of the present request for that directories' nodes were moved. (Marks above 0 are about appends.)"""
    return -conn.handles.request


def renamed_before(
    conn: Connection, old_parent_id: int, old_name: bytes, new_parent_id: int, new_name: bytes, flags: int, ctx: CallContext
) -> None:
    """Answer a rename that was done before the daemon was killed: move the nodes of directories, which it may not have done."""
    old_parent, tree, old_dir = parent_of(conn, old_parent_id, old_name, ctx)
    new_parent, _, new_dir = parent_of(conn, new_parent_id, new_name, ctx)
    if _moved(conn) in conn.nodes.records.ledger.marks():
        return
    moved, other = tree.find(new_dir, new_name), tree.find(old_dir, old_name)
    exchanged = bool(flags & RENAME_EXCHANGE)
    if not (moved is not None and moved.is_dir) and not (exchanged and other is not None and other.is_dir):
        return
    source, target = (conn.nodes.lost(parent, name, tree.id) for parent, name in ((old_parent, old_name), (new_parent, new_name)))
    if target is not None and not exchanged:
        conn.nodes.unlink_directory(target)
    if source is not None:
        conn.nodes.moved(source, tree.id, new_parent, new_name)
    if target is not None and exchanged:
        conn.nodes.moved(target, tree.id, old_parent, old_name)
    for node in (source, target):
        if node is not None:
            conn.nodes.find_again(node, tree.id)


def _check_rules(
    caller: RuledCaller, old: tuple[Inode, bytes, Inode], new: tuple[Inode, bytes, Inode | None], flags: int
) -> None:
    (old_dir, old_name, source), (new_dir, new_name, target) = old, new
    caller.check_rename(old_dir, old_name, source, new_dir, new_name)
    if target is not None and flags & RENAME_EXCHANGE:
        caller.check_rename(new_dir, new_name, target, old_dir, old_name)


def _move_directories(
    conn: Connection, old: tuple[DirNode, bytes, Inode], new: tuple[DirNode, bytes, Inode | None], tree: Tree, flags: int
) -> None:
    """Move the nodes of directories as the kernel has moved their dentries."""
    (old_parent, old_name, source), (new_parent, new_name, target) = old, new
    moved = conn.nodes.seen(old_parent, old_name, tree.id) if source.is_dir else None
    replaced = conn.nodes.seen(new_parent, new_name, tree.id) if target is not None and target.is_dir else None
    if replaced is not None and not flags & RENAME_EXCHANGE:
        conn.nodes.unlink_directory(replaced)
    if moved is not None:
        conn.nodes.moved(moved, tree.id, new_parent, new_name)
    if replaced is not None and flags & RENAME_EXCHANGE:
        conn.nodes.moved(replaced, tree.id, old_parent, old_name)
    if moved is not None:
        conn.changes.revive(old_parent, old_name, tree.id)


def _follow_names(conn: Connection, old: tuple[DirNode, bytes], new: tuple[DirNode, bytes], tree: Tree, flags: int) -> None:
    """Note the names that the kernel holds after a rename.

    The kernel moves what it has of a name. If another connection has changed that meanwhile, the kernel has something else there
    than we have renamed, and must look it up.
    """
    if not conn.replies.caches(new[0].view, tree):
        return
    places = (old, new) if flags & RENAME_EXCHANGE else (new,)
    doubtful = any(name not in directory.names for directory, name in (places if flags & RENAME_EXCHANGE else (old,)))
    for directory, name in places:
        directory.names.add(name)
        if doubtful:
            conn.notifier.expire(directory, [name])
