"""Tells of changes that came through one connection: other connections, before the answer is sent, and listeners."""

from agentfsd.core.branch_events import EventKind
from agentfsd.core.overlay_events import NamedPlace
from agentfsd.core.tree import Inode
from agentfsd.fuse.connections import Connections
from agentfsd.fuse.dentry_revival import DentryReviver
from agentfsd.fuse.kernel_cache import KernelCache
from agentfsd.fuse.kernel_nodes import DirNode, KernelNode
from agentfsd.fuse.notifier import Owed


class ChangeNotices:
    """Of one connection.

    Attributes:
        overlay: The branches, whose listeners are told.
        bindings: Finds the process of a thread.
        unsettled: What must reach other kernels before the answer to the current request may go.
    """

    def __init__(self, connections: Connections, cache: KernelCache, reviver: DentryReviver | None) -> None:
        self._connections, self._cache, self._reviver = connections, cache, reviver
        self.overlay, self.bindings = connections.overlay, connections.bindings
        self.unsettled: Owed = {}
        self._last = FuseChanges(self, 0, ())

    def take_unsettled(self) -> Owed:
        """Return what the answer to the last request waits for, and begin anew."""
        owed, self.unsettled = self.unsettled, {}
        return owed

    def by(self, tid: int, *through: KernelNode) -> "FuseChanges":
        """Return what reports the changes of one request: its thread, and the nodes through which it changes names."""
        return FuseChanges(self, tid, through)

    def by_thread(self, tid: int) -> "FuseChanges":
        """Likewise for a request that changes no names. One thread often writes many times: it gets the same object."""
        last = self._last
        if last.tid != tid:
            last = self._last = FuseChanges(self, tid, ())
        return last

    def names_changed(self, through: tuple[KernelNode, ...], directory: Inode, names: tuple[bytes, ...]) -> None:
        """After names changed: have views of the branch that may have cached them look again, but at the nodes *through*."""
        self.unsettled |= self._connections.changed(through, directory, names)

    def file_changed(self, inode: Inode, *, data: bool) -> None:
        """After a file's attributes (or its *data*, too) changed: have other connections that know it look again."""
        if not inode.nlink and not data:
            self._connections.loses_names(inode)  # its mode or owner has changed: the ledger alone says so
        if len(self._connections.all) > 1:
            self.unsettled |= self._connections.file_changed(self._cache, inode, data=data)

    def revive(self, parent: DirNode, name: bytes, tree_id: str) -> None:
        """Before an answer to *tree_id* makes the kernel drop another branch's directory dentry: have it looked up again."""
        other = self._cache.nodes.other_branch_at(parent, name, tree_id)
        if other is not None and self._reviver is not None:
            self._reviver.look_up(other, [*parent.path(), name])

    def tell_if_modified(self, inode: Inode, tid: int, since_ns: int) -> None:
        """Tell listeners of a file that was written since then without asking the daemon."""
        self.overlay.events.tell_if_modified(inode, tid, self.bindings.process_again, since_ns)


class FuseChanges:
    """Reports the changes of one request on one connection: see ChangeReporter.

    OverlayEvents decides whether there is anybody to tell, and asks for the process only then.
    """

    __slots__ = ("_notices", "_through", "file_changed", "tid")

    def __init__(self, notices: ChangeNotices, tid: int, through: tuple[KernelNode, ...]) -> None:
        self._notices, self.tid, self._through = notices, tid, through
        self.file_changed = notices.file_changed

    def tell(self, kind: EventKind, inode: Inode, place: NamedPlace | None = None, before: NamedPlace | None = None) -> None:
        notices = self._notices
        notices.overlay.events.tell_change(kind, inode, self.tid, notices.bindings.process_again, place, before)

    def tell_write(self, inode: Inode) -> None:
        notices = self._notices
        notices.overlay.events.tell_write(inode, self.tid, notices.bindings.process_again)

    def names_changed(self, directory: Inode, *names: bytes) -> None:
        self._notices.names_changed(self._through, directory, names)
