"""What the ledger has about nodes: which there are, what they stand for, and how many look-ups of each the kernel holds.

A record is written before the reply that tells the kernel of the node. What must not be lost between a transaction and its reply
(the row that a file gets, the last name that it loses) is written before the transaction is committed. So fuse/node_revival.py
believes the rows first.
"""

import itertools

import msgspec

from agentfsd.core.tree import Inode
from agentfsd.fuse import held_names
from agentfsd.fuse.kernel_nodes import DirNode, FileNode, KernelNode, VirtualNode
from agentfsd.fuse.ledger import Ledger

# Kinds of records, and their words. The first two words of a node's record are its number and its look-ups.
TREE = 1  # number that records use for a tree; payload: the tree's id
FILE = 2  # parent's node, row, inode number, tree; payload: name, and a zero byte and the path if it had several names
DIRECTORY = 3  # parent's node, 1 if it has lost its name, version of the record, tree (of a private node, else 0); payload: name
VIEW_ROOT = 4  # the node of `branches` or `snapshots`, 0, 0, tree
VIRTUAL = 5  # node of the directory, node of the view's root; payload: kind, zero byte, name
HELD_NAME = held_names.HELD_NAME
GONE = 7  # node, 0, 0, 0, 0, tree; payload: a GoneFile
BOUND = 8  # directory's node, 0, 0, 0, 0, tree: the tree has a directory there
ORDER = 9  # directory's node; payload: the names of its listing in order, with zero bytes between

COUNTED = (FILE, DIRECTORY, VIEW_ROOT, VIRTUAL)  # those with look-ups


class GoneFile(msgspec.Struct, array_like=True):
    """A file or directory without a name.

    Attributes:
        row: The fields of its InodeRow.
        content: Its content object that goes with it; 0: ``row`` says where the content is.
        linkable: It never had a name, so that it may get one.
    """

    row: list[int | bytes | None]
    content: int
    linkable: bool


_encoder = msgspec.msgpack.Encoder()


class NodeRecords:
    """The records of one connection's nodes."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._words = ledger.words
        self._trees: dict[str, int] = {}
        self._gone: dict[int, int] = {}
        self._bound: dict[int, list[int]] = {}
        self._orders: dict[int, int] = {}
        self._versions = itertools.count(ledger.life << 32 | 1)

    def tree(self, tree_id: str) -> int:
        """Return the number that records use for a tree; 0 for none."""
        number = self._trees.get(tree_id, 0)
        if not number and tree_id:
            number = self._trees[tree_id] = max(self._trees.values(), default=0) + 1
            self.ledger.put(TREE, (number, 0, 0, 0, 0, 0), tree_id.encode())
        return number

    def tree_id(self, number: int) -> str:
        """Return the tree of that number; "" for none."""
        return next((tree_id for tree_id, known in self._trees.items() if known == number), "")

    def tree_is(self, tree_id: str, number: int) -> None:
        """Take over the number of a tree from the daemon before."""
        self._trees[tree_id] = number

    # -- nodes

    def enter_file(self, node: FileNode, parent_id: int, name: bytes) -> None:
        inode = node.inode
        if inode.linked and not inode.id and inode.lower_path is not None:
            name += b"\0" + inode.path  # the kernel may forget the directory of this name, and know the file by another one
        node.at = self.ledger.put(FILE, (node.id, 0, parent_id, inode.id, inode.ino, self.tree(inode.tree.id)), name)
        if not inode.nlink:
            self.goes(node.id, inode)

    def enter_directory(self, node: DirNode, tree_id: str = "") -> None:
        """Record a directory's node. *tree_id*: the tree that alone sees a private one."""
        self._place(node, self.tree(tree_id))

    def _place(self, node: DirNode, tree: int) -> None:
        parent_id = node.parent.id if node.parent is not None else 0
        words = (node.id, node.lookups, parent_id, 0, next(self._versions), tree)
        node.at = self.ledger.put(DIRECTORY, words, node.name)

    def enter_view_root(self, node: DirNode, virtual_id: int, tree_id: str) -> None:
        node.at = self.ledger.put(VIEW_ROOT, (node.id, 0, virtual_id, 0, 0, self.tree(tree_id)))

    def enter_virtual(self, node: VirtualNode, parent_id: int) -> None:
        words = (node.id, 0, parent_id, node.owner.id, 0, 0)
        node.at = self.ledger.put(VIRTUAL, words, node.kind.encode() + b"\0" + node.name)

    def counted(self, node: KernelNode) -> None:
        """Record how many look-ups the kernel holds by now. It may say that it forgets more than those: then none."""
        self._words[(node.at >> 3) + 2] = max(node.lookups, 0)

    def looked_up(self, node: KernelNode) -> None:
        """Record one more look-up. If the daemon is killed before it has answered, the kernel does not know of it."""
        self._words[(node.at >> 3) + 2] = node.lookups
        self.ledger.count(node.at)

    def moved(self, node: DirNode) -> None:
        """Record a directory's new place. The old record goes last; the one of the higher version counts."""
        old = node.at
        self._place(node, self._words[(old >> 3) + 6])
        self.ledger.drop(old)

    def detached(self, node: DirNode) -> None:
        """Record that a directory has lost its name."""
        self._words[(node.at >> 3) + 4] = 1

    def bound(self, node_id: int, tree_id: str) -> None:
        """Record that a tree has a directory at a node that several trees may share."""
        at = self.ledger.put(BOUND, (node_id, 0, 0, 0, 0, self.tree(tree_id)))
        self._bound.setdefault(node_id, []).append(at)

    def bound_at(self, node_id: int, at: int) -> None:
        """Take over such a record from the daemon before."""
        self._bound.setdefault(node_id, []).append(at)

    def forgotten(self, node: KernelNode) -> None:
        """Remove a node's record."""
        self.ledger.drop(node.at)
        node.at = 0
        self.ledger.drop(self._gone.pop(node.id, 0))
        self.ledger.drop(self._orders.pop(node.id, 0))
        for at in self._bound.pop(node.id, ()):
            self.ledger.drop(at)

    def ordered(self, node: DirNode) -> None:
        """Record a directory's order of names, in which the kernel reads on by position."""
        before = self._orders.get(node.id, 0)
        self._orders[node.id] = self.ledger.put(ORDER, (node.id, 0, 0, 0, 0, 0), b"\0".join(node.order))
        self.ledger.drop(before)

    def ordered_at(self, node_id: int, at: int) -> None:
        """Take over such a record from the daemon before."""
        self._orders[node_id] = at

    # -- what becomes of a file

    def stored(self, node: FileNode, row_id: int) -> None:
        """Record that a file gets a row. Call it before the row is committed."""
        self._words[(node.at >> 3) + 4] = row_id

    def goes(self, node_id: int, inode: Inode) -> None:
        """Record what a file or directory without a name is. Call it before the loss of the last name is committed."""
        row = inode.row(inode.tree.head)._replace(nlink=0)
        content = inode.doomed or (inode.content if inode.content_layer == inode.tree.head else 0)
        payload = _encoder.encode(GoneFile(list(row), content, inode.linkable))
        before = self._gone.get(node_id, 0)
        self._gone[node_id] = self.ledger.put(GONE, (node_id, 0, 0, 0, 0, self.tree(inode.tree.id)), payload)
        self.ledger.drop(before)

    def got_name(self, node_id: int) -> None:
        """Remove what goes() recorded."""
        self.ledger.drop(self._gone.pop(node_id, 0))

    def gone_at(self, node_id: int, at: int) -> None:
        """Take over such a record from the daemon before."""
        self._gone[node_id] = at
