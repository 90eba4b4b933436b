"""What all connections of one daemon share: the overlay, the bindings, and the invalidation of what others have cached.

Of each branch at most one view has names in the kernel's cache for long (see ``caches``). Invalidating a name takes its
directory's lock, and a request that holds this lock may be waiting for us. With one caching view, the answer to a change waits
for that view only, and a change through that view waits for none, so no two requests wait for each other. Two views on one
connection share the nodes of files, whose locks unlink and rename take too; this is one more reason why only one of them caches.
"""

import os
from weakref import WeakValueDictionary

import trio

from agentfsd.asking.questions import Questions
from agentfsd.binding.table import Bindings
from agentfsd.core import copyup
from agentfsd.core.overlay import Overlay
from agentfsd.core.rule_set import ALLOW
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.fuse.kernel_cache import KernelCache
from agentfsd.fuse.kernel_nodes import DirNode, KernelNode, TreeView
from agentfsd.fuse.lock_service import LockService
from agentfsd.fuse.name_reservations import NameReservations
from agentfsd.fuse.notifier import Owed, all_taken
from agentfsd.fuse.page_owners import PageOwners
from agentfsd.handoff.descriptor_forwarding import Forwarding
from agentfsd.handoff.interpose_server import InterposeServer
from agentfsd.telemetry.process_identity import ProcessIdentifier
from agentfsd.telemetry.request_counters import RequestCounters
from agentfsd.types import LOWER_LOST, ControlOpener, LowerChange, LowerNews


