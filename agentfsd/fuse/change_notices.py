"""Tells of changes that came through one connection: other connections, before the answer is sent, and listeners."""

from agentfsd.core.branch_events import EventKind
from agentfsd.core.overlay_events import NamedPlace
from agentfsd.core.tree import Inode
from agentfsd.fuse.connections import Connections
from agentfsd.fuse.dentry_revival import DentryReviver
from agentfsd.fuse.kernel_cache import KernelCache
from agentfsd.fuse.nodes import DirNode
from agentfsd.fuse.notifier import Owed


class ChangeNotices:
    """Of one connection.

    Attributes:
        unsettled: What must reach other kernels before the answer to the current request may go.
    """

    def __init__(self, connections: Connections, cache: KernelCache, reviver: DentryReviver | None) -> None:
        self._connections, self._cache, self._reviver = connections, cache, reviver
        self._overlay, self._bindings = connections.overlay, connections.bindings
        self.unsettled: Owed = {}

    def take_unsettled(self) -> Owed:
        """Return what the answer to the last request waits for, and begin anew."""
        owed, self.unsettled = self.unsettled, {}
        return owed

    # -- other places that show the same branch

    def names_changed(self, parent: DirNode, directory: Inode, *names: bytes) -> None:
        """After names changed through *parent*: have other views of the branch that may have cached them look again."""
        self.unsettled |= self._connections.changed(parent, directory, names)

    def file_changed(self, inode: Inode, *, data: bool) -> None:
        """After a file's attributes (or its *data*, too) changed: have other connections that know it look again."""
        if len(self._connections.all) > 1:
            self.unsettled |= self._connections.file_changed(self._cache, inode, data=data)

    def attributes_changed(self, node_id: int, inode: Inode, *, data: bool = False) -> None:
        """After a change through a node. A directory has a node in each view; a file has one in all of a connection."""
        node = self._cache.nodes[node_id]
        if isinstance(node, DirNode):
            self.names_changed(node, inode)
        else:
            self.file_changed(inode, data=data)

    def data_changed(self, inode: Inode, tid: int) -> None:
        """After a change of a file's data otherwise than by a write: tell connections and listeners."""
        self.file_changed(inode, data=True)
        self.tell("modified", inode, tid)

    def revive(self, parent: DirNode, name: bytes, tree_id: str) -> None:
        """Before an answer to *tree_id* makes the kernel drop another branch's directory dentry: have it looked up again."""
        other = self._cache.nodes.other_branch_at(parent, name, tree_id)
        if other is not None and self._reviver is not None:
            self._reviver.look_up(other, [*parent.path(), name])

    # -- listeners: OverlayEvents decides whether there is anybody to tell, and asks for the process only then

    def tell(
        self, kind: EventKind, inode: Inode, tid: int, place: NamedPlace | None = None, before: NamedPlace | None = None
    ) -> None:
        """Tell listeners of a change.

        Args:
            kind: What has happened.
            inode: What it has happened to.
            tid: The thread whose request it was.
            place: Where it happened, if that is not the inode's path by now.
            before: Of a rename, where it was before.
        """
        self._overlay.events.tell_change(kind, inode, tid, self._bindings.process_again, place, before)

    def tell_if_modified(self, inode: Inode, tid: int, since_ns: int) -> None:
        """Tell listeners of a file that was written since then without asking the daemon."""
        self._overlay.events.tell_if_modified(inode, tid, self._bindings.process_again, since_ns)

    def tell_write(self, inode: Inode, tid: int) -> None:
        """Tell listeners of a write, unless the only listener has just heard of the same thread's write to the same file."""
        self._overlay.events.tell_write(inode, tid, self._bindings.process_again)
