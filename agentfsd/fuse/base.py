"""What every request handler needs: which tree the caller sees, which inode a node stands for, and the answer for it.

Handlers are synchronous: each is one atomic step. ``unsettled`` says who must be told before the answer may go.
"""

import errno
import itertools
import os

import trio

from agentfsd.core import copyup, data
from agentfsd.core.branch_events import BranchEvent, EventKind
from agentfsd.core.inode import Attributes
from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse.connections import Connections
from agentfsd.fuse.dentry_revival import DentryReviver
from agentfsd.fuse.nodes import DirNode, FileNode, KernelNode, NodeTable, TreeView, VirtualNode
from agentfsd.fuse.notifier import Notifier, Owed
from agentfsd.fuse.reply import LONG_S, LOWER_S, NOT_THERE, NOW_S, AttributesReply, CallContext, LookupReply
from agentfsd.metadata.rows import is_whiteout
from agentfsd.types import Caller, ControlChannel


class FileHandle:
    """One open of a regular file; ``privileged``: opened by root, whose writes keep setuid bits."""

    __slots__ = ("flushes", "inode", "opener", "passed", "privileged", "since_ns", "writes")

    def __init__(self, inode: Inode, privileged: bool, mode: int) -> None:
        self.inode, self.privileged = inode, privileged
        self.writes = mode != os.O_RDONLY
        self.flushes = False  # each close of it is told, not only the last
        self.passed = False  # the kernel reads and writes the content object itself
        self.opener = self.since_ns = 0  # and if so: whose thread opened it, and when


class DirHandle:
    """One open of a directory, in the branch of whoever opened it; the listing is fixed at the first read.

    ``is_shared``: the kernel may take a part of it from what it has cached of another open's.
    """

    __slots__ = ("is_shared", "listing", "node", "tree_id")

    def __init__(self, node: DirNode | VirtualNode, tree_id: str) -> None:
        self.node, self.tree_id = node, tree_id
        self.is_shared = False
        self.listing: list[bytes] = []


class TextHandle:
    """One open of a virtual file: ready text, or a control channel."""

    __slots__ = ("channel", "text")

    def __init__(self, text: bytes, channel: ControlChannel | None) -> None:
        self.text, self.channel = text, channel


Handle = FileHandle | DirHandle | TextHandle


_MOST_MARKS = 1 << 19  # below bit 51: numbers stay below 2^53


