"""Handlers of requests about names: look-up, create, link, remove, rename, listing."""

import errno
import os
import stat
from collections.abc import Iterator

from agentfsd.core import data, directory_entries
from agentfsd.core.directory_entries import RENAME_EXCHANGE, Owner
from agentfsd.core.permissions import READ, WRITE, Credentials, check
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.fuse.base import Base, DirHandle
from agentfsd.fuse.control_directory import DOTS, Virtual, dot_entry
from agentfsd.fuse.name_reservations import stale
from agentfsd.fuse.nodes import DirNode, FileNode, VirtualNode
from agentfsd.fuse.reply import NOW_S, CallContext, ListedName, LookupReply
from agentfsd.types import CONTROL_DIR


class NameHandlers(Virtual, Base):
    def lookup(self, parent_inode: int, name: bytes, ctx: CallContext) -> LookupReply:
        node = self.nodes[parent_inode]
        if isinstance(node, VirtualNode):
            return self.lookup_virtual(node, name, ctx)
        parent, tree, directory = self.directory(parent_inode, ctx)
        if name == CONTROL_DIR and parent.parent is None:
            return self.lookup_control_dir(parent, ctx)
        self.watch(parent, directory)
        found = tree.look(directory, name)
        self.connections.turns.looked(ctx.pid, directory, name, found=found is not None)
        caller_dependent = not parent.view.tree_id
        if found is None:
            if caller_dependent:
                self.heal(parent, name, tree.id)
            return self.missing(parent, directory, name)
        inode, attributes = found
        answer = self.reply(parent, name, inode, attributes)
        if caller_dependent and (not inode.is_dir or self.nodes[answer.node] is not parent.children.get(name)):
            self.heal(parent, name, tree.id)
        return answer

    def forget(self, number: int, count: int) -> Inode | None:
        """The kernel holds *count* look-ups of a node less; the file of which it knows nothing any more, if it is one."""
        gone = self.nodes.forget(number, count)
        if not isinstance(gone, DirNode):
            return gone
        if gone.watched is not None:
            self.connections.unwatch(gone.watched, self, gone)
        return None

    def _place(self, number: int, name: bytes, ctx: CallContext) -> tuple[DirNode, Tree, Inode]:
        """The directory in which a name is to change; the name of the control directory is taken."""
        parent, tree, directory = self.directory(number, ctx)
        if name == CONTROL_DIR and parent.parent is None:
            raise PermissionError(errno.EPERM, ".agentfs is agentfsd's own")
        return parent, tree, directory

    def _make(
        self, parent_inode: int, name: bytes, mode: int, ctx: CallContext, *, rdev: int = 0, target: bytes = b""
    ) -> tuple[DirNode, Inode, Inode]:
        """(the directory's node, the directory, what was made)."""
        parent, tree, directory = self._place(parent_inode, name, ctx)
        self.connections.turns.check(ctx.pid, directory, name)
        made = directory_entries.make(tree, directory, name, mode, Owner(ctx.uid, ctx.gid, ctx.umask), rdev=rdev, target=target)
        self.connections.turns.made(ctx.pid)
        if self.overlay.events.listeners:
            self.tell("created", made, ctx.pid)
        return parent, directory, made

    def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: CallContext) -> LookupReply:
        parent, directory, made = self._make(parent_inode, name, stat.S_IFDIR | mode, ctx)
        reply = self.reply(parent, name, made)
        self.changed(parent, directory, name)
        return reply

    def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: CallContext) -> LookupReply:
        try:
            parent, directory, made = self._make(parent_inode, name, mode, ctx, rdev=rdev)
        except FileExistsError:
            if stat.S_ISREG(mode):  # an open(2), perhaps, which has not said O_EXCL
                self._look_again(parent_inode, name, ctx)
            raise
        reply = self.reply(parent, name, made)
        self._close_unused(made)
        self.changed(parent, directory, name)
        return reply

    def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: CallContext) -> LookupReply:
        parent, directory, made = self._make(parent_inode, name, stat.S_IFLNK | 0o777, ctx, target=target)
        reply = self.reply(parent, name, made)
        self.changed(parent, directory, name)
        return reply

    def create(self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: CallContext) -> tuple[int, Inode, LookupReply]:
        """(handle, what it is of, the answer of the look-up)."""
        parent, tree, directory = self._place(parent_inode, name, ctx)
        found = tree.find(directory, name)
        if found is None:
            found = self._make(parent_inode, name, stat.S_IFREG | mode, ctx)[2]
            flags &= ~os.O_TRUNC
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "name exists")
        else:
            self._look_again(parent_inode, name, ctx)
            _check_open(found, flags, ctx)
        data.open_(found, flags)
        if flags & os.O_TRUNC and self.overlay.events.listeners:
            self.tell("modified", found, ctx.pid)
        try:
            reply = self.reply(parent, name, found)
        except BaseException:
            data.release(found)
            raise
        handle = self.open_handle(found, flags, ctx)
        self.changed(parent, directory, name)
        return handle, found, reply

    def _look_again(self, parent_inode: int, name: bytes, ctx: CallContext) -> None:
        """A file is to be made under a name that this connection's kernel does not know of: at its first try ESTALE has it look,
        and then open what is there, with its own check of permissions."""
        _, _, directory = self.directory(parent_inode, ctx)
        if self.connections.turns.look_again(ctx.pid, directory, name):
            raise stale()

    def tmpfile(self, parent_inode: int, mode: int, flags: int, ctx: CallContext) -> tuple[int, Inode, LookupReply]:
        """A file without a name, in that directory's branch; link() may give it one."""
        _, tree, directory = self.directory(parent_inode, ctx)
        made = directory_entries.tmpfile(tree, directory, stat.S_IFREG | mode, Owner(ctx.uid, ctx.gid, ctx.umask))
        data.open_(made, flags & ~os.O_TRUNC)
        node = self.nodes.file(made)
        node.lookups += 1
        return self.open_handle(made, flags, ctx), made, LookupReply(node.id, self.attributes(made), NOW_S, NOW_S)

    @staticmethod
    def _close_unused(inode: Inode) -> None:
        if not inode.opens:
            inode.release_files()

    def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: CallContext) -> LookupReply:
        parent, tree, directory = self._place(new_parent_inode, new_name, ctx)
        node = self.nodes[inode]
        if not isinstance(node, FileNode):
            raise PermissionError(errno.EPERM, "only a file can have two names")
        if node.inode.tree is not tree:
            raise OSError(errno.EXDEV, "another branch")
        self.connections.turns.check(ctx.pid, directory, new_name)
        directory_entries.link(tree, node.inode, directory, new_name)
        if self.overlay.events.listeners:
            self.tell("created", node.inode, ctx.pid, join(directory.path, new_name))
        reply = self.reply(parent, new_name, node.inode)
        self.file_changed(node.inode, data=False)
        self.changed(parent, directory, new_name)
        return reply

    def unlink(self, parent_inode: int, name: bytes, ctx: CallContext) -> None:
        parent, tree, directory = self._place(parent_inode, name, ctx)
        gone = directory_entries.unlink(tree, directory, name)
        if self.overlay.events.listeners:
            self.tell("deleted", gone, ctx.pid, join(directory.path, name))
        self.file_changed(gone, data=False)
        self.changed(parent, directory, name)

    def rmdir(self, parent_inode: int, name: bytes, ctx: CallContext) -> None:
        parent, tree, directory = self._place(parent_inode, name, ctx)
        found = tree.lookup(directory, name)
        if found.is_dir and tree.is_empty(found):
            self._part_from_others(parent, [(parent, name, found)])
        directory_entries.rmdir(tree, directory, name)
        if self.overlay.events.listeners:
            self.tell("deleted", found, ctx.pid, join(directory.path, name))
        node = self.nodes.seen(parent, name, tree.id)
        if node is not None:
            self.nodes.unlink_directory(node)
        self.heal(parent, name, tree.id)
        self.changed(parent, directory, name)

    def _part_from_others(self, parent: DirNode, moving: list[tuple[DirNode, bytes, Inode | None]]) -> None:
        """Before the kernel moves or kills a directory's node: it must not be one that other branches stand in.

        This branch gets a node of its own, and ESTALE makes the kernel look the name up again and come back with it.
        """
        if parent.view.tree_id:
            return
        parted = False
        for directory, name, inode in moving:
            if inode is None or not inode.is_dir:
                continue
            node = self.nodes.seen(directory, name, inode.tree.id)
            if node is not None and directory.children.get(name) is node and len(node.bound) > 1:
                self.nodes.make_private(directory, name, inode)
                parted = True
        if parted:
            raise OSError(errno.ESTALE, "look again")

    def rename(
        self, parent_inode_old: int, name_old: bytes, parent_inode_new: int, name_new: bytes, flags: int, ctx: CallContext
    ) -> None:
        old_parent, tree, old_dir = self._place(parent_inode_old, name_old, ctx)
        new_parent, new_tree, new_dir = self._place(parent_inode_new, name_new, ctx)
        if new_tree is not tree or old_parent.view is not new_parent.view:
            raise OSError(errno.EXDEV, "another view")
        source, target = tree.lookup(old_dir, name_old), tree.find(new_dir, name_new)
        self.connections.turns.check(ctx.pid, new_dir, name_new)
        self._part_from_others(old_parent, [(old_parent, name_old, source), (new_parent, name_new, target)])
        paths = (join(old_dir.path, name_old), join(new_dir.path, name_new)) if self.overlay.events.listeners else ()
        directory_entries.rename(tree, old_dir, name_old, new_dir, name_new, flags)
        if paths and source is not target:
            self._tell_renamed(source, target if flags & RENAME_EXCHANGE else None, *paths, ctx)
        moved = self.nodes.seen(old_parent, name_old, tree.id) if source.is_dir else None
        replaced = self.nodes.seen(new_parent, name_new, tree.id) if target is not None and target.is_dir else None
        if replaced is not None and not flags & RENAME_EXCHANGE:
            self.nodes.unlink_directory(replaced)
        if moved is not None:
            self.nodes.moved(moved, tree.id, new_parent, name_new)
        if replaced is not None and flags & RENAME_EXCHANGE:
            self.nodes.moved(replaced, tree.id, old_parent, name_old)
        if moved is not None:
            self.heal(old_parent, name_old, tree.id)
        if target is not None and not target.is_dir:
            self.file_changed(target, data=False)
        self._follow_names((old_parent, name_old), (new_parent, name_new), tree, flags)
        self.changed(old_parent, old_dir, name_old)
        self.changed(new_parent, new_dir, name_new)

    def _follow_names(self, old: tuple[DirNode, bytes], new: tuple[DirNode, bytes], tree: Tree, flags: int) -> None:
        """The kernel moves what it has of a name. If another connection has changed that meanwhile, it has something else there
        than we have renamed, and is to look it up."""
        if not self.caches(new[0].view, tree):
            return
        places = (old, new) if flags & RENAME_EXCHANGE else (new,)
        doubtful = any(name not in directory.names for directory, name in (places if flags & RENAME_EXCHANGE else (old,)))
        for directory, name in places:
            directory.names.add(name)
            if doubtful:
                self.notifier.expire(directory, [name])

    def _tell_renamed(self, source: Inode, exchanged: Inode | None, old: bytes, new: bytes, ctx: CallContext) -> None:
        self.tell("renamed", source, ctx.pid, new, old)
        if exchanged is not None:
            self.tell("renamed", exchanged, ctx.pid, old, new)

    # -- listing

    def opendir(self, inode: int, ctx: CallContext) -> int:
        node = self.nodes[inode]
        if isinstance(node, VirtualNode):
            return self.new_handle(DirHandle(node, ""))
        directory, tree, _ = self.directory(inode, ctx)
        return self.new_handle(DirHandle(directory, tree.id))

    def read_directory(self, handle_number: int, start: int) -> Iterator[ListedName]:
        """What an open directory holds from a position on; each entry that was taken counts as a look-up (see untaken)."""
        handle = self.handle(handle_number)
        if not isinstance(handle, DirHandle):
            raise OSError(errno.EBADF, "no directory")
        if isinstance(handle.node, VirtualNode):
            yield from self.list_virtual(handle.node, handle, start)
            return
        tree = self.tree_by_id(handle.tree_id)
        directory = self.bound_inode(handle.node, tree)
        if start == 0 or not handle.listing:  # the kernel may have had what comes before *start* from another open's listing
            self.watch(handle.node, directory)
            shared = handle.is_shared or self.caches(handle.node.view, tree)
            names = self._names(handle.node, tree, directory)
            handle.listing = [*DOTS, *(_in_order(handle.node, names) if shared else names)]
        yield from self._list(handle.node, tree, directory, handle.listing, start)

    def read_unopened(self, number: int, start: int, ctx: CallContext) -> Iterator[ListedName]:
        """Likewise where the kernel opens no directories: every name keeps its position for all who list at once."""
        node = self.nodes[number]
        if isinstance(node, VirtualNode):
            yield from self.list_virtual(node, DirHandle(node, ""), start)
            return
        parent, tree, directory = self.directory(number, ctx)
        if start == 0 or not parent.order:
            self.watch(parent, directory)
            _in_order(parent, self._names(parent, tree, directory))
        yield from self._list(parent, tree, directory, [*DOTS, *parent.order], start)

    @staticmethod
    def _names(node: DirNode, tree: Tree, directory: Inode) -> list[bytes]:
        hidden = CONTROL_DIR if node.parent is None else None
        return [name for name in tree.names(directory) if name != hidden]

    def _list(self, parent: DirNode, tree: Tree, directory: Inode, listing: list[bytes], start: int) -> Iterator[ListedName]:
        for position in range(start, len(listing)):
            name = listing[position]
            if position < len(DOTS):
                inode = directory if position == 0 or directory.parent is None else directory.parent
                yield ListedName(name, dot_entry(self.attributes(inode)), position + 1)
                continue
            try:
                found = tree.look(directory, name)
                if found is None:
                    continue
                reply = self.reply(parent, name, *found)
            except OSError:
                continue  # it changed or vanished in the lower since the listing was made
            yield ListedName(name, reply, position + 1)

    def untaken(self, entry: LookupReply) -> None:
        """An entry did not fit into the answer, or was given without attributes: the kernel counts no look-up."""
        if entry.node:
            self.forget(entry.node, 1)

    def may_cache_listing(self, handle_number: int) -> bool:
        """Whether all who list that directory see the same."""
        handle = self.handle(handle_number)
        if not isinstance(handle, DirHandle) or isinstance(handle.node, VirtualNode):
            return False
        handle.is_shared = self.caches(handle.node.view, self.tree_by_id(handle.tree_id))
        return handle.is_shared

    def releasedir(self, fh: int) -> None:
        self.handles.pop(fh, None)


def _check_open(inode: Inode, flags: int, ctx: CallContext) -> None:
    """The kernel, which believes the file to be new, has not checked whether the caller may open it. EACCES, ESTALE."""
    if not inode.is_file:
        raise stale()
    access = flags & os.O_ACCMODE
    wanted = {os.O_RDONLY: READ, os.O_WRONLY: WRITE}.get(access, READ | WRITE) | (WRITE if flags & os.O_TRUNC else 0)
    check(inode, wanted, Credentials(ctx.uid, ctx.gid, frozenset({ctx.gid}), privileged=ctx.uid == 0))


def _in_order(node: DirNode, names: list[bytes]) -> list[bytes]:
    """Names that a directory has or had: each stays where it stood in earlier listings, or positions would mean another one."""
    known = set(node.order)
    if len(known) > 2 * len(names) + 64:
        node.order, known = [], set()
    node.order += [name for name in names if name not in known]
    return node.order
