"""Handlers of requests about an inode itself: attributes, extended attributes, open, read, write, sync."""

import errno
import os
from collections.abc import Awaitable

from agentfsd.core import acl, data, inode_attributes
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.tree import Inode
from agentfsd.fuse.base import Base, FileHandle, TextHandle
from agentfsd.fuse.control_directory import Virtual
from agentfsd.fuse.nodes import DirNode, FileNode, VirtualNode
from agentfsd.fuse.reply import NOW_S, AttributesReply, CallContext


class FileHandlers(Virtual, Base):
    def getattr(self, number: int, ctx: CallContext) -> AttributesReply:
        node = self.nodes[number]
        if isinstance(node, VirtualNode):
            return AttributesReply(self.virtual_attributes(node), NOW_S)
        return self.shown(node, self.open_inode(number, ctx))

    def setattr(
        self, number: int, new: NewAttributes, by_handle: bool, ctx: CallContext, *, keeps_setid: bool
    ) -> AttributesReply:
        """*keeps_setid*: the caller may leave setuid bits where chown and truncate would take them away."""
        node = self.nodes[number]
        if isinstance(node, VirtualNode):  # `> control` in a shell truncates: nothing to do
            return AttributesReply(self.virtual_attributes(node), NOW_S)
        found = self.open_inode(number, ctx) if by_handle else self.inode(number, ctx)
        inode_attributes.setattr_(found.tree, found, new, privileged=keeps_setid)
        if self.overlay.events.listeners:
            self.tell("attributes" if new.size is None else "modified", found, ctx.pid)
        reply = self.shown(node, found)
        self._attributes_changed(number, found, data=new.size is not None)
        return reply

    def _attributes_changed(self, number: int, inode: Inode, *, data: bool = False) -> None:
        """A directory has a node in each view; a file has the same one in all of a connection."""
        node = self.nodes[number]
        if isinstance(node, DirNode):
            self.changed(node, inode)
        else:
            self.file_changed(inode, data=data)

    def readlink(self, number: int, ctx: CallContext) -> bytes:
        found = self.inode(number, ctx)
        return found.tree.readlink(found)

    # -- extended attributes

    def getxattr(self, number: int, name: bytes, ctx: CallContext) -> bytes:
        if isinstance(self.nodes[number], VirtualNode):
            raise OSError(errno.ENODATA, "no such attribute")
        found = self.inode(number, ctx)
        return inode_attributes.getxattr(found.tree, found, name)

    def listxattr(self, number: int, ctx: CallContext) -> list[bytes]:
        if isinstance(self.nodes[number], VirtualNode):
            return []
        found = self.inode(number, ctx)
        names = inode_attributes.listxattr(found.tree, found)
        return names if ctx.uid == 0 else [name for name in names if not name.startswith(b"trusted.")]

    def setxattr(self, number: int, name: bytes, value: bytes, flags: int, ctx: CallContext, *, in_group: bool) -> None:
        """*in_group*: the caller may set an ACL and leave the setgid bit."""
        found = self.inode(number, ctx)
        inode_attributes.setxattr(found.tree, found, name, value, flags, in_group=in_group)
        if self.overlay.events.listeners:
            self.tell("attributes", found, ctx.pid)
        self._attributes_changed(number, found)

    def removexattr(self, number: int, name: bytes, ctx: CallContext) -> None:
        found = self.inode(number, ctx)
        inode_attributes.removexattr(found.tree, found, name)
        if self.overlay.events.listeners:
            self.tell("attributes", found, ctx.pid)
        self._attributes_changed(number, found)

    # -- data

    def open_text(self, number: int, ctx: CallContext) -> Awaitable[int] | None:
        """The handle of a virtual file, to be awaited; None for any other file."""
        node = self.nodes[number]
        return self.open_virtual(node, ctx) if isinstance(node, VirtualNode) else None

    def open(self, number: int, flags: int, ctx: CallContext) -> tuple[int, Inode]:
        found = self.inode(number, ctx)
        if not found.is_file and not found.is_dir:
            raise OSError(errno.EINVAL, "the kernel opens these without us")
        data.open_(found, flags)
        if self.connections.moves_atime and data.note_access(found, flags):
            self.notifier.expire_attributes_now(number)
        if flags & os.O_TRUNC:
            self.data_changed(found, ctx.pid)
        return self.open_handle(found, flags, ctx), found

    def truncated(self, inode: Inode, *, keeps_setid: bool) -> None:
        """After an open with O_TRUNC."""
        inode_attributes.drop_capabilities(inode)
        if not keeps_setid:
            inode_attributes.drop_setid(inode)

    def file_of(self, handle_number: int) -> Inode | None:
        """What an open file stands for; None for a virtual one."""
        handle = self.handle(handle_number)
        return handle.inode if isinstance(handle, FileHandle) else None

    def file_at(self, number: int, ctx: CallContext) -> Inode:
        """The file that is read or written without having been opened."""
        node = self.nodes[number]
        if not isinstance(node, FileNode) or not node.inode.is_file:
            raise OSError(errno.EISDIR if isinstance(node, DirNode) else errno.EINVAL, "no file")
        self.check_caller(node.inode.tree, ctx)
        return node.inode

    def file_to_resize(self, number: int, by_handle: bool, ctx: CallContext) -> Inode | None:
        """The file that a setattr with a size is about; None for what is virtual."""
        if isinstance(self.nodes[number], VirtualNode):
            return None
        return self.open_inode(number, ctx) if by_handle else self.inode(number, ctx)

    def read(self, handle_number: int, size: int, offset: int) -> bytes:
        handle = self.handle(handle_number)
        if isinstance(handle, FileHandle):
            self.nodes.note_pages(handle.inode)
            return data.read(handle.inode, size, offset)
        return self.read_text(handle_number, size, offset)

    def read_text(self, handle_number: int, size: int, offset: int) -> bytes:
        handle = self.handle(handle_number)
        if not isinstance(handle, TextHandle):
            raise OSError(errno.EBADF, "no file")
        return handle.channel.read(size) if handle.channel is not None else handle.text[offset : offset + size]

    def write_text(self, handle_number: int, text: bytes) -> Awaitable[None]:
        """To be awaited: a request may have to wait."""
        handle = self.handle(handle_number)
        if not isinstance(handle, TextHandle) or handle.channel is None:
            raise PermissionError(errno.EACCES, "read-only")
        return handle.channel.write(text)

    def write(
        self, inode: Inode, buffer: bytes | memoryview, offset: int, *, keeps_setid: bool, tid: int = 0, append: bool = False
    ) -> int:
        """Call copy_ahead() first when must_copy() says so. *append*: see data.write.

        *tid*: who writes, where the kernel says so.
        """
        self.nodes.note_pages(inode)
        written = data.write(inode, buffer, offset, privileged=keeps_setid, append=append)
        self.file_changed(inode, data=True)
        if self.overlay.events.listeners:
            self.tell_write(inode, tid)
        return written

    def data_changed(self, inode: Inode, tid: int) -> None:
        """After another change of a file's data."""
        self.file_changed(inode, data=True)
        if self.overlay.events.listeners:
            self.tell("modified", inode, tid)

    def may_keep_setid(self, handle_number: int) -> bool:
        """By who opened the file, where the kernel does not say who writes."""
        handle = self.handle(handle_number)
        return isinstance(handle, FileHandle) and handle.privileged

    def release(self, handle_number: int) -> None:
        handle = self.handles.pop(handle_number, None)
        if isinstance(handle, FileHandle):
            if handle.since_ns and self.overlay.events.listeners and data.changed_since(handle.inode, handle.since_ns):
                self.tell("modified", handle.inode, handle.opener)
            data.release(handle.inode)
            self.writers -= handle.writes
            if handle.writes and not self.nodes.top.tree_id:
                self.connections.contests.end(handle.inode)
        elif isinstance(handle, TextHandle) and handle.channel is not None:
            handle.channel.close()

    def statfs(self) -> os.statvfs_result:
        return self.overlay.backstore.statvfs()


def is_acl(name: bytes) -> bool:
    return name == acl.ACCESS
