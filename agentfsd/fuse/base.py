"""What every request handler needs: which tree the caller sees, which inode a node stands for, and the reply for it."""

import errno
import itertools
import os
from typing import TYPE_CHECKING

import trio
from pyfuse3 import EntryAttributes, FileInfo, RequestContext

from agentfsd.core.inode import Attributes, Inode
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree
from agentfsd.fuse import entry
from agentfsd.fuse.heal import Healer
from agentfsd.fuse.nodes import DirNode, FileNode, Node, NodeTable, VirtualNode
from agentfsd.fuse.notify import Notifier
from agentfsd.types import Caller, ControlChannel, ControlOpener

if TYPE_CHECKING:
    from agentfsd.binding.table import Bindings


class FileHandle:
    """One open of a regular file; ``privileged``: opened by root, whose writes keep setuid bits."""

    __slots__ = ("inode", "privileged", "writes")

    def __init__(self, inode: Inode, privileged: bool, writes: bool) -> None:
        self.inode, self.privileged, self.writes = inode, privileged, writes


class DirHandle:
    """One open of a directory, in the branch of whoever opened it; the listing is fixed at the first read."""

    __slots__ = ("listing", "node", "tree_id")

    def __init__(self, node: DirNode | VirtualNode, tree_id: str) -> None:
        self.node, self.tree_id = node, tree_id
        self.listing: list[bytes] = []


class TextHandle:
    """One open of a virtual file: ready text, or a control channel."""

    __slots__ = ("channel", "text")

    def __init__(self, text: bytes, channel: ControlChannel | None) -> None:
        self.text, self.channel = text, channel


Handle = FileHandle | DirHandle | TextHandle


