"""What the kernel holds through one connection, and how that is expired.

Knows nothing of requests. It is all that other connections of the daemon know of a connection.
"""

from collections.abc import Collection

from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse.handles import HandleTable
from agentfsd.fuse.kernel_nodes import TreeView
from agentfsd.fuse.ledger import Ledger
from agentfsd.fuse.nodes import NodeTable
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

    def __init__(self, notifier: Notifier, tree_id: str = "", ledger: Ledger | None = None) -> None:
        self.notifier, self.tree_id = notifier, tree_id
        self.nodes = NodeTable(tree_id, ledger)
        self.handles = HandleTable(self.nodes.records, tree_id)
        self.device = 0
        self.is_open = False

    def forget_names_of(self, tree_id: str) -> None:
        """Expire whatever the kernel has cached of a tree. Await notifier.settled() then."""
        directories: dict[int, set[bytes]] = {}
        for view in self.nodes.cached_views_of(tree_id):
            directories |= _taken_names(view)
        self.notifier.expire_many(list(directories.items()), self.nodes.files_of(tree_id))

    def expire_all(self, spared: Collection[Inode]) -> None:
        """Expire whatever the kernel has cached, because the daemon was started again and may have missed changes.

        Args:
            spared: Files that several connections have open for writing: whatever changes their size is sent again. The kernel
                throws an answer to GETATTR away if the attributes were expired since it has asked, and reads on with the size
                that it knew before.
        """
        directories: dict[int, set[bytes]] = {}
        for view in self.nodes.all_views():
            directories |= _taken_names(view)
        those = {self.nodes.find_file(inode) for inode in spared}
        files = [node.id for node in self.nodes.files() if node not in those]
        files += self.nodes.former.numbers() if self.nodes.former is not None else []
        self.notifier.expire_many(list(directories.items()), files)

    def tree_replaced(self, tree: Tree, *, is_gone: bool) -> None:
        """Expire a tree after a restore, or after its deletion (*is_gone*)."""
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
        """Expire all names of the caller-dependent view: callers may differ from now on. Await notifier.settled() then."""
        if self.nodes.uniform_id:
            self.nodes.uniform_id = ""
            self.notifier.expire_many(list(_taken_names(self.nodes.top).items()), [])


def _taken_names(view: TreeView) -> dict[int, set[bytes]]:
    """Take, by directory node id, the names that the kernel may hold of a view. The caller must expire all of them."""
    names: dict[int, set[bytes]] = {}
    for node in {view.root, *view.dirs.values()}:
        if node is not None:
            names[node.id] = node.names.take_all()
    return names
