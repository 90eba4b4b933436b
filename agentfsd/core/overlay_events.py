"""Tells listeners of changes in an overlay: audit trail, watchers, connections that cache names. It imports no listener."""

from collections.abc import Callable

from agentfsd.core import data
from agentfsd.core.branch_events import BranchEvent, EventKind, Listener
from agentfsd.core.tree import Inode, Tree, join

NamedPlace = tuple[Inode, bytes]  # a directory, and a name in it


def _path_of(place: NamedPlace) -> bytes:
    directory, name = place
    return join(directory.path, name)


class OverlayEvents:
    """The listeners of one overlay.

    Attributes:
        listeners: Called with every BranchEvent.
        last_write: Branch id, inode number and process of the last write that a listener was told of. The listener sets it.
        on_replaced: Called with each tree that has just been detached.
        on_names: Called with a directory and the names that changed in it: see names_changed().
        on_file: Called with a file, and whether its data changed: see file_changed().
        on_copied_up: Called with an inode whose mode or access list copy-up has changed: see copied_up().
        on_row: Called with an inode that gets a row, before the transaction is committed.
        on_nameless: Called with an inode that loses its last name, before the transaction is committed.
        on_external_writer: Called with a file that a process may write, from now on, without the daemon.
    """

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.last_write: tuple[str, int, int] | None = None
        self.on_replaced: list[Callable[[Tree], None]] = []
        self.on_names: list[Callable[[Inode, tuple[bytes, ...]], object]] = []
        self.on_file: list[Callable[[Inode, bool], object]] = []
        self.on_copied_up: list[Callable[[Inode], object]] = []
        self.on_row: list[Callable[[Inode], object]] = []
        self.on_nameless: list[Callable[[Inode], object]] = []
        self.on_external_writer: list[Callable[[Inode], object]] = []

    def publish(self, event: BranchEvent) -> None:
        """Call every listener with an event."""
        for listener in self.listeners:
            listener(event)

    def tell_change(
        self, kind: EventKind, inode: Inode, tid: int, process_of: Callable[[int], int],
        place: NamedPlace | None = None, before: NamedPlace | None = None,
    ) -> None:  # fmt: skip
        """Tell every listener of a change to an inode. Without a listener, which is usual, this is one test.

        Args:
            kind: What has happened.
            inode: What it has happened to.
            tid: The thread that did it.
            process_of: Finds the thread's process; it is asked only if somebody listens.
            place: Where it happened, if that is not the inode's path by now.
            before: Of a rename, where it was before.
        """
        if not self.listeners:
            return
        tree = inode.tree
        if tree.detached or (not inode.nlink and kind != "deleted"):
            return
        path = _path_of(place) if place is not None else None
        old_path = _path_of(before) if before is not None else b""
        self.publish(BranchEvent(kind, tree.id, process_of(tid), inode, path, old_path))

    def tell_write(self, inode: Inode, tid: int, process_of: Callable[[int], int]) -> None:
        """Tell of a write, unless the only listener has just heard of the same thread's write to the same file."""
        if self.listeners and self.is_news((inode.tree.id, inode.ino, tid)):
            self.tell_change("modified", inode, tid, process_of)

    def tell_if_modified(self, inode: Inode, tid: int, process_of: Callable[[int], int], since_ns: int) -> None:
        """Tell of a file whose content was changed since a time, in ns, by who did not ask the overlay."""
        if self.listeners and data.changed_since(inode, since_ns):
            self.tell_change("modified", inode, tid, process_of)

    def is_news(self, write: tuple[str, int, int]) -> bool:
        """Return whether a listener may not have been told of a write yet.

        With a single listener, ``last_write`` tells. With several, every write counts as news.
        """
        return write != self.last_write or len(self.listeners) > 1

    def names_changed(self, directory: Inode, *names: bytes) -> None:
        """Make connections look up names of a directory again, after a change that a request over the socket made."""
        for listener in self.on_names:
            listener(directory, names)

    def file_changed(self, inode: Inode, *, data: bool) -> None:
        """Make connections read a file's attributes again, and its content if *data* is true, after such a change."""
        for listener in self.on_file:
            listener(inode, data)

    def copied_up(self, inode: Inode) -> None:
        """Report that copy-up, by its settings, gave an inode another mode or access list than the lower's object has."""
        for listener in self.on_copied_up:
            listener(inode)

    def gets_row(self, inode: Inode) -> None:
        """See TreeEvents."""
        for listener in self.on_row:
            listener(inode)

    def loses_names(self, inode: Inode) -> None:
        """See TreeEvents."""
        for listener in self.on_nameless:
            listener(inode)

    def tree_replaced(self, tree: Tree) -> None:
        """Report that a tree was detached, because its branch or snapshot was replaced or deleted."""
        for listener in self.on_replaced:
            listener(tree)