class Connections:
    """The connections of one daemon and what they share.

    Attributes:
        admits_others: The kernel lets other users than the mount's owner into the mount (allow_other).
        moves_atime: Reading moves access times; False for a mount with noatime or ro.
        questions: Where processes wait for answers about paths; None: nobody can be asked.
        forwarding: Gives out real descriptors, if the daemon does.
        doorway: Where the preloaded library asks for them.
        all: What the kernel holds through each connection, the oldest first.
        nameless: Files without a name that processes have had open since the daemon before, by tree id and inode number.
        bound_to: Branches other than the default one that processes see through the caller-dependent view.
    """

    def __init__(self, overlay: Overlay, bindings: Bindings, control: ControlOpener, watch: LowerNews | None) -> None:
        self.overlay, self.bindings, self.control, self.watch = overlay, bindings, control, watch
        self.owner_uid = os.geteuid()
        self.admits_others, self.moves_atime = False, True
        self.forwarding: Forwarding | None = None
        self.questions: Questions | None = None
        self.doorway: InterposeServer | None = None
        self.traffic, self.identify = RequestCounters(), ProcessIdentifier(bindings, overlay)
        self.locks = LockService()
        self.all: list[KernelCache] = []
        self.page_owners = PageOwners()
        self.nameless: WeakValueDictionary[tuple[str, int], Inode] = WeakValueDictionary()
        self._alone: dict[str, list[KernelCache]] = {}  # by tree id, the connections that show one branch, the oldest first
        self.bound_to: set[str] = set()
        self.reservations = NameReservations()
        self._copy_locks: dict[Inode, trio.Lock] = {}
        self._writing: dict[Inode, list[tuple[KernelCache, trio.CancelScope]]] = {}  # answers that wait for others' pages
        self._watchers: dict[bytes, set[tuple[KernelCache, DirNode]]] = {}
        overlay.events.on_replaced.append(self.tree_replaced)
        overlay.events.on_names.append(lambda directory, names: self.changed((), directory, names))
        overlay.events.on_copied_up.append(self.copied_up)
        overlay.events.on_file.append(lambda inode, data: self.file_changed(None, inode, data=data))
        overlay.events.on_external_writer.append(self.external_writer_begins)
        overlay.events.on_row.append(self.gets_row)
        overlay.events.on_nameless.append(self.loses_names)
        overlay.rules.on_changed.append(self.rules_changed)

    def add(self, connection: KernelCache) -> None:
        """Add a connection. Names that other views have cached of its branch are expired: await settled() before using it."""
        before, tree_id = list(self.all), connection.tree_id
        self.all.append(connection)
        connection.is_open = True
        if tree_id:
            self._alone.setdefault(tree_id, []).append(connection)
        for other in before if tree_id and self._first(tree_id) is connection else ():
            other.forget_names_of(tree_id)

    def remove(self, connection: KernelCache) -> None:
        """Remove a connection that has ended; nothing if it was not added."""
        if connection in self.all:
            self.all.remove(connection)
            connection.is_open = False
            if connection in self._alone.get(tree_id := connection.tree_id, ()):
                self._alone[tree_id].remove(connection)
                if not self._alone[tree_id]:
                    self.page_owners.drop_tree(tree_id)
        for path, those in list(self._watchers.items()):
            for place in [place for place in those if place[0] is connection]:
                self.unwatch(path, *place)

    async def settled(self) -> None:
        """Wait until the kernel has taken all notifications, and has written back the pages that they are about."""
        for connection in list(self.all):
            await connection.notifier.settled()

    # -- files that are open for writing on both sides: see PageOwners

    def opened_for_writing(self, by: KernelCache, inode: Inode) -> bool:
        """After an open for writing at the mount point: track the file's pages if its branch has a connection of its own.

        Returns:
            The kernel is to drop the pages that it has of the file there: from now on the other connection may have some.
        """
        rival = self._first(inode.tree.id) if not by.tree_id else None
        return rival is not None and self._track(inode, rival)

    def run_begins(self, tree_id: str, main: KernelCache) -> None:
        """Before the first request of a branch's own connection: track the files open for writing at the mount point."""
        for inode in main.handles.open_for_writing(tree_id):
            self._track(inode, main)

    def _track(self, inode: Inode, holder: KernelCache) -> bool:
        """Track a file's pages; return whether they were not tracked until now.

        From then on no kernel caches its attributes, so that none need be expired: the kernel throws an answer to GETATTR away if
        they were expired since it has asked, and reads on with the size that it knew before.
        """
        is_new = self.page_owners.begin(inode, holder)
        node = holder.nodes.find_file(inode) if is_new else None
        if node is not None:
            holder.notifier.expire_attributes_now(node.id)
            holder.notifier.expire_many([], [node.id])  # and again soon: an answer to SETATTR may be on its way
        return is_new

    def others_have_pages(self, by: KernelCache, inode: Inode) -> bool:
        """Return whether another connection than *by* may have pages of a file that it has not written back."""
        owner = self.page_owners.of(inode)
        if owner is not None:
            return not owner.is_open_to(inode, by)
        nodes = (connection.nodes.find_file(inode) for connection in self.all if connection is not by)
        return any(node is not None and node.has_pages for node in nodes)

    async def pages_back(self, by: KernelCache, inode: Inode) -> None:
        """Have other connections than *by* write back and drop their pages of a file."""
        owner = self.page_owners.of(inode)
        if owner is not None:
            await owner.take(inode, by)
            return
        for connection in list(self.all):
            node = connection.nodes.find_file(inode) if connection is not by else None
            if node is not None and node.has_pages:
                node.has_pages = False
                connection.notifier.expire_data(node.id)
                await connection.notifier.settled()

    # -- what the kernel may cache

    def _first(self, tree_id: str) -> KernelCache | None:
        """Return the oldest connection that shows only that branch."""
        those = self._alone.get(tree_id)
        return those[0] if those else None

    def caches(self, connection: KernelCache, view: TreeView, tree: Tree) -> bool:
        """Return whether the kernel may cache names of a tree in a view.

        Of a branch that can change, one view may: the oldest connection that shows only that branch; else the caller-dependent
        view, while every caller sees that branch; else ``.agentfs/branches/NAME``, unless that is the default branch or one in
        ``bound_to``.
        """
        if tree.read_only and view.tree_id:
            return not self.overlay.rules.hides  # some callers may see what is hidden from others
        first = self._first(tree.id)
        if first is not None:
            return first is connection
        if not view.tree_id:
            return connection.nodes.uniform_id == tree.id
        return tree.id != self.overlay.default_id and tree.id not in self.bound_to

    def before_binding(self, branch_id: str) -> None:
        """Before a process sees a branch in the caller-dependent view: expire names cached elsewhere. Await settled()."""
        if branch_id not in self.bound_to and branch_id != self.overlay.default_id:
            self.bound_to.add(branch_id)
            for connection in self.all:
                if not connection.tree_id:
                    connection.forget_names_of(branch_id)

    def caches_attributes(self, connection: KernelCache, inode: Inode) -> bool:
        """Return whether the kernel may cache attributes of a file, which all views of a connection share."""
        if self.page_owners and self.page_owners.of(inode) is not None:
            return False
        first = self._first(inode.tree.id)
        return first is None or first is connection or inode.tree.read_only

    # -- changes in a branch

    def changed(self, through: tuple[KernelNode, ...], directory: Inode, names: tuple[bytes, ...]) -> Owed:
        """Expire these names in all views but at the nodes *through* which they changed; return what to wait for."""
        owed: Owed = {}
        for connection in self.all:
            for view in connection.nodes.cached_views_of(directory.tree.id):
                other = view.dirs.get(directory)
                if other is not None and other not in through and connection.notifier.expire(other, names):
                    owed[connection.notifier] = connection.notifier.queued
        return owed

    def gets_row(self, inode: Inode) -> None:
        """Before a transaction that gives an inode its row: record that for the next daemon."""
        for connection in self.all:
            node = connection.nodes.find_file(inode)
            if node is not None:
                connection.nodes.records.stored(node, inode.id)

    def loses_names(self, inode: Inode) -> None:
        """Before a transaction that takes the last name from an inode: record what it is for the next daemon."""
        for connection in self.all:
            views = connection.nodes.all_views() if inode.is_dir else ()
            for node in (connection.nodes.find_file(inode), *(view.dirs.get(inode) for view in views)):
                if node is not None:
                    connection.nodes.records.goes(node.id, inode)

    def file_changed(self, by: KernelCache | None, inode: Inode, *, data: bool) -> Owed:
        """Expire a file's attributes, or pages if *data*, on connections other than *by*; return what to wait for."""
        owed: Owed = {}
        is_shared = self.page_owners.of(inode) is not None  # then no kernel caches attributes
        for connection in self.all:
            node = connection.nodes.find_file(inode) if connection is not by else None
            if node is None:
                continue
            if data and node.has_pages and not self.page_owners.has_all(inode, by):
                connection.notifier.expire_data(node.id)
                owed[connection.notifier] = connection.notifier.queued
            elif not is_shared:
                connection.notifier.expire_attributes_now(node.id)
        return owed

    async def written(self, by: KernelCache, inode: Inode, owed: Owed) -> None:
        """Wait for *owed* before the answer to a write.

        Until the answer the kernel holds the page's lock. Two writes to one page through two connections would wait for each
        other, so the later write stops the wait of the earlier one, whose answer goes at once.
        """
        self.answer_writes(by, inode)
        others = self._writing.setdefault(inode, [])
        with trio.CancelScope() as mine:
            others.append((by, mine))
            try:
                await all_taken(owed)
            finally:
                others.remove((by, mine))
                if not others:
                    self._writing.pop(inode, None)

    def answer_writes(self, by: KernelCache, inode: Inode) -> None:
        """Answer other connections' writes that wait in written(): they hold locks of pages that *by* is about to wait for."""
        for connection, waiting in self._writing.get(inode, ()):
            if connection is not by:
                waiting.cancel()

    # -- large copies

    async def copy_ahead(self, inode: Inode) -> None:
        """Copy a file up in a thread, once for all callers that wait for it. Writes that others make meanwhile are kept.

        The caller must read the file's size and other attributes again afterwards.
        """
        lock = self._copy_locks.setdefault(inode, trio.Lock())
        async with lock:
            if copyup.is_owned(inode):
                return
            copyup.check_copy(inode)
            try:
                copy = copyup.Copy(inode)
                try:
                    await trio.to_thread.run_sync(copy.run)
                except BaseException:
                    copy.abandon()
                    raise
                copy.install()
            finally:
                self._copy_locks.pop(inode, None)

    def external_writer_begins(self, inode: Inode) -> None:
        """Before a process writes to a content object without the daemon: expire the file's attributes."""
        for connection in self.all:
            node = connection.nodes.find_file(inode)
            if node is not None:
                connection.notifier.expire_attributes_now(node.id)

    def copied_up(self, inode: Inode) -> None:
        """After a copy-up that changed the mode or access list: expire the attributes, since a reply to WRITE carries none."""
        for connection in self.all:
            node = connection.nodes.find_file(inode)
            views = connection.nodes.cached_views_of(inode.tree.id) if inode.is_dir else ()
            for known in (node, *(view.dirs.get(inode) for view in views)):
                if known is not None:
                    connection.notifier.expire_attributes_now(known.id)

    def tree_replaced(self, tree: Tree) -> None:
        """After a restore or a deletion: expire what is cached of that tree."""
        is_gone = not self.overlay.refs.exists(tree.id)
        for connection in self.all:
            connection.tree_replaced(tree, is_gone=is_gone)
        if is_gone:
            self.locks.tree_gone(tree)

    def rules_changed(self) -> None:
        """Expire all that the kernel has cached under the rules as they were: names, modes, and content. Await settled()."""
        for connection in self.all:
            for tree_id in {connection.tree_id or self.overlay.default_id, *self.bound_to, connection.nodes.uniform_id}:
                if tree_id:
                    connection.forget_names_of(tree_id)
            for view in connection.nodes.all_views():
                for node in view.dirs.values():
                    connection.notifier.expire_listing_now(node.id)
            rules = self.overlay.rules.for_branch(connection.tree_id) if connection.tree_id else None
            for file in connection.nodes.files() if rules is not None else ():
                if rules is not None and rules.verdict_of(file.inode) != ALLOW:
                    connection.notifier.expire_data(file.id)

    # -- changes in the lower

    def watched(self, path: bytes, connection: KernelCache, node: DirNode) -> bool:
        """Have inotify watch a lower directory for *node*; return whether it does, so that its names may be cached for long."""
        if node.watched == path:
            return True
        if self.watch is None or not self.watch.watch(path):
            return False
        if node.watched is not None:
            self.unwatch(node.watched, connection, node)
        node.watched = path
        self._watchers.setdefault(path, set()).add((connection, node))
        return True

    def is_watched(self, path: bytes, connection: KernelCache) -> bool:
        """Return whether that connection is told of changes in that lower directory."""
        return any(other is connection for other, _ in self._watchers.get(path, ()))

    def unwatch(self, path: bytes, connection: KernelCache, node: DirNode) -> None:
        """Stop telling *node* of changes in a lower directory; the watch ends with its last node."""
        those = self._watchers.get(path)
        if those is None:
            return
        those.discard((connection, node))
        node.watched = None
        if not those:
            del self._watchers[path]
            if self.watch is not None:
                self.watch.forget(path)

    def lower_changed(self) -> None:
        """Expire what the watch of the lower says has changed."""
        assert self.watch is not None
        for change in self.watch.news():
            if change == LOWER_LOST:
                for path in list(self._watchers):
                    self._lower_moved(path)
            elif change.name is None:
                self._lower_moved(change.directory)
            else:
                for connection, node in self._watchers.get(change.directory, ()):
                    self._tell_of_lower(connection, node, change)

    def _lower_moved(self, path: bytes) -> None:
        """The directory may be another one now, and its watch has ended: expire all that the kernel has of it."""
        for connection, node in self._watchers.pop(path, ()):
            node.watched = None
            for inode in node.bound.values():
                for name in list(node.names):
                    self._tell_of_file(connection, inode, join(path, name), name)
            connection.notifier.expire(node, node.names)

    def _tell_of_lower(self, connection: KernelCache, node: DirNode, change: LowerChange) -> None:
        name = change.name or b""
        if not name:
            connection.notifier.expire_listing_now(node.id)
            return
        for inode in node.bound.values():
            if inode.lower_path == change.directory:
                self._tell_of_file(connection, inode, join(change.directory, name), name)
                if change.replaced:
                    self._tell_of_directory(connection, inode, name)
        if change.replaced:
            connection.notifier.expire(node, [name])

    @staticmethod
    def _tell_of_directory(connection: KernelCache, directory: Inode, name: bytes) -> None:
        """Expire what the kernel knows of names in a branch's own directory, with which the lower's new one is merged."""
        child = directory.tree.known((directory.entries or {}).get(name, 0))
        if child is None or not child.is_dir or child.lower_path is None:
            return
        for view in connection.nodes.cached_views_of(child.tree.id):
            if child in view.dirs:
                connection.notifier.expire_listing_now(view.dirs[child].id)
                connection.notifier.expire(view.dirs[child], view.dirs[child].names)

    @staticmethod
    def _tell_of_file(connection: KernelCache, directory: Inode, path: bytes, name: bytes) -> None:
        """Expire a child's attributes and pages by node: the kernel does not look up again what a process has open."""
        child = directory.tree.in_memory(directory, name, path)
        node = connection.nodes.find_file(child) if child is not None else None
        if node is not None:
            connection.notifier.expire_data(node.id)
        elif child is not None and child.is_dir:
            for view in connection.nodes.cached_views_of(child.tree.id):
                if child in view.dirs:
                    connection.notifier.expire_attributes_now(view.dirs[child].id)
