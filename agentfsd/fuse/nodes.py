"""What the kernel's node numbers stand for.

In the caller-dependent view all branches that have a directory at a path share one node for it. If each had its own, the look-up
of one branch would replace the dentry of another, and processes would lose their working directory. The node remembers which
directory each branch has there (``bound``). When one branch removes or renames its directory, that branch gets a private node
first, since the kernel does both for every process. A file's node belongs to one branch's inode, so that page caches never mix.
Below ``.agentfs/branches/NAME`` and ``.agentfs/snapshots/NAME``, and on a connection that shows one branch only, every node
belongs to that branch or snapshot alone.
"""

import errno
import itertools
from collections.abc import Iterator
from typing import Protocol, cast

from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse import node_records
from agentfsd.fuse.kernel_nodes import ROOT_NODE, DirNode, FileNode, KernelNode, TreeView, VirtualNode
from agentfsd.fuse.ledger import Ledger
from agentfsd.fuse.node_records import NodeRecords


class FormerNodes(Protocol):
    """Nodes that the kernel has from the daemon before. fuse/node_revival.py implements it."""

    def find(self, number: int) -> KernelNode | None:
        """Enter a node in the table and return it; None if there is none of that number, or what it stood for is not found."""

    def find_file(self, inode: Inode) -> FileNode | None:
        """Enter the node of a file in the table and return it; None if the kernel has none."""

    def forget(self, number: int, count: int) -> None:
        """Take *count* look-ups off a node that is not in the table."""

    def tree_replaced(self, tree: Tree) -> None:
        """Enter all nodes of files of a tree that was just replaced: they stay what they were."""

    def numbers(self) -> list[int]:
        """Return the node of each file that is not in the table."""


