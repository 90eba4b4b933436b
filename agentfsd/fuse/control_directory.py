"""The ``.agentfs`` directory at the root of every view: control, status, and the trees of branches and snapshots.

It is looked up, never listed, so that nothing which walks a workspace walks into it.
"""

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentfsd.core.inode import Attributes
from agentfsd.core.tree import Tree
from agentfsd.fuse.base import Base, DirHandle, TextHandle
from agentfsd.fuse.nodes import DirNode, VirtualNode
from agentfsd.fuse.reply import LONG_S, NOW_S, CallContext, ListedName, LookupReply
from agentfsd.types import CONTROL_DIR

_FILES = {b"control": "control", b"status": "text", b"status.json": "text"}
_DIRS = {b"branches": "branches", b"snapshots": "snapshots"}

DOTS = (b".", b"..")


def dot_entry(attributes: Attributes) -> LookupReply:
    """``.`` and ``..`` in a listing: the kernel takes only number and type, and counts no look-up."""
    return LookupReply(0, attributes, NOW_S, NOW_S)


if TYPE_CHECKING:
    _Mixin = Base
else:
    _Mixin = object


class Virtual(_Mixin):
    def lookup_control_dir(self, root: DirNode, ctx: CallContext) -> LookupReply:
        """Visible to the mount's owner and to root; anybody else finds nothing there.

        On a connection that shows one branch only it is an empty place, over which that of the mount is mounted.
        """
        if self.nodes.top.tree_id:
            node = self.nodes.virtual_child(root, None, CONTROL_DIR, "dir")
            return self.virtual_reply(node)._replace(entry_s=LONG_S, attr_s=LONG_S)
        if ctx.uid not in (self.connections.owner_uid, 0):
            raise FileNotFoundError(errno.ENOENT, "no such name")
        return self.virtual_reply(self.nodes.virtual_child(root, None, CONTROL_DIR, "dir"))

    def lookup_virtual(self, node: VirtualNode, name: bytes, ctx: CallContext) -> LookupReply:
        if self.nodes.top.tree_id:
            raise FileNotFoundError(errno.ENOENT, "no such name")
        if node.kind == "dir":
            kind = self._child_kinds(node).get(name)
            if kind is None:
                raise FileNotFoundError(errno.ENOENT, "no such name")
            if kind == "branches" and self.bindings.branch_of(ctx.pid) is not None:
                raise PermissionError(errno.EACCES, "a bound process sees its own branch only")
            return self.virtual_reply(self.nodes.virtual_child(node.owner, node, name, kind))
        return self._lookup_view(node, name, ctx)

    def _lookup_view(self, node: VirtualNode, name: bytes, ctx: CallContext) -> LookupReply:
        tree = self._named_tree(node.kind, name.decode("ascii", "replace"))
        bound = self.bindings.branch_of(ctx.pid)
        if bound is not None and not (node.kind == "snapshots" and self.overlay.snapshots.in_history(bound, tree.id)):
            raise PermissionError(errno.EACCES, "a bound process sees its own branch only")
        root = self.nodes.view_root(node, tree)
        root.lookups += 1
        return LookupReply(root.id, self.attributes(tree.root), NOW_S, NOW_S)

    def _named_tree(self, kind: str, name: str) -> Tree:
        """By exact name only: an id or prefix would be a second name of one directory."""
        for found in self.overlay.refs.names(branches=kind == "branches"):
            if found[0] == name:
                return self.overlay.trees.by_id(found[1])
        raise FileNotFoundError(errno.ENOENT, "no such branch or snapshot")

    def _child_kinds(self, node: VirtualNode) -> dict[bytes, str]:
        """Branches are reached from the mount's root only: one directory, one place."""
        if node.owner.view.tree_id:
            return {**_FILES, b"snapshots": "snapshots"}
        return {**_FILES, **_DIRS}

    def list_virtual(self, node: VirtualNode, handle: DirHandle, start: int) -> Iterator[ListedName]:
        if start == 0 or not handle.listing:
            if node.kind == "dir":
                names = sorted(self._child_kinds(node))
            else:
                names = [name.encode() for name, _ in self.overlay.refs.names(branches=node.kind == "branches")]
            handle.listing = [*DOTS, *names]
        for position in range(start, len(handle.listing)):
            name = handle.listing[position]
            entry = self._listed(node, name)
            if entry is not None:
                yield ListedName(name, entry, position + 1)

    def _listed(self, node: VirtualNode, name: bytes) -> LookupReply | None:
        if name in DOTS:
            return dot_entry(self.virtual_attributes(node))
        if node.kind == "dir":
            return self.virtual_reply(self.nodes.virtual_child(node.owner, node, name, self._child_kinds(node)[name]))
        try:
            tree = self._named_tree(node.kind, name.decode())
        except OSError:
            return None
        root = self.nodes.view_root(node, tree)
        root.lookups += 1
        return LookupReply(root.id, self.attributes(tree.root), NOW_S, NOW_S)

    async def open_virtual(self, node: VirtualNode, ctx: CallContext) -> int:
        """The handle. A status takes as long as there are files and branches to be looked at."""
        if node.is_dir:
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        if node.kind == "control":
            return self.new_handle(TextHandle(b"", self.connections.control.open(self.caller(ctx))))
        make = self.connections.control.status_json if node.name.endswith(b".json") else self.connections.control.status_text
        return self.new_handle(TextHandle(await make(self.caller(ctx)), None))
