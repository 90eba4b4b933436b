"""The kinds of nodes: what one node number of the kernel stands for. Which node that is, nodes.py says."""

from agentfsd.core.tree import Inode
from agentfsd.fuse.held_names import HeldNames
from agentfsd.fuse.ledger import Ledger

ROOT_NODE = 1


class TreeView:
    """A part of the mount that chooses its tree in one way.

    Attributes:
        tree_id: The fixed branch or snapshot that the view shows; "" where each caller sees its own.
        gone: The branch or snapshot was deleted. The view lasts while the kernel holds nodes of it.
        root: The node of the view's root.
        dirs: The node of each directory that the kernel knows.
    """

    __slots__ = ("dirs", "gone", "root", "tree_id")

    def __init__(self, tree_id: str) -> None:
        self.tree_id = tree_id
        self.gone = False
        self.root: DirNode | None = None
        self.dirs: dict[Inode, DirNode] = {}


class KernelNode:
    """What one node number stands for.

    Attributes:
        id: The number.
        lookups: How many look-ups the kernel holds (nlookup). At 0 NodeTable.forget() removes the node, unless it is virtual or
            the root of a view that is not gone.
        at: Where its record is in the ledger; 0: it has none.
    """

    __slots__ = ("at", "id", "lookups")

    def __init__(self, number: int) -> None:
        self.id = number
        self.lookups = 0
        self.at = 0


class FileNode(KernelNode):
    """The node of anything but a directory.

    Attributes:
        inode: Its inode, which belongs to one tree.
        has_pages: The kernel may have pages of it, perhaps with changes in a shared mapping that the daemon has not seen.
    """

    __slots__ = ("has_pages", "inode")

    def __init__(self, number: int, inode: Inode) -> None:
        super().__init__(number)
        self.inode = inode
        self.has_pages = False


class DirNode(KernelNode):
    """The node of a directory. ``bound`` has, by tree id, the directory that this tree has here, once it was looked up."""

    __slots__ = ("bound", "children", "name", "names", "order", "parent", "private", "view", "virtual", "watched")

    def __init__(self, number: int, view: TreeView, parent: "DirNode | None", name: bytes, ledger: Ledger) -> None:
        super().__init__(number)
        self.view, self.parent, self.name = view, parent, name
        self.bound: dict[str, Inode] = {}
        self.children: dict[bytes, DirNode] = {}  # in the caller-dependent view: nodes that all branches share
        self.private: dict[tuple[str, bytes], DirNode] = {}  # by (tree id, name): nodes of one branch
        self.names = HeldNames(ledger, number)
        self.order: list[bytes] = []  # keeps each name at its position, where the kernel caches one listing for several opens
        self.watched: bytes | None = None  # the lower directory that inotify watches for this node
        self.virtual: VirtualNode | None = None  # the view root's .agentfs

    def path(self) -> list[bytes]:
        """Return the names from the view's root to this directory."""
        names: list[bytes] = []
        node = self
        while node.parent is not None:
            names.append(node.name)
            node = node.parent
        names.reverse()
        return names


class VirtualNode(KernelNode):
    """A node in ``.agentfs``; ``kind`` is ``dir``, ``branches``, ``snapshots``, ``control``, ``text`` or ``git``.

    ``git`` is the ``.git`` file of a branch that is a worktree. It is at the root of the branch's view, but counts as a child of
    ``.agentfs`` here.
    """

    __slots__ = ("children", "kind", "name", "owner", "views")

    def __init__(self, number: int, kind: str, name: bytes, owner: DirNode) -> None:
        super().__init__(number)
        self.kind, self.name = kind, name
        self.owner = owner  # the root of the view that it is in
        self.children: dict[bytes, VirtualNode] = {}
        self.views: dict[str, TreeView] = {}  # by tree id

    @property
    def is_dir(self) -> bool:
        return self.kind in ("dir", "branches", "snapshots")
