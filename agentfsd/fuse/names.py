"""Handlers of requests about names: look-up, create, link, remove, rename, listing."""

import errno
import os
import stat

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, ReaddirToken, RequestContext

from agentfsd.core import data, namespace
from agentfsd.core.inode import WHITEOUT, Inode
from agentfsd.core.namespace import RENAME_EXCHANGE, Owner
from agentfsd.core.tree import Tree
from agentfsd.fuse import entry
from agentfsd.fuse.base import Base, DirHandle
from agentfsd.fuse.errors import translated
from agentfsd.fuse.nodes import DirNode, FileNode, VirtualNode
from agentfsd.fuse.virtual import DOTS, Virtual, dot_entry
from agentfsd.types import CONTROL_DIR


class NameHandlers(Virtual, Base):
    @translated
    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        node = self.nodes[parent_inode]
        if isinstance(node, VirtualNode):
            return self.lookup_virtual(node, name, ctx)
        parent, tree, directory = self.directory(parent_inode, ctx)
        if name == CONTROL_DIR and parent.parent is None:
            return self.lookup_control_dir(parent, ctx)
        found = tree.find(directory, name)
        if found is not None:
            if not found.is_dir and not parent.view.tree_id:
                self.heal(parent, name, tree.id)
            return self.reply(parent, name, found)
        if not parent.view.tree_id:
            self.heal(parent, name, tree.id)
            raise FileNotFoundError(errno.ENOENT, "no such name")
        parent.names.add(name)
        lasting = directory.lower_path is None or tree.entries(directory).get(name) == WHITEOUT
        return entry.missing(entry.LONG_S if lasting else entry.LOWER_S)

    async def forget(self, inode_list: list[tuple[int, int]]) -> None:
        for number, count in inode_list:
            self.nodes.forget(number, count)

    def _place(self, number: int, name: bytes, ctx: RequestContext) -> tuple[DirNode, Tree, Inode]:
        """The directory in which a name is to change; the name of the control directory is taken."""
        parent, tree, directory = self.directory(number, ctx)
        if name == CONTROL_DIR and parent.parent is None:
            raise PermissionError(errno.EPERM, ".agentfs is agentfsd's own")
        return parent, tree, directory

    def _make(
        self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext, *, rdev: int = 0, target: bytes = b""
    ) -> tuple[DirNode, Inode, Inode]:
        """(the directory's node, the directory, what was made)."""
        parent, tree, directory = self._place(parent_inode, name, ctx)
        made = namespace.make(tree, directory, name, mode, Owner(ctx.uid, ctx.gid), rdev=rdev, target=target)
        return parent, directory, made

    @translated
    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        parent, directory, made = self._make(parent_inode, name, stat.S_IFDIR | mode, ctx)
        reply = self.reply(parent, name, made)
        await self.changed(parent, directory, name)
        return reply

    @translated
    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        parent, directory, made = self._make(parent_inode, name, mode, ctx, rdev=rdev)
        reply = self.reply(parent, name, made)
        self._close_unused(made)
        await self.changed(parent, directory, name)
        return reply

    @translated
    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        parent, directory, made = self._make(parent_inode, name, stat.S_IFLNK | 0o777, ctx, target=target)
        reply = self.reply(parent, name, made)
        await self.changed(parent, directory, name)
        return reply

    @translated
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        parent, tree, directory = self._place(parent_inode, name, ctx)
        found = tree.find(directory, name)
        if found is None:
            found = self._make(parent_inode, name, stat.S_IFREG | mode, ctx)[2]
            flags &= ~os.O_TRUNC
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "name exists")
        data.open_(found, flags)
        try:
            reply = self.reply(parent, name, found)
        except BaseException:
            data.release(found)
            raise
        info = self.file_info(found, flags, ctx)
        await self.changed(parent, directory, name)
        return info, reply

    @staticmethod
    def _close_unused(inode: Inode) -> None:
        if not inode.opens:
            inode.release_files()

    @translated
    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        parent, tree, directory = self._place(new_parent_inode, new_name, ctx)
        node = self.nodes[inode]
        if not isinstance(node, FileNode):
            raise PermissionError(errno.EPERM, "only a file can have two names")
        if node.inode.tree is not tree:
            raise OSError(errno.EXDEV, "another branch")
        namespace.link(tree, node.inode, directory, new_name)
        reply = self.reply(parent, new_name, node.inode)
        await self.changed(parent, directory, new_name)
        return reply

    @translated
    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        parent, tree, directory = self._place(parent_inode, name, ctx)
        namespace.unlink(tree, directory, name)
        await self.changed(parent, directory, name)

    @translated
    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        parent, tree, directory = self._place(parent_inode, name, ctx)
        found = tree.lookup(directory, name)
        if found.is_dir and tree.is_empty(found):
            self._part_from_others(parent, [(parent, name, found)])
        namespace.rmdir(tree, directory, name)
        node = self.nodes.seen(parent, name, tree.id)
        if node is not None:
            self.nodes.unlink_directory(node)
        self.heal(parent, name, tree.id)
        await self.changed(parent, directory, name)

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

    @translated
    async def rename(
        self, parent_inode_old: int, name_old: bytes, parent_inode_new: int, name_new: bytes, flags: int, ctx: RequestContext
    ) -> None:
        old_parent, tree, old_dir = self._place(parent_inode_old, name_old, ctx)
        new_parent, new_tree, new_dir = self._place(parent_inode_new, name_new, ctx)
        if new_tree is not tree or old_parent.view is not new_parent.view:
            raise OSError(errno.EXDEV, "another view")
        source, target = tree.lookup(old_dir, name_old), tree.find(new_dir, name_new)
        self._part_from_others(old_parent, [(old_parent, name_old, source), (new_parent, name_new, target)])
        namespace.rename(tree, old_dir, name_old, new_dir, name_new, flags)
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
        if old_parent.view.tree_id:
            new_parent.names.add(name_new)
        await self.changed(old_parent, old_dir, name_old)
        await self.changed(new_parent, new_dir, name_new)

    # -- listing

    @translated
    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        node = self.nodes[inode]
        if isinstance(node, VirtualNode):
            return self.new_handle(DirHandle(node, ""))
        directory, tree, _ = self.directory(inode, ctx)
        return self.new_handle(DirHandle(directory, tree.id))

    @translated
    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        handle = self.handles[fh]
        assert isinstance(handle, DirHandle)
        if isinstance(handle.node, VirtualNode):
            self.list_virtual(handle, start_id, token)
            return
        tree = self.tree_by_id(handle.tree_id)
        directory = self.bound_inode(handle.node, tree)
        if start_id == 0:
            hidden = CONTROL_DIR if handle.node.parent is None else None
            handle.listing = [*DOTS, *(name for name in tree.names(directory) if name != hidden)]
        for position in range(start_id, len(handle.listing)):
            if not self._list_entry(handle.node, tree, directory, handle.listing[position], position + 1, token):
                return

    def _list_entry(self, parent: DirNode, tree: Tree, directory: Inode, name: bytes, next_id: int, token: ReaddirToken) -> bool:
        """Adds one entry to a listing; False when there is no more room."""
        if name in DOTS:
            inode = directory if name == b"." or directory.parent is None else directory.parent
            return bool(pyfuse3.readdir_reply(token, name, dot_entry(tree.attributes(inode)), next_id))
        try:
            found = tree.find(directory, name)
            reply = self.reply(parent, name, found) if found is not None else None
        except OSError:
            return True  # it changed or vanished in the lower since the listing was made
        if found is None or reply is None:
            return True
        if pyfuse3.readdir_reply(token, name, reply, next_id):
            return True
        self._uncount(parent, name, found)
        return False

    def _uncount(self, parent: DirNode, name: bytes, inode: Inode) -> None:
        """The reply did not fit: the kernel knows nothing of that look-up."""
        node = self.nodes.directory(parent, name, inode) if inode.is_dir else self.nodes.file(inode)
        self.nodes.forget(node.id, 1)

    async def releasedir(self, fh: int) -> None:
        self.handles.pop(fh, None)

    @translated
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        self.overlay.store.sync()
