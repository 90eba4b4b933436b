"""Answers about names and attributes, with how long the kernel may cache them.

How long depends on who else may change it: see ``Connections.caches`` for names, ``_file_s`` for a file's attributes.
"""

import os

from agentfsd.core import inode_stat
from agentfsd.core.inode import Attributes
from agentfsd.core.rule_checks import masked_mode
from agentfsd.core.rule_set import ALLOW, HIDE, UNKNOWN
from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse.connections import Connections
from agentfsd.fuse.kernel_cache import KernelCache
from agentfsd.fuse.kernel_nodes import DirNode, KernelNode, TreeView, VirtualNode
from agentfsd.fuse.reply import LONG_S, LOWER_S, NOT_THERE, NOW_S, AttributesReply, LookupReply
from agentfsd.metadata.rows import is_whiteout

_MOST_MARKS = 1 << 19  # below bit 51: numbers stay below 2^53


class KernelReplies:
    """Builds the answers of one connection."""

    def __init__(self, connections: Connections, cache: KernelCache) -> None:
        self._connections, self._cache = connections, cache
        self._nodes, self._overlay = cache.nodes, connections.overlay
        self._made_ns = self._overlay.branches.info(self._overlay.default_id).created_ns
        self._marks = {cache.tree_id or connections.overlay.default_id: 0}  # by tree id: see attributes()

    def attributes(self, inode: Inode, stored: Attributes | None = None) -> Attributes:
        """Return an inode's attributes as stat(2) shows them on this connection.

        Programs know a file by its inode number, and one path in two branches is two files: cp refuses to copy a file to itself.
        So the root's tree shows the lower's numbers, any other tree marks them above the 32 bits that git's index keeps.

        Args:
            stored: The attributes as the tree has them, where the caller has read them already.
        """
        tree = inode.tree
        stored = stored or inode_stat.attributes(inode)
        mark = self._marks.get(tree.id)
        if mark is None:  # the ledger's number stays the same for the next daemon
            mark = self._marks[tree.id] = self._nodes.records.tree(tree.id) % _MOST_MARKS << 32
        return Attributes(stored.ino ^ mark, *stored[1:]) if mark else stored

    def caches(self, view: TreeView, tree: Tree) -> bool:
        """Return whether names in that view may be cached: see Connections."""
        return self._connections.caches(self._cache, view, tree)

    def watch(self, parent: DirNode, directory: Inode) -> None:
        """Before a directory's names are read: watch the lower directory, so that the names may be cached for long."""
        path = directory.lower_path
        if path is None or directory.tree.lower.frozen or parent.watched == path or not self.caches(parent.view, directory.tree):
            return
        if not self._connections.watched(path, self._cache, parent) and directory.id and parent.parent is not None:
            above = directory.parent
            if above is not None and above.lower_path == path.rpartition(b"/")[0]:  # tells when the lower gets this directory
                self._connections.watched(above.lower_path, self._cache, parent.parent)

    def entry(
        self, parent: DirNode, name: bytes, inode: Inode, attributes: Attributes | None = None, verdict: int = UNKNOWN
    ) -> LookupReply:
        """Answer a look-up that found *inode*; count one look-up on its node.

        *verdict* is what the rules for processes of that branch say about the name, where the caller knows it.
        """
        tree = inode.tree
        is_dir = inode.is_dir
        node: KernelNode = self._nodes.directory(parent, name, inode) if is_dir else self._nodes.file(inode, parent, name)
        if not self.caches(parent.view, tree):
            answer = LookupReply(node.id, self.attributes(inode, attributes), NOW_S, NOW_S if is_dir else self._file_s(inode))
        else:
            parent.names.add(name, is_recorded=not node.lookups)  # a new node's record has this name
            entry_s = LONG_S if inode.id or tree.lower.frozen or parent.watched is not None else LOWER_S
            if isinstance(node, DirNode):
                if not inode.id and node.watched != inode.lower_path:
                    attributes = None  # read before the watch began, so perhaps out of date
                attr_s = self._directory_s(node, inode)
            else:
                attr_s = self._file_s(inode)
            answer = LookupReply(node.id, self.attributes(inode, attributes), entry_s, attr_s)
        self._nodes.looked_up(node)
        if verdict == ALLOW or not self._overlay.rules.active:
            return answer
        return self._as_ruled(name, inode, answer, parent)

    def hidden(self, parent: DirNode, directory: Inode, name: bytes) -> LookupReply:
        """Answer a look-up of a name that a rule hides: as missing, which only a connection of one branch may remember."""
        return self.missing(parent, directory, name) if self._cache.tree_id else NOT_THERE

    def _as_ruled(self, name: bytes, inode: Inode, answer: LookupReply, parent: DirNode) -> LookupReply:
        """Let the kernel remember no name that is hidden from others, and show what rules leave of a mode.

        Modes are shown so where all callers have the same rules. The kernel then refuses opens that it does not send us.
        """
        tree_id = self._cache.tree_id
        rules = self._overlay.rules.for_branch(tree_id or inode.tree.id)
        directory = parent.bound.get(inode.tree.id)
        if rules is None or directory is None:
            return answer
        verdict = rules.verdict(directory, name, is_dir=inode.is_dir)
        if verdict == ALLOW:
            return answer
        if not tree_id:
            return answer._replace(entry_s=NOW_S) if verdict == HIDE else answer
        return answer._replace(attributes=_masked(verdict, answer.attributes))

    def unnamed(self, inode: Inode) -> LookupReply:
        """Answer TMPFILE: a file that has no name yet; count one look-up on its node."""
        node = self._nodes.file(inode, None, b"")
        self._nodes.looked_up(node)
        return LookupReply(node.id, self.attributes(inode), NOW_S, NOW_S)

    def missing(self, parent: DirNode, directory: Inode, name: bytes) -> LookupReply:
        """Answer a look-up that found no such name."""
        if not self.caches(parent.view, directory.tree):
            return NOT_THERE
        parent.names.add(name)
        lower = directory.lower_path
        if lower is not None and directory.tree.joins_lower(directory, name):
            return NOT_THERE  # it shows again once the lower has more in it, of which no watch of the lower's directory tells
        lasting = lower is None or directory.tree.lower.frozen or parent.watched == lower
        lasting = lasting or is_whiteout((directory.entries or {}).get(name))
        return LookupReply(0, None, LONG_S if lasting else LOWER_S, NOW_S)

    def shown(self, node: KernelNode, inode: Inode) -> AttributesReply:
        """Answer a request about attributes."""
        if isinstance(node, DirNode):
            attr_s = self._directory_s(node, inode) if self.caches(node.view, inode.tree) else NOW_S
        else:
            attr_s = self._file_s(inode)
        attributes = self.attributes(inode)
        if self._cache.tree_id and self._overlay.rules.active:
            rules = self._overlay.rules.for_branch(self._cache.tree_id)
            if rules is not None and (verdict := rules.verdict_of(inode)) != ALLOW:
                attributes = _masked(verdict, attributes) or attributes
        return AttributesReply(attributes, attr_s)

    def _directory_s(self, node: DirNode, inode: Inode) -> float:
        if inode.id or inode.lower_path is None or inode.tree.lower.frozen:
            return LONG_S
        return LONG_S if self._connections.watched(inode.lower_path, self._cache, node) else LOWER_S

    def _file_s(self, inode: Inode) -> float:
        """Return how long the attributes of a file may be cached, whichever name it was reached by."""
        if inode in inode.tree.external_writers or not self._connections.caches_attributes(self._cache, inode):
            return NOW_S  # a process writes the content object itself, or another connection caches it
        if inode.has_own_data or inode.tree.lower.frozen or not (inode.is_file or not inode.id):
            return LONG_S
        if inode.linked or inode.lower_path is None:
            return LOWER_S
        return LONG_S if self._connections.is_watched(inode.lower_path.rpartition(b"/")[0], self._cache) else LOWER_S

    # -- .agentfs, and the trees below it

    def view_root(self, virtual: VirtualNode, tree: Tree) -> LookupReply:
        """Answer a look-up of a branch or snapshot below ``.agentfs``; count one look-up on its root."""
        root = self._nodes.view_root(virtual, tree)
        self._nodes.looked_up(root)
        shown = self.shown(root, tree.root)
        return LookupReply(root.id, shown.attributes, NOW_S, shown.attr_s)

    def virtual_entry(self, node: VirtualNode) -> LookupReply:
        """Answer a look-up of what is in ``.agentfs``; count one look-up on its node."""
        self._nodes.looked_up(node)
        return LookupReply(node.id, self.virtual_attributes(node), NOW_S, LONG_S if node.is_dir else NOW_S)

    def virtual_attributes(self, node: VirtualNode) -> Attributes:
        """Return what stat(2) shows of ``.agentfs`` and of what is in it. That of directories never changes."""
        mode = 0o040500 if node.is_dir else (0o100600 if node.kind == "control" else 0o100400)
        stamp = self._made_ns
        size = len(self._overlay.worktrees.file(node.owner.view.tree_id)) if node.kind == "git" else 0
        return Attributes(
            (1 << 52) - node.id, mode, 2 if node.is_dir else 1, self._connections.owner_uid, os.getegid(), 0, size, 0,
            stamp, stamp, stamp, 0,
        )  # fmt: skip


def _masked(verdict: int, attributes: Attributes | None) -> Attributes | None:
    return attributes._replace(mode=masked_mode(verdict, attributes.mode)) if attributes is not None else None