class Base:
    """One connection's state, and the choke point from (node, caller) to (tree, inode)."""

    def __init__(self, connections: Connections, notifier: Notifier, healer: DentryReviver | None, tree_id: str = "") -> None:
        """*tree_id*: the one branch that the connection shows; "" for the caller's."""
        self.connections, self.notifier, self.healer = connections, notifier, healer
        self.overlay, self.bindings = connections.overlay, connections.bindings
        self.nodes = NodeTable(tree_id)
        self.handles: dict[int, Handle] = {}
        self.writers = 0  # files open for writing: the kernel may hold pages of those that are mapped
        self._handle_numbers = itertools.count(1)
        self.unsettled: Owed = {}
        self._marks = {tree_id or connections.overlay.default_id: 0}  # by tree: see attributes()
        self.device = 0  # st_dev of a connection in a namespace of its own, where we know it

    def handle(self, number: int) -> Handle:
        try:
            return self.handles[number]
        except KeyError:
            raise OSError(errno.EBADF, "no such handle") from None

    def new_handle(self, handle: Handle) -> int:
        number = next(self._handle_numbers)
        self.handles[number] = handle
        return number

    def open_handle(self, inode: Inode, flags: int, ctx: CallContext) -> int:
        """The handle of an open that core has counted already."""
        handle = FileHandle(inode, ctx.uid == 0, flags & os.O_ACCMODE)
        self.writers += handle.writes
        if handle.writes:
            self.connections.opened_for_update(self, inode)
        return self.new_handle(handle)

    def others_have_pages(self, inode: Inode) -> bool:
        """Whether pages_back() has something to do."""
        return len(self.connections.all) > 1 and self.connections.others_have_pages(self, inode)

    async def pages_back(self, inode: Inode) -> None:
        """Before a file's content is changed otherwise than by a write, or read otherwise than by a read: what was changed in
        mappings through other connections comes first, or it would come afterwards."""
        if self.others_have_pages(inode):
            await self.connections.pages_back(self, inode)

    def open_for_update(self, tree_id: str) -> list[Inode]:
        """The file of each handle of that branch that is open for writing."""
        handles = [handle for handle in self.handles.values() if isinstance(handle, FileHandle) and handle.writes]
        return [handle.inode for handle in handles if handle.inode.tree.id == tree_id]

    async def settled(self) -> None:
        """Others have been told of what was changed so far, and have written back what they were asked for."""
        for connection in list(self.connections.all):
            await connection.notifier.settled()

    def take_unsettled(self) -> Owed:
        """Whom the answer to the last request waits for."""
        owed, self.unsettled = self.unsettled, {}
        return owed

    # -- who sees what

    def tree_of(self, node: DirNode, ctx: CallContext) -> Tree:
        """The tree that a directory's view shows to the caller."""
        fixed = node.view.tree_id
        if fixed:
            tree = self.tree_by_id(fixed)
            self.check_caller(tree, ctx)
            return tree
        stands_for = self.healer.stands_in_for(ctx.pid) if self.healer is not None else None
        return self.tree_by_id(stands_for or self.bindings.branch_of(ctx.pid) or self.overlay.default_id)

    def check_caller(self, tree: Tree, ctx: CallContext) -> None:
        """A bound process reaches its own branch and that branch's snapshots, whatever descriptor or link leads elsewhere."""
        bound = self.bindings.branch_of(ctx.pid)
        if bound is None or bound == tree.id or (tree.read_only and self.overlay.snapshots.in_history(bound, tree.id)):
            return
        raise PermissionError(errno.EACCES, "a bound process reaches its own branch only")

    def tree_by_id(self, tree_id: str) -> Tree:
        try:
            return self.overlay.trees.by_id(tree_id)
        except OSError:
            raise OSError(errno.ESTALE, "the branch or snapshot has gone") from None

    def directory(self, number: int, ctx: CallContext) -> tuple[DirNode, Tree, Inode]:
        """The directory that a node is for this caller."""
        node = self.nodes[number]
        if isinstance(node, VirtualNode):
            raise PermissionError(errno.EPERM, ".agentfs cannot be changed")
        if not isinstance(node, DirNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")
        tree = self.tree_of(node, ctx)
        return node, tree, self.bound_inode(node, tree)

    def bound_inode(self, node: DirNode, tree: Tree) -> Inode:
        inode = node.bound.get(tree.id)
        if inode is not None and inode.tree is tree:
            return inode
        if node.parent is None:
            found = tree.root
        else:
            found = tree.walk(b"/".join(node.path()))
            if not found.is_dir:
                raise NotADirectoryError(errno.ENOTDIR, "not a directory in this branch")
        self.nodes.bind(node, found)
        return found

    def inode(self, number: int, ctx: CallContext) -> Inode:
        """The inode behind any node; EPERM for what is virtual, EACCES for another branch's."""
        node = self.nodes[number]
        if isinstance(node, FileNode):
            self.check_caller(node.inode.tree, ctx)
            return node.inode
        return self.directory(number, ctx)[2]

    def open_inode(self, number: int, ctx: CallContext) -> Inode:
        """Likewise for requests that any holder of a descriptor makes, whatever branch that is of: fstat, ftruncate."""
        node = self.nodes[number]
        return node.inode if isinstance(node, FileNode) else self.directory(number, ctx)[2]

    def caller(self, ctx: CallContext) -> Caller:
        return Caller(self.bindings.process_of(ctx.pid), ctx.uid, ctx.gid)

    # -- answers

    def attributes(self, inode: Inode, found: Attributes | None = None) -> Attributes:
        """As stat(2) shows them here; *found*: as the tree has them.

        Programs know a file by its number, and one path in two branches is two files: cp refuses to copy a file to itself.
        So the root's tree shows the lower's numbers, any other marks them above the 32 bits that git's index keeps.
        """
        tree = inode.tree
        found = found or tree.attributes(inode)
        mark = self._marks.get(tree.id)
        if mark is None:
            mark = self._marks[tree.id] = len(self._marks) % _MOST_MARKS << 32
        return Attributes(found.ino ^ mark, *found[1:]) if mark else found

    def caches(self, view: TreeView, tree: Tree) -> bool:
        """Whether names in that view may be cached: see Connections."""
        return self.connections.caches(self, view, tree)

    def watch(self, parent: DirNode, directory: Inode) -> None:
        """Before a directory's names are read: has changes of the lower reported, so that they may be cached."""
        if (
            directory.lower_path is not None
            and parent.watched != directory.lower_path
            and self.caches(parent.view, directory.tree)
        ):
            self.connections.watched(directory.lower_path, self, parent)

    def reply(self, parent: DirNode, name: bytes, inode: Inode, attributes: Attributes | None = None) -> LookupReply:
        """The answer to a look-up that found *inode*; counts one look-up on its node."""
        tree = inode.tree
        is_dir = inode.is_dir
        node: KernelNode = self.nodes.directory(parent, name, inode) if is_dir else self.nodes.file(inode)
        if not self.caches(parent.view, tree):
            answer = LookupReply(node.id, self.attributes(inode, attributes), NOW_S, NOW_S if is_dir else self._file_s(inode))
        else:
            parent.names.add(name)
            entry_s = LONG_S if inode.id or parent.watched is not None else LOWER_S
            if isinstance(node, DirNode):
                if not inode.id and node.watched != inode.lower_path:
                    attributes = None  # what was read before the watch may be old
                attr_s = self._directory_s(node, inode)
            else:
                attr_s = self._file_s(inode)
            answer = LookupReply(node.id, self.attributes(inode, attributes), entry_s, attr_s)
        node.lookups += 1
        return answer

    def missing(self, parent: DirNode, directory: Inode, name: bytes) -> LookupReply:
        """The answer that there is no such name."""
        if not self.caches(parent.view, directory.tree):
            return NOT_THERE
        parent.names.add(name)
        lower = directory.lower_path
        lasting = lower is None or parent.watched == lower or is_whiteout((directory.entries or {}).get(name))
        return LookupReply(0, None, LONG_S if lasting else LOWER_S, NOW_S)

    def _directory_s(self, node: DirNode, inode: Inode) -> float:
        if inode.id or inode.lower_path is None:
            return LONG_S
        return LONG_S if self.connections.watched(inode.lower_path, self, node) else LOWER_S

    def _file_s(self, inode: Inode) -> float:
        """How long the attributes of a file may be cached, whichever name it was reached by."""
        if inode in inode.tree.external_writers or not self.connections.caches_attributes(self, inode.tree):
            return NOW_S  # somebody changes it past us, or through another connection
        if inode.has_own_data or not (inode.is_file or not inode.id):
            return LONG_S
        if inode.linked or inode.lower_path is None:
            return LOWER_S
        return LONG_S if self.connections.is_watched(inode.lower_path.rpartition(b"/")[0], self) else LOWER_S

    def shown(self, node: KernelNode, inode: Inode) -> AttributesReply:
        """The answer about attributes."""
        if isinstance(node, DirNode):
            attr_s = self._directory_s(node, inode) if self.caches(node.view, inode.tree) else NOW_S
        else:
            attr_s = self._file_s(inode)
        return AttributesReply(self.attributes(inode), attr_s)

    def virtual_reply(self, node: VirtualNode) -> LookupReply:
        node.lookups += 1
        return LookupReply(node.id, self.virtual_attributes(node), NOW_S, NOW_S)

    def virtual_attributes(self, node: VirtualNode) -> Attributes:
        mode = 0o040500 if node.is_dir else (0o100600 if node.kind == "control" else 0o100400)
        stamp = self.overlay.parts.lower.stat(b"").st_ctime_ns
        return Attributes(
            (1 << 52) - node.id, mode, 2 if node.is_dir else 1, self.connections.owner_uid, os.getegid(), 0, 0, 0,
            stamp, stamp, stamp, 0,
        )  # fmt: skip

    def heal(self, parent: DirNode, name: bytes, tree_id: str) -> None:
        """Before an answer to that tree which takes away the dentry of a directory that others have there."""
        other = self.nodes.other_branch_at(parent, name, tree_id)
        if other is not None and self.healer is not None:
            self.healer.look_up(other, [*parent.path(), name])

    # -- other places that show the same branch

    def changed(self, parent: DirNode, directory: Inode, *names: bytes) -> None:
        """After names changed through *parent*: other views of the same branch that may have cached them look again."""
        self.unsettled |= self.connections.changed(parent, directory, names)

    def file_changed(self, inode: Inode, *, data: bool) -> None:
        """After a file changed: other connections that know it."""
        if len(self.connections.all) > 1:
            self.unsettled |= self.connections.file_changed(self, inode, data=data)

    def tell(self, kind: EventKind, inode: Inode, tid: int, path: bytes | None = None, old_path: bytes = b"") -> None:
        """After a change, while somebody listens (ask ``overlay.events.listeners`` first: usually nobody does)."""
        tree = inode.tree
        if tree.detached or (not inode.nlink and kind != "deleted"):
            return
        self.overlay.events.publish(BranchEvent(kind, tree.id, self.bindings.process_again(tid), inode, path, old_path))

    def tell_write(self, inode: Inode, tid: int) -> None:
        """After a write, while somebody listens: of the next one of the same, a listener that is alone need not hear."""
        if self.overlay.events.is_news((inode.tree.id, inode.ino, tid)):
            self.tell("modified", inode, tid)

    def tree_replaced(self, tree: Tree) -> None:
        """After a restore or a deletion: whatever the kernel has cached of that tree is looked up again."""
        self.forget_names_of(tree.id)
        for inode in tree.switched_files:
            file = self.nodes.find_file(inode)
            if file is not None:
                self.notifier.expire_data(file.id)
        if self.overlay.refs.exists(tree.id):
            self.nodes.leave_behind(tree)
        else:
            self.nodes.drop_views(tree.id)

    def forget_names_of(self, tree_id: str) -> None:
        """The kernel looks up again whatever it has cached of a tree. Wait for settled()."""
        directories: dict[int, set[bytes]] = {}
        for view in self.nodes.cached_views_of(tree_id):
            directories |= _taken_names(view)
        self.notifier.expire_many(list(directories.items()), self.nodes.files_of(tree_id))

    # -- while all callers see one branch

    def unite(self) -> None:
        """From now on names in the caller-dependent view may be cached: everybody sees the default branch."""
        if not self.nodes.top.tree_id and self.notifier.expires:
            self.nodes.uniform_id = self.overlay.default_id

    def diverge(self) -> None:
        """From now on callers may differ: nothing that was cached counts any more. Wait for settled()."""
        if self.nodes.uniform_id:
            self.nodes.uniform_id = ""
            self.notifier.expire_many(list(_taken_names(self.nodes.top).items()), [])

    # -- large copies

    def must_copy(self, inode: Inode) -> bool:
        """Whether the next write would copy so much that it belongs in a thread."""
        return inode.is_file and not copyup.is_owned(inode) and data.copy_size(inode) >= copyup.THREAD_BYTES

    async def copy_ahead(self, inode: Inode) -> None:
        """Call must_copy() first. What was computed from the file before is to be computed anew: see Connections."""
        await self.connections.copy_ahead(inode)

    async def sync_names(self) -> None:
        """fsync(2) of a directory."""
        self.overlay.store.commit()
        await trio.to_thread.run_sync(self.overlay.store.sync)

    async def sync(self, inode: Inode, *, data_only: bool) -> None:
        """fsync(2), in a thread: the disk may take long."""
        await trio.to_thread.run_sync(data.sync_later(inode, data_only=data_only))


def _taken_names(view: TreeView) -> dict[int, set[bytes]]:
    """By directory node what the kernel may hold of a view; it is to be told all of it."""
    found: dict[int, set[bytes]] = {}
    for node in {view.root, *view.dirs.values()}:
        if node is not None:
            found[node.id], node.names = node.names, set()
    return found
