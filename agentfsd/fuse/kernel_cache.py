"""What the kernel holds of us through one connection, and how it is told to look again.

Knows nothing of requests. The other connections of the daemon see a connection by this alone.
"""

from agentfsd.core.tree import Tree
from agentfsd.fuse.handles import HandleTable
from agentfsd.fuse.nodes import NodeTable, TreeView
from agentfsd.fuse.notifier import Notifier


class KernelCache:
    """The kernel's side of one connection.

    Attributes:
        nodes: Every node that the kernel knows.
        handles: Everything that is open.
        notifier: Sends the kernel notifications.
        tree_id: The one branch that the connection shows; "" for the caller's.
        device: st_dev of the file system, where it is mounted in a namespace of its own and we know it; else 0.
        is_open: The connection is among those that the daemon serves (Connections.add, Connections.remove).
    """

    def __init__(self, notifier: Notifier, tree_id: str = "") -> None:
        self.notifier, self.tree_id = notifier, tree_id
        self.nodes, self.handles = NodeTable(tree_id), HandleTable()
        self.device = 0
        self.is_open = False

    def forget_names_of(self, tree_id: str) -> None:
        """Have the kernel look up again whatever it has cached of a tree. Wait for the notifier to settle."""
        directories: dict[int, set[bytes]] = {}
        for view in self.nodes.cached_views_of(tree_id):
            directories |= _taken_names(view)
        self.notifier.expire_many(list(directories.items()), self.nodes.files_of(tree_id))

    def tree_replaced(self, tree: Tree, *, is_gone: bool) -> None:
        """Have the kernel look up a tree again after a restore, or after its deletion (*is_gone*)."""
        self.forget_names_of(tree.id)
        for inode in tree.switched_files:
            file = self.nodes.find_file(inode)
            if file is not None:
                self.notifier.expire_data(file.id)
        if is_gone:
            self.nodes.drop_views(tree.id)
        else:
            self.nodes.leave_behind(tree)

    def unite(self, tree_id: str) -> None:
        """Allow names in the caller-dependent view to be cached: every caller sees that tree from now on."""
        if not self.tree_id and self.notifier.expires:
            self.nodes.uniform_id = tree_id

    def diverge(self) -> None:
        """Expire all names of the caller-dependent view: callers may differ from now on. Wait for the notifier to settle."""
        if self.nodes.uniform_id:
            self.nodes.uniform_id = ""
            self.notifier.expire_many(list(_taken_names(self.nodes.top).items()), [])


def _taken_names(view: TreeView) -> dict[int, set[bytes]]:
    """Return, by directory node, the names that the kernel may hold of a view; the caller tells the kernel of all of them."""
    names: dict[int, set[bytes]] = {}
    for node in {view.root, *view.dirs.values()}:
        if node is not None:
            names[node.id], node.names = node.names, set()
    return names
