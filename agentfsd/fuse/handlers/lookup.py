"""LOOKUP and FORGET, and the directory in which a request is to change a name."""

import errno

from agentfsd.core import inode_stat
from agentfsd.core.linked_worktrees import GIT_FILE
from agentfsd.core.rule_set import HIDE, UNKNOWN
from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.handlers import control_directory
from agentfsd.fuse.kernel_nodes import DirNode, VirtualNode
from agentfsd.fuse.reply import CallContext, LookupReply
from agentfsd.types import CONTROL_DIR


def lookup(conn: Connection, parent_id: int, name: bytes, ctx: CallContext) -> LookupReply:
    """Answer LOOKUP; a name that is not there is an answer with ``node_id`` 0, or FileNotFoundError in ``.agentfs``."""
    node = conn.nodes[parent_id]
    if isinstance(node, VirtualNode):
        return control_directory.lookup_virtual(conn, node, name, ctx)
    parent, tree, directory = conn.access.directory(parent_id, ctx)
    if parent.parent is None:
        if name == CONTROL_DIR:
            return control_directory.lookup_control_dir(conn, parent, ctx)
        if name == GIT_FILE and control_directory.shows_git_file(conn, parent):
            return control_directory.git_file(conn, parent)
    conn.replies.watch(parent, directory)
    child = inode_stat.look(tree, directory, name)
    verdict = UNKNOWN
    if child is not None and conn.guard.rules.active:
        verdict = conn.guard.looked_up(ctx, parent.view.tree_id, directory, name, child[0])
        if verdict == HIDE:
            return conn.replies.hidden(parent, directory, name)
    conn.shared.reservations.looked(ctx.pid, directory, name, exists=child is not None)
    caller_dependent = not parent.view.tree_id
    if child is None:
        if caller_dependent:
            conn.changes.revive(parent, name, tree.id)
        return conn.replies.missing(parent, directory, name)
    inode, attributes = child
    answer = conn.replies.entry(parent, name, inode, attributes, verdict)
    if caller_dependent and (not inode.is_dir or conn.nodes[answer.node_id] is not parent.children.get(name)):
        conn.changes.revive(parent, name, tree.id)
    return answer


def forget(conn: Connection, node_id: int, count: int) -> Inode | None:
    """Take *count* look-ups off a node; return the file of which the kernel knows nothing any more, if it is one."""
    gone = conn.nodes.forget(node_id, count)
    if not isinstance(gone, DirNode):
        return gone
    if gone.watched is not None:
        conn.shared.unwatch(gone.watched, conn.cache, gone)
    return None


def parent_of(conn: Connection, node_id: int, name: bytes, ctx: CallContext) -> tuple[DirNode, Tree, Inode]:
    """Return the directory in which a name is to change, as TreeAccess.directory; PermissionError for the daemon's own."""
    parent, tree, directory = conn.access.directory(node_id, ctx)
    if parent.parent is None:
        if name == CONTROL_DIR:
            raise PermissionError(errno.EPERM, ".agentfs is agentfsd's own")
        if name == GIT_FILE and control_directory.shows_git_file(conn, parent):
            raise PermissionError(errno.EPERM, "the .git file of a worktree is agentfsd's own")
    return parent, tree, directory


def check_name(conn: Connection, ctx: CallContext, parent: DirNode, directory: Inode, name: bytes, *, is_dir: bool) -> None:
    """Check that no rule keeps the caller from making, removing or replacing a name. See RuledCaller."""
    caller = conn.guard.in_directory(ctx, parent, directory.tree)
    if caller is not None:
        caller.check_name(directory, name, is_dir=is_dir)