class Base:
    """State that all handlers share, and the choke point from (node, caller) to (tree, inode)."""

    def __init__(
        self, overlay: Overlay, bindings: "Bindings", control: ControlOpener, notifier: Notifier, healer: Healer
    ) -> None:
        self.overlay, self.bindings, self.control = overlay, bindings, control
        self.notifier, self.healer = notifier, healer
        self.nodes = NodeTable()
        self.handles: dict[int, Handle] = {}
        self._copy_locks: dict[Inode, trio.Lock] = {}
        self.writers = 0  # files open for writing: the kernel may hold pages of those that are mapped
        self._handle_numbers = itertools.count(1)
        self.owner_uid = os.geteuid()
        self.moves_atime = True  # False for a mount with noatime or ro

    def new_handle(self, handle: Handle) -> int:
        number = next(self._handle_numbers)
        self.handles[number] = handle
        return number

    def file_info(self, inode: Inode, flags: int, ctx: RequestContext) -> FileInfo:
        """The reply to an open that core has counted already.

        Pages stay good: whatever changes the data comes through this very node, or (in the lower) changes mtime, which
        makes the kernel drop them.
        """
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        self.writers += writes
        return FileInfo(fh=self.new_handle(FileHandle(inode, ctx.uid == 0, writes)), keep_cache=True)

    # -- who sees what

    def tree_of(self, node: DirNode, ctx: RequestContext) -> Tree:
        """The tree that a directory's view shows to the caller."""
        fixed = node.view.tree_id
        if fixed:
            tree = self.tree_by_id(fixed)
            self.check_caller(tree, ctx)
            return tree
        return self.tree_by_id(self.healer.stands_in_for(ctx.pid) or self.bindings.branch_of(ctx.pid) or self.overlay.default_id)

    def check_caller(self, tree: Tree, ctx: RequestContext) -> None:
        """A bound process reaches its own branch and that branch's snapshots, whatever descriptor or link leads elsewhere."""
        bound = self.bindings.branch_of(ctx.pid)
        if bound is None or bound == tree.id or (tree.read_only and self.overlay.in_history(bound, tree.id)):
            return
        raise PermissionError(errno.EACCES, "a bound process reaches its own branch only")

    def tree_by_id(self, tree_id: str) -> Tree:
        try:
            return self.overlay.any_tree(tree_id)
        except OSError:
            raise OSError(errno.ESTALE, "the branch or snapshot has gone") from None

    def directory(self, number: int, ctx: RequestContext) -> tuple[DirNode, Tree, Inode]:
        """The directory that a node is for this caller."""
        node = self.nodes[number]
        if isinstance(node, VirtualNode):
            raise PermissionError(errno.EPERM, ".agentfs cannot be changed")
        if not isinstance(node, DirNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")
        tree = self.tree_of(node, ctx)
        return node, tree, self.bound_inode(node, tree)

    def bound_inode(self, node: DirNode, tree: Tree) -> Inode:
        inode = node.bound.get(tree.id)
        if inode is not None and inode.tree is tree:
            return inode
        if node.parent is None:
            found = tree.root
        else:
            found = tree.walk(b"/".join(node.path()))
            if not found.is_dir:
                raise NotADirectoryError(errno.ENOTDIR, "not a directory in this branch")
        if node.view.tree_id:
            self.nodes.bind_fixed(node, found)
        else:
            node.bound[tree.id] = found
        return found

    def inode(self, number: int, ctx: RequestContext) -> Inode:
        """The inode behind any node; EPERM for what is virtual, EACCES for another branch's."""
        node = self.nodes[number]
        if isinstance(node, FileNode):
            self.check_caller(node.inode.tree, ctx)
            return node.inode
        return self.directory(number, ctx)[2]

    def open_inode(self, number: int, ctx: RequestContext) -> Inode:
        """Likewise for requests that any holder of a descriptor makes, whatever branch that is of: fstat, ftruncate."""
        node = self.nodes[number]
        return node.inode if isinstance(node, FileNode) else self.directory(number, ctx)[2]

    def caller(self, ctx: RequestContext) -> Caller:
        return Caller(self.bindings.process_of(ctx.pid), ctx.uid, ctx.gid)

    # -- replies

    def reply(self, parent: DirNode, name: bytes, inode: Inode) -> EntryAttributes:
        """The answer to a look-up that found *inode*; counts one look-up on its node."""
        tree = inode.tree
        attributes = tree.attributes(inode)
        node: Node = self.nodes.directory(parent, name, inode) if inode.is_dir else self.nodes.file(inode)
        node.lookups += 1
        if parent.view.tree_id:
            parent.names.add(name)
            entry_s = entry.LONG_S if inode.id else entry.LOWER_S
            return entry.make(node.id, attributes, entry_s, entry_s)
        return entry.make(node.id, attributes, entry.NOW_S, attr_timeout_s(inode))

    def attributes_reply(self, number: int, inode: Inode) -> EntryAttributes:
        node = self.nodes[number]
        if isinstance(node, DirNode) and not node.view.tree_id:
            timeout_s = entry.NOW_S
        else:
            timeout_s = entry.LONG_S if inode.id else entry.LOWER_S
        return entry.make(number, inode.tree.attributes(inode), entry.NOW_S, timeout_s)

    def virtual_reply(self, node: VirtualNode) -> EntryAttributes:
        node.lookups += 1
        return entry.make(node.id, self.virtual_attributes(node), entry.NOW_S, entry.NOW_S)

    def virtual_attributes(self, node: VirtualNode) -> Attributes:
        mode = 0o040500 if node.is_dir else (0o100600 if node.kind == "control" else 0o100400)
        stamp = self.overlay.parts.lower.stat(b"").st_ctime_ns
        return Attributes(
            (1 << 52) - node.id, mode, 2 if node.is_dir else 1, self.owner_uid, os.getegid(), 0, 0, 0, stamp, stamp, stamp, 0
        )

    def heal(self, parent: DirNode, name: bytes, tree_id: str) -> None:
        """Before an answer to that tree which takes away the dentry of a directory that others have there."""
        other = self.nodes.other_branch_at(parent, name, tree_id)
        if other is not None:
            self.healer.look_up(other, [*parent.path(), name])

    # -- other views of the same branch

    async def changed(self, parent: DirNode, directory: Inode, *names: bytes) -> None:
        """After names changed through *parent*: fixed views of the same branch that may have cached them look again.

        Comes last in a handler, when the reply is ready: others may be served before it returns.
        """
        told = False
        for view in self.nodes.views_of(directory.tree.id):
            other = view.dirs.get(directory)
            if other is not None and other is not parent:
                self.notifier.expire(other, [name for name in names if name in other.names])
                told = True
        if told:
            await self.notifier.settled()


def attr_timeout_s(inode: Inode) -> float:
    """In the caller-dependent view: a directory's node is shared by all branches, a file's is not."""
    if inode.is_dir:
        return entry.NOW_S
    return entry.LONG_S if inode.id else entry.LOWER_S
