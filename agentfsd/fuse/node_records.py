"""What the ledger has about nodes: which there are, what they stand for, and how many look-ups of each the kernel holds.

A record is written before the reply that tells the kernel of the node. What must not be lost between a transaction and its reply
(the row that a file gets, the last name that it loses) is written before the transaction is committed. So fuse/node_revival.py
believes the rows first.
"""

import itertools
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import msgspec

from agentfsd.core.tree import Inode
from agentfsd.fuse.ledger import Ledger

if TYPE_CHECKING:
    from agentfsd.fuse.nodes import DirNode, FileNode, KernelNode, VirtualNode

# Kinds of records, and their words. The first two words of a node's record are its number and its look-ups.
TREE = 1  # number that records use for a tree; payload: the tree's id
FILE = 2  # parent's node, row, inode number, tree; payload: name
DIRECTORY = 3  # parent's node, 1 if it has lost its name, version of the record, tree (of a private node, else 0); payload: name
VIEW_ROOT = 4  # the node of `branches` or `snapshots`, 0, 0, tree
VIRTUAL = 5  # node of the directory, node of the view's root; payload: kind, zero byte, name
HELD_NAME = 6  # directory's node; payload: name
GONE = 7  # node, 0, 0, 0, 0, tree; payload: a GoneFile
BOUND = 8  # directory's node, 0, 0, 0, 0, tree: the tree has a directory there
ORDER = 9  # directory's node; payload: the names of its listing in order, with zero bytes between


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

    def enter_file(self, node: "FileNode", parent_id: int, name: bytes) -> None:
        inode = node.inode
        node.at = self.ledger.put(FILE, (node.id, 0, parent_id, inode.id, inode.ino, self.tree(inode.tree.id)), name)
        if not inode.nlink:
            self.goes(node.id, inode)

    def enter_directory(self, node: "DirNode", tree_id: str = "") -> None:
        """Record a directory's node. *tree_id*: the tree that alone sees a private one."""
        self._place(node, self.tree(tree_id))

    def _place(self, node: "DirNode", tree: int) -> None:
        parent_id = node.parent.id if node.parent is not None else 0
        words = (node.id, node.lookups, parent_id, 0, next(self._versions), tree)
        node.at = self.ledger.put(DIRECTORY, words, node.name)

    def enter_view_root(self, node: "DirNode", virtual_id: int, tree_id: str) -> None:
        node.at = self.ledger.put(VIEW_ROOT, (node.id, 0, virtual_id, 0, 0, self.tree(tree_id)))

    def enter_virtual(self, node: "VirtualNode", parent_id: int) -> None:
        words = (node.id, 0, parent_id, node.owner.id, 0, 0)
        node.at = self.ledger.put(VIRTUAL, words, node.kind.encode() + b"\0" + node.name)

    def counted(self, node: "KernelNode") -> None:
        """Record how many look-ups the kernel holds by now."""
        self._words[(node.at >> 3) + 2] = node.lookups

    def moved(self, node: "DirNode") -> None:
        """Record a directory's new place. The old record goes last; the one of the higher version counts."""
        old = node.at
        self._place(node, self._words[(old >> 3) + 6])
        self.ledger.drop(old)

    def detached(self, node: "DirNode") -> None:
        """Record that a directory has lost its name."""
        self._words[(node.at >> 3) + 4] = 1

    def bound(self, node_id: int, tree_id: str) -> None:
        """Record that a tree has a directory at a node that several trees may share."""
        at = self.ledger.put(BOUND, (node_id, 0, 0, 0, 0, self.tree(tree_id)))
        self._bound.setdefault(node_id, []).append(at)

    def bound_at(self, node_id: int, at: int) -> None:
        """Take over such a record from the daemon before."""
        self._bound.setdefault(node_id, []).append(at)

    def forgotten(self, node: "KernelNode") -> None:
        """Remove a node's record."""
        self.ledger.drop(node.at)
        node.at = 0
        self.ledger.drop(self._gone.pop(node.id, 0))
        self.ledger.drop(self._orders.pop(node.id, 0))
        for at in self._bound.pop(node.id, ()):
            self.ledger.drop(at)

    def ordered(self, node: "DirNode") -> None:
        """Record a directory's order of names, in which the kernel reads on by position."""
        before = self._orders.get(node.id, 0)
        self._orders[node.id] = self.ledger.put(ORDER, (node.id, 0, 0, 0, 0, 0), b"\0".join(node.order))
        self.ledger.drop(before)

    def ordered_at(self, node_id: int, at: int) -> None:
        """Take over such a record from the daemon before."""
        self._orders[node_id] = at

    # -- what becomes of a file

    def stored(self, node: "FileNode", row_id: int) -> None:
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


class HeldNames:
    """The names in one directory that the kernel may hold for long."""

    __slots__ = ("_at", "_ledger", "_node_id")

    def __init__(self, ledger: Ledger, node_id: int) -> None:
        self._ledger, self._node_id = ledger, node_id
        self._at: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, name: object) -> bool:
        return name in self._at

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._at)

    def add(self, name: bytes, *, is_recorded: bool = False) -> None:
        """Add a name. *is_recorded*: the record of a node says so already."""
        if name not in self._at:
            self._at[name] = 0 if is_recorded else self._ledger.put(HELD_NAME, (self._node_id, 0, 0, 0, 0, 0), name)

    def take(self, names: Collection[bytes]) -> set[bytes]:
        """Take out those of *names* that are held; return them. The caller must expire them."""
        held = self._at.keys() & set(names)
        places = [at for name in held if (at := self._at.pop(name))]
        if places:
            self._ledger.drop_later(places)
        return held

    def take_over(self, name: bytes, at: int) -> None:
        """Take a name over from the daemon before. *at*: its record; 0: the record of a node says so."""
        if name in self._at:
            self._ledger.drop(at)
        else:
            self._at[name] = at

    def take_all(self) -> set[bytes]:
        """Take out all names; return them. The caller must expire them."""
        return self.take(self._at)
