"""The choke point from (node, caller) to (tree, inode): which tree a caller sees, and whether it may reach a branch."""

import errno

from agentfsd.binding.table import IN_DOUBT, Bindings
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse.dentry_revival import DentryReviver
from agentfsd.fuse.kernel_nodes import DirNode, FileNode, VirtualNode
from agentfsd.fuse.nodes import NodeTable
from agentfsd.fuse.reply import CallContext
from agentfsd.types import Caller


class TreeAccess:
    """Resolves nodes and callers on one connection."""

    def __init__(self, overlay: Overlay, bindings: Bindings, nodes: NodeTable, reviver: DentryReviver | None) -> None:
        self._overlay, self._bindings, self._nodes, self._reviver = overlay, bindings, nodes, reviver

    def tree_of(self, node: DirNode, ctx: CallContext) -> Tree:
        """Return the tree that a directory's view shows to the caller.

        Raises:
            PermissionError: EACCES, the caller is bound to another branch, or in doubt.
            OSError: ESTALE, the branch or snapshot was deleted.
        """
        fixed = node.view.tree_id
        if fixed:
            tree = self.tree_by_id(fixed)
            self.check_caller(tree, ctx)
            return tree
        stands_for = self._reviver.stands_in_for(ctx.pid) if self._reviver is not None else None
        return self.tree_by_id(stands_for or self._bindings.branch_of(ctx.pid) or self._overlay.default_id)

    def check_caller(self, tree: Tree, ctx: CallContext) -> None:
        """Check that the caller may reach a tree, whatever descriptor or link leads there.

        A bound process reaches its own branch and that branch's snapshots; any other process reaches all.

        Raises:
            PermissionError: EACCES.
        """
        bound = self._bindings.branch_of(ctx.pid)
        if bound is None or bound == tree.id or (tree.read_only and self._overlay.snapshots.in_history(bound, tree.id)):
            return
        raise PermissionError(errno.EACCES, "a bound process reaches its own branch only")

    def tree_by_id(self, tree_id: str) -> Tree:
        """Return a live tree; OSError: ESTALE once it was deleted, EACCES for a caller of whom the branch is in doubt."""
        try:
            return self._overlay.trees.by_id(tree_id)
        except OSError:
            if tree_id == IN_DOUBT:
                raise PermissionError(errno.EACCES, "the process may have escaped from a branch") from None
            raise OSError(errno.ESTALE, "the branch or snapshot has gone") from None

    def directory(self, node_id: int, ctx: CallContext) -> tuple[DirNode, Tree, Inode]:
        """Return the directory that a node is for this caller: its node, the caller's tree, its inode there.

        Raises:
            PermissionError: EPERM for ``.agentfs``, EACCES for another branch's.
            OSError: ENOTDIR, ENOENT where the branch has no such directory, ESTALE.
        """
        node = self._nodes[node_id]
        if isinstance(node, VirtualNode):
            raise PermissionError(errno.EPERM, ".agentfs cannot be changed")
        if not isinstance(node, DirNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")
        tree = self.tree_of(node, ctx)
        return node, tree, self.bound_inode(node, tree)

    def bound_inode(self, node: DirNode, tree: Tree) -> Inode:
        """Return the directory that a node stands for in a tree; walk its path where that is not known yet."""
        inode = node.bound.get(tree.id)
        if inode is not None and inode.tree is tree:
            return inode
        if node.parent is None:
            inode = tree.root
        else:
            inode = tree.walk(b"/".join(node.path()))
            if not inode.is_dir:
                raise NotADirectoryError(errno.ENOTDIR, "not a directory in this branch")
        self._nodes.bind(node, inode)
        return inode

    def inode(self, node_id: int, ctx: CallContext) -> Inode:
        """Return the inode behind any node; PermissionError: EPERM for ``.agentfs``, EACCES for another branch's."""
        node = self._nodes[node_id]
        if isinstance(node, FileNode):
            self.check_caller(node.inode.tree, ctx)
            return node.inode
        return self.directory(node_id, ctx)[2]

    def open_inode(self, node_id: int, ctx: CallContext) -> Inode:
        """Return the inode for a request by descriptor (fstat, ftruncate): any process may that has the descriptor."""
        node = self._nodes[node_id]
        return node.inode if isinstance(node, FileNode) else self.directory(node_id, ctx)[2]

    def file(self, node_id: int, ctx: CallContext) -> Inode:
        """Return the regular file that is read or written without an open; EISDIR, EINVAL for what is none."""
        node = self._nodes[node_id]
        if not isinstance(node, FileNode) or not node.inode.is_file:
            raise OSError(errno.EISDIR if isinstance(node, DirNode) else errno.EINVAL, "no file")
        self.check_caller(node.inode.tree, ctx)
        return node.inode

    def caller(self, ctx: CallContext) -> Caller:
        """Return who asks, for the control service: a process instead of a thread."""
        return Caller(self._bindings.process_of(ctx.pid), ctx.uid, ctx.gid)
