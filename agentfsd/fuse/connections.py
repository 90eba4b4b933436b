"""What the connections of one daemon share: the overlay, who is bound to what, and the news one has for the others."""

import os
from typing import TYPE_CHECKING

from agentfsd.core.inode import Inode
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree, join
from agentfsd.fuse.locks import Locks
from agentfsd.fuse.nodes import DirNode
from agentfsd.telemetry.traffic import Traffic
from agentfsd.telemetry.who import Identify
from agentfsd.types import LOWER_LOST, ControlOpener, LowerChange, LowerNews

if TYPE_CHECKING:
    from agentfsd.binding.table import Bindings
    from agentfsd.fuse.base import Base
    from agentfsd.handoff.doorway import Doorway
    from agentfsd.handoff.forwarding import Forwarding


class Connections:
    """``moves_atime`` is False for a mount with noatime or ro."""

    def __init__(self, overlay: Overlay, bindings: "Bindings", control: ControlOpener, watch: LowerNews | None) -> None:
        self.overlay, self.bindings, self.control, self.watch = overlay, bindings, control, watch
        self.owner_uid = os.geteuid()
        self.moves_atime = True
        self.forwarding: Forwarding | None = None  # who gives out real descriptors, and where the preloaded library asks
        self.doorway: Doorway | None = None
        self.traffic, self.identify = Traffic(), Identify(bindings, overlay)
        self.locks = Locks()
        self.all: list[Base] = []
        self._watchers: dict[bytes, set[tuple[Base, DirNode]]] = {}
        overlay.on_replaced.append(self.tree_replaced)
        overlay.on_names.append(lambda directory, names: self.changed(None, directory, names))
        overlay.parts.initial.listeners.append(self.copied_up)
        overlay.on_file.append(lambda inode, data: self.file_changed(None, inode, data=data))
        overlay.on_passing.append(self.passing)

    def add(self, connection: "Base") -> None:
        self.all.append(connection)

    def remove(self, connection: "Base") -> None:
        if connection in self.all:
            self.all.remove(connection)
        for path, those in list(self._watchers.items()):
            for place in [place for place in those if place[0] is connection]:
                self.unwatch(path, *place)

    # -- changes in a branch

    def changed(self, parent: DirNode | None, directory: Inode, names: tuple[bytes, ...]) -> bool:
        """Has every place other than *parent* look again that may have cached these names; True when there was one."""
        told = False
        for connection in self.all:
            for view in connection.nodes.cached_views_of(directory.tree.id):
                other = view.dirs.get(directory)
                if other is not None and other is not parent:
                    connection.notifier.expire(other, [name for name in names if name in other.names])
                    told = True
        return told

    def file_changed(self, by: "Base | None", inode: Inode, *, data: bool) -> bool:
        """Likewise for one file's attributes or data, on connections other than *by*."""
        told = False
        for connection in self.all:
            node = connection.nodes.find_file(inode) if connection is not by else None
            if node is not None:
                connection.notifier.expire_inode(node.id, data=data)
                told = True
        return told

    def passing(self, inode: Inode) -> None:
        """Before a file is written past us: what stat shows of it must not be cached any more."""
        for connection in self.all:
            node = connection.nodes.find_file(inode)
            if node is not None:
                connection.notifier.expire_attributes_now(node.id)

    def copied_up(self, inode: Inode) -> None:
        """With another mode or access list than the lower's: of that the reply to a write, say, tells the kernel nothing."""
        for connection in self.all:
            node = connection.nodes.find_file(inode)
            views = connection.nodes.cached_views_of(inode.tree.id) if inode.is_dir else ()
            for known in (node, *(view.dirs.get(inode) for view in views)):
                if known is not None:
                    connection.notifier.expire_attributes_now(known.id)

    def tree_replaced(self, tree: Tree) -> None:
        """After a restore or a deletion: whatever was cached of that tree is looked up again."""
        for connection in self.all:
            connection.tree_replaced(tree)
        if not self.overlay.has_tree(tree.id):
            self.locks.tree_gone(tree)

    # -- changes in the lower

    def watched(self, path: bytes, connection: "Base", node: DirNode) -> bool:
        """Whether names in that lower directory may be cached for long at *node*: we shall hear of changes."""
        if node.watched == path:
            return True
        if self.watch is None or not self.watch.watch(path):
            return False
        if node.watched is not None:
            self.unwatch(node.watched, connection, node)
        node.watched = path
        self._watchers.setdefault(path, set()).add((connection, node))
        return True

    def is_watched(self, path: bytes, connection: "Base") -> bool:
        """Whether that connection hears of changes in that lower directory."""
        return any(other is connection for other, _ in self._watchers.get(path, ()))

    def unwatch(self, path: bytes, connection: "Base", node: DirNode) -> None:
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
        """Passes on what the lower's watch has to tell."""
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
        """A directory itself may be another now: its watch is gone, and all that is known of it is in doubt."""
        for connection, node in self._watchers.pop(path, ()):
            node.watched = None
            for inode in node.bound.values():
                for name in list(node.names):
                    self._tell_of_file(connection, inode, join(path, name), name)
            connection.notifier.expire(node, list(node.names))

    def _tell_of_lower(self, connection: "Base", node: DirNode, change: LowerChange) -> None:
        name = change.name or b""
        if not name:
            connection.notifier.expire_inode(node.id, data=True)
            return
        for inode in node.bound.values():
            if inode.lower_path == change.directory:
                self._tell_of_file(connection, inode, join(change.directory, name), name)
        if change.replaced and name in node.names:
            connection.notifier.expire(node, [name])

    @staticmethod
    def _tell_of_file(connection: "Base", directory: Inode, path: bytes, name: bytes) -> None:
        """What is open is not looked up again: its attributes and pages go by themselves."""
        child = directory.tree.in_memory(directory, name, path)
        node = connection.nodes.find_file(child) if child is not None else None
        if node is not None:
            connection.notifier.expire_inode(node.id, data=True)
        elif child is not None and child.is_dir:
            for view in connection.nodes.cached_views_of(child.tree.id):
                if child in view.dirs:
                    connection.notifier.expire_attributes(view.dirs[child].id)