class NodeTable:
    """All nodes of one connection, by number.

    Args:
        tree_id: The one branch that the connection shows; "" where each caller sees its own.
        ledger: Where they are recorded for the next daemon.

    Attributes:
        records: Those records.
        former: Nodes that the kernel has from the daemon before, and that no request has named yet; None: there are none.
    """

    def __init__(self, tree_id: str = "", ledger: Ledger | None = None) -> None:
        self.records = NodeRecords(ledger if ledger is not None else Ledger())
        self.former: FormerNodes | None = None
        self._numbers = itertools.count((self.records.ledger.life << 32) + 2)
        self._nodes: dict[int, KernelNode] = {}
        self._files: dict[Inode, FileNode] = {}
        self._left: dict[tuple[str, object], FileNode] = {}  # of restored trees, by tree id and what the data is
        self._view_dirs: list[VirtualNode] = []
        self.uniform_id = ""  # the tree that every caller sees now; "" while callers differ, or names must not be cached
        self.top = TreeView(tree_id)
        self.root = DirNode(ROOT_NODE, self.top, None, b"", self.records.ledger)
        self.root.lookups = 1
        self.top.root = self.root
        self._nodes[ROOT_NODE] = self.root

    def __getitem__(self, number: int) -> KernelNode:
        try:
            return self._nodes[number]
        except KeyError:
            node = self.former.find(number) if self.former is not None else None
            if node is None:
                raise OSError(errno.ESTALE, "no such node") from None
            return node

    def __len__(self) -> int:
        return len(self._nodes)

    def entered(self, number: int) -> KernelNode | None:
        """Return a node that is in the table."""
        return self._nodes.get(number)

    def enter(self, node: KernelNode) -> None:
        """Enter a node that has its record."""
        self._nodes[node.id] = node

    # -- the node for the result of a look-up

    def looked_up(self, node: KernelNode) -> None:
        """Count one more look-up, whose answer is on its way to the kernel."""
        node.lookups += 1
        self.records.looked_up(node)

    def file(self, inode: Inode, parent: DirNode | None, name: bytes) -> FileNode:
        """Return the node of a file; make one if the kernel knows none.

        Args:
            inode: The file.
            parent: The directory in which it was found; None for one without a name.
            name: Its name there.
        """
        node = self._files.get(inode) or self.find_file(inode)
        if node is None:
            node = self._take_over(inode) if self._left else None
            if node is None:
                node = FileNode(next(self._numbers), inode)
                self.records.enter_file(node, parent.id if parent is not None else 0, name)
                self.enter(node)
            self._files[inode] = node
        return node

    def find_file(self, inode: Inode) -> FileNode | None:
        """Return the node of a file, if the kernel knows one."""
        node = self._files.get(inode)
        return node if node is not None or self.former is None else self.former.find_file(inode)

    def add_file(self, node: FileNode) -> None:
        """Enter a file's node that has its record."""
        self.enter(node)
        self._files[node.inode] = node

    def note_pages(self, inode: Inode) -> None:
        """Note that the kernel has pages of a file. Call for each READ and WRITE: the kernel caches their content."""
        node = self._files.get(inode)
        if node is not None:
            node.has_pages = True

    def files(self) -> Iterator[FileNode]:
        """Return every node that is not a directory."""
        return iter(list(self._files.values()))

    def files_of(self, tree_id: str) -> list[int]:
        """Return the ids of a tree's nodes that are not directories."""
        return [node.id for inode, node in self._files.items() if inode.tree.id == tree_id]

    def leave_behind(self, tree: Tree) -> None:
        """After a restore: let files with the same data keep their node, and so the kernel's pages, unless they are open."""
        if self.former is not None:
            self.former.tree_replaced(tree)
        for inode, node in list(self._files.items()):
            if inode.tree is tree and inode.is_file and not inode.opens and inode.nlink:
                self._left[tree.id, _data_key(inode)] = node

    def _take_over(self, inode: Inode) -> FileNode | None:
        node = self._left.pop((inode.tree.id, _data_key(inode)), None)
        if node is None or self._nodes.get(node.id) is not node or node.inode.opens or not node.inode.nlink:
            return None
        if self._files.get(node.inode) is node:
            del self._files[node.inode]
        node.inode = inode
        return node

    def directory(self, parent: DirNode, name: bytes, inode: Inode) -> DirNode:
        """Return the node of the directory *inode*, which its tree has as *name* in *parent*; make one if there is none."""
        if parent.view.tree_id:
            return self._fixed_directory(parent, name, inode)
        tree_id = inode.tree.id
        private = parent.private.get((tree_id, name))
        if private is not None and _may_stand_for(private, inode):
            self.bind(private, inode)
            if private.id not in self._nodes:  # the kernel has forgotten it since
                self.records.enter_directory(private, tree_id)
                self.enter(private)
            return private
        shared = parent.children.get(name)
        if shared is None:
            shared = parent.children[name] = self._new_directory(parent, name)
        if _may_stand_for(shared, inode):
            self.bind(shared, inode)
            return shared
        return self.make_private(parent, name, inode)

    def make_private(self, parent: DirNode, name: bytes, inode: Inode) -> DirNode:
        """Make a node that only this inode's branch sees at that name."""
        node = parent.private[(inode.tree.id, name)] = self._new_directory(parent, name, inode.tree.id)
        self.bind(node, inode)
        return node

    def _fixed_directory(self, parent: DirNode, name: bytes, inode: Inode) -> DirNode:
        view = parent.view
        node = view.dirs.get(inode)
        if node is None:
            # After a restore the same path has another inode. It keeps the node, or processes there would lose their
            # working directory.
            node = parent.children.get(name)
            old = node.bound.get(view.tree_id) if node is not None else None
            if node is None or (old is not None and not old.tree.detached):
                node = self._new_directory(parent, name)
            self.bind(node, inode)
        if node.parent is not parent or node.name != name:
            if node.parent is not None and node.parent.children.get(node.name) is node:
                del node.parent.children[node.name]
            node.parent, node.name = parent, name
            self.records.moved(node)
        parent.children[name] = node
        return node

    def bind(self, node: DirNode, inode: Inode) -> None:
        """Make a node stand for *inode* in its tree."""
        dirs, tree_id = node.view.dirs, inode.tree.id
        old = node.bound.get(tree_id)
        if old is not inode:
            if old is None and not node.view.tree_id:
                self.records.bound(node.id, tree_id)
            if old is not None and dirs.get(old) is node:
                del dirs[old]
            node.bound[tree_id] = inode
        dirs[inode] = node

    def _new_directory(self, parent: DirNode, name: bytes, tree_id: str = "") -> DirNode:
        node = DirNode(next(self._numbers), parent.view, parent, name, self.records.ledger)
        self.records.enter_directory(node, tree_id)
        self.enter(node)
        return node

    def view_root(self, virtual: VirtualNode, tree: Tree) -> DirNode:
        """Return the root node of one tree's view below ``branches`` or ``snapshots``; make it if there is none."""
        view = virtual.views.get(tree.id)
        if view is None or view.root is None:
            view = virtual.views[tree.id] = TreeView(tree.id)
            view.root = DirNode(next(self._numbers), view, None, b"", self.records.ledger)
            self.records.enter_view_root(view.root, virtual.id, tree.id)
            self.enter(view.root)
        self.bind(view.root, tree.root)
        return view.root

    def virtual_child(self, owner: DirNode, parent: VirtualNode | None, name: bytes, kind: str) -> VirtualNode:
        """Return a node of ``.agentfs`` in the view whose root is *owner*; *parent* None for ``.agentfs`` itself."""
        if parent is None:
            if owner.virtual is None:
                self._new_virtual(owner, None, name, kind)
            return cast(VirtualNode, owner.virtual)
        return parent.children.get(name) or self._new_virtual(owner, parent, name, kind)

    def _new_virtual(self, owner: DirNode, parent: VirtualNode | None, name: bytes, kind: str) -> VirtualNode:
        node = VirtualNode(next(self._numbers), kind, name, owner)
        self.records.enter_virtual(node, owner.id if parent is None else parent.id)
        self.add_virtual(node, parent)
        return node

    def add_virtual(self, node: VirtualNode, parent: VirtualNode | None) -> None:
        """Enter a node of ``.agentfs`` that has its record; *parent* None for ``.agentfs`` itself."""
        self.enter(node)
        if parent is None:
            node.owner.virtual = node
        else:
            parent.children[node.name] = node
            if node.kind in ("branches", "snapshots"):
                self._view_dirs.append(node)

    def views_of(self, tree_id: str) -> Iterator[TreeView]:
        """Return the views that show one tree to every caller."""
        if self.top.tree_id == tree_id:
            yield self.top
        for node in self._view_dirs:
            if tree_id in node.views:
                yield node.views[tree_id]

    def cached_views_of(self, tree_id: str) -> Iterator[TreeView]:
        """Return the views where the kernel may cache names of a tree: also the caller-dependent one while all callers see it."""
        if self.top.tree_id == "" and self.uniform_id == tree_id:
            yield self.top
        yield from self.views_of(tree_id)

    def all_views(self) -> Iterator[TreeView]:
        """Return every view of the connection."""
        yield self.top
        for node in self._view_dirs:
            yield from node.views.values()

    def drop_views(self, tree_id: str) -> None:
        """Drop the views of a branch or snapshot that was deleted."""
        for node in self._view_dirs:
            view = node.views.pop(tree_id, None)
            if view is not None and view.root is not None:
                view.gone = True
                if view.root.lookups <= 0:
                    self._forget_directory(view.root)

    # -- following what the kernel does

    def not_taken(self, number: int) -> None:
        """Note, before forget(), that the look-up that the present request counted last does not go to the kernel."""
        node = self._nodes.get(number)
        if node is not None:
            self.records.ledger.uncount(node.at)

    def uncount(self, at: int) -> None:
        """Take one look-up off the node whose record is at *at*, because the kernel does not know of it."""
        if self.records.ledger.kind(at) not in node_records.COUNTED:
            return  # the node has gone, and its place has something else
        number = self.records.ledger.words[(at >> 3) + 1]
        node = self._nodes.get(number)
        if node is None:
            self.records.ledger.words[(at >> 3) + 2] -= 1
        elif node.at == at and node.lookups > 0:  # the request counts it again at once
            node.lookups -= 1
            self.records.counted(node)

    def forget(self, number: int, count: int) -> Inode | DirNode | None:
        """Take *count* look-ups off a node.

        Returns:
            The file's inode, or the directory's node, if the kernel has forgotten it; else None.
        """
        node = self._nodes.get(number)
        if node is None or number == ROOT_NODE:
            if self.former is not None:
                self.former.forget(number, count)
            return None
        node.lookups -= count
        self.records.counted(node)
        if node.lookups > 0:
            return None
        if isinstance(node, FileNode):
            del self._nodes[number]
            self.records.forgotten(node)
            if self._files.get(node.inode) is node:
                del self._files[node.inode]
            if self._left:
                self._left.pop((node.inode.tree.id, _data_key(node.inode)), None)
            return node.inode
        if isinstance(node, DirNode):
            self._forget_directory(node)
            return node
        return None

    def _forget_directory(self, node: DirNode) -> None:
        """Remove a directory's node. The kernel forgets children first, except unhashed ones, which keep their ``parent``."""
        if node.view.root is node and not node.view.gone:
            return  # we keep it, so that the root of a branch keeps its number
        del self._nodes[node.id]
        node.names.take_all()
        self.records.forgotten(node)
        parent = node.parent
        if parent is not None and parent.children.get(node.name) is node:
            del parent.children[node.name]
        self._unbind(node)  # a private node stays in parent.private, where the branch's next look-up finds it

    def unlink_directory(self, node: DirNode) -> None:
        """After rmdir, or a rename onto a directory: detach its node from the name."""
        parent = node.parent
        if parent is not None:
            if parent.children.get(node.name) is node:
                del parent.children[node.name]
            for key in [key for key, child in parent.private.items() if child is node]:
                del parent.private[key]
        self.records.detached(node)
        self._unbind(node)

    @staticmethod
    def _unbind(node: DirNode) -> None:
        for inode in node.bound.values():
            if node.view.dirs.get(inode) is node:
                del node.view.dirs[inode]

    def seen(self, parent: DirNode, name: bytes, tree_id: str) -> DirNode | None:
        """Return the directory node that a branch has at that name now, if the kernel knows one."""
        if parent.view.tree_id:
            return parent.children.get(name)
        node = self.lost(parent, name, tree_id)
        return node if node is not None and tree_id in node.bound else None

    def lost(self, parent: DirNode, name: bytes, tree_id: str) -> DirNode | None:
        """Return the directory node at that name, whether or not it is known what the branch has there."""
        return parent.private.get((tree_id, name)) or parent.children.get(name)

    def find_again(self, node: DirNode, tree_id: str) -> None:
        """Have the directories that a branch has at a node and below found again by their paths."""
        bound = node.bound.pop(tree_id, None)
        if bound is not None and node.view.dirs.get(bound) is node:
            del node.view.dirs[bound]
        private = [child for (owner, _), child in node.private.items() if owner == tree_id]
        for child in (*node.children.values(), *private):
            self.find_again(child, tree_id)

    def other_branch_at(self, parent: DirNode, name: bytes, tree_id: str) -> str | None:
        """Return another branch than *tree_id* that has a directory at that name through the shared node, if there is one."""
        shared = parent.children.get(name)
        if shared is None or shared.lookups <= 0:
            return None
        for other, inode in shared.bound.items():
            if other != tree_id and inode.nlink and not inode.tree.detached and inode.name == name:
                return other
        return None

    def moved(self, node: DirNode, tree_id: str, parent: DirNode, name: bytes) -> None:
        """Move a directory's node after a rename, as the kernel has moved its dentry."""
        old = node.parent
        assert old is not None
        private = old.private.get((tree_id, node.name)) is node
        if private:
            del old.private[(tree_id, node.name)]
        elif old.children.get(node.name) is node:
            del old.children[node.name]
        node.parent, node.name = parent, name
        if private:
            parent.private[(tree_id, name)] = node
        else:
            parent.children[name] = node
        self.records.moved(node)


def _data_key(inode: Inode) -> object:
    """Return a key that is equal for equal data: the content object, or the lower file and its recorded state."""
    return inode.content or (inode.lower_path, inode.lower)


def _may_stand_for(node: DirNode, inode: Inode) -> bool:
    """Return whether a node can stand for *inode*: not while it stands for another live directory of the same branch."""
    bound = node.bound.get(inode.tree.id)
    return bound is None or bound is inode or bound.tree is not inode.tree or bound.nlink == 0
