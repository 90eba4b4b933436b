"""Handlers of requests about an inode itself: attributes, extended attributes, open, read, write, sync."""

import errno

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, RequestContext, SetattrFields, StatvfsData

from agentfsd.core import acl, attributes, copyup, data
from agentfsd.core.attributes import NewAttributes
from agentfsd.core.inode import Inode
from agentfsd.fuse import entry
from agentfsd.fuse.base import Base, FileHandle, TextHandle
from agentfsd.fuse.errors import translated
from agentfsd.fuse.nodes import DirNode, VirtualNode
from agentfsd.fuse.virtual import Virtual

# A copy-up above this size runs in a thread, so that nobody else waits for it.
_THREAD_BYTES = 4 << 20


class FileHandlers(Virtual, Base):
    @translated
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        node = self.nodes[inode]
        if isinstance(node, VirtualNode):
            return entry.make(inode, self.virtual_attributes(node), entry.NOW_S, entry.NOW_S)
        return self.attributes_reply(inode, self.open_inode(inode, ctx))

    @translated
    async def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        node = self.nodes[inode]
        if isinstance(node, VirtualNode):  # `> control` in a shell truncates: nothing to do
            return entry.make(inode, self.virtual_attributes(node), entry.NOW_S, entry.NOW_S)
        found = self.inode(inode, ctx) if fh is None else self.open_inode(inode, ctx)
        new = NewAttributes(
            mode=attr.st_mode if fields.update_mode else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
            size=attr.st_size if fields.update_size else None,
            atime_ns=attr.st_atime_ns if fields.update_atime else None,
            mtime_ns=attr.st_mtime_ns if fields.update_mtime else None,
        )
        if new.size:
            await self._copy_ahead(found)
        attributes.setattr_(found.tree, found, new, privileged=ctx.uid == 0)
        reply = self.attributes_reply(inode, found)
        await self._attributes_changed(inode, found)
        return reply

    async def _attributes_changed(self, number: int, inode: Inode) -> None:
        """A directory has a node in each view; a file has the same one in all."""
        node = self.nodes[number]
        if isinstance(node, DirNode):
            await self.changed(node, inode)

    async def _copy_ahead(self, inode: Inode) -> None:
        """Before a write: a large copy-up happens in a thread; what others write meanwhile is not lost."""
        if copyup.is_owned(inode) or data.copy_size(inode) < _THREAD_BYTES:
            return
        lock = self._copy_locks.setdefault(inode, trio.Lock())
        async with lock:
            if copyup.is_owned(inode):
                return
            copyup.check_copy(inode)
            copy = copyup.Copy(inode)
            try:
                await trio.to_thread.run_sync(copy.run)
            except BaseException:
                copy.abandon()
                raise
            copy.install()

    @translated
    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        found = self.inode(inode, ctx)
        return found.tree.readlink(found)

    # -- extended attributes

    @translated
    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        if isinstance(self.nodes[inode], VirtualNode):
            raise OSError(errno.ENODATA, "no such attribute")
        found = self.inode(inode, ctx)
        return attributes.getxattr(found.tree, found, name)

    @translated
    async def listxattr(self, inode: int, ctx: RequestContext) -> list[bytes]:
        if isinstance(self.nodes[inode], VirtualNode):
            return []
        found = self.inode(inode, ctx)
        names = attributes.listxattr(found.tree, found)
        return names if ctx.uid == 0 else [name for name in names if not name.startswith(b"trusted.")]

    @translated
    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        found = self.inode(inode, ctx)
        in_group = name != acl.ACCESS or _is_in_group(ctx, found.tree.attributes(found).gid)
        attributes.setxattr(found.tree, found, name, value, in_group=in_group)
        await self._attributes_changed(inode, found)

    @translated
    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        found = self.inode(inode, ctx)
        attributes.removexattr(found.tree, found, name)
        await self._attributes_changed(inode, found)

    # -- data

    @translated
    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        node = self.nodes[inode]
        if isinstance(node, VirtualNode):
            return FileInfo(fh=self.new_handle(self.open_virtual(node, ctx)), direct_io=True, keep_cache=False)
        found = self.inode(inode, ctx)
        data.open_(found, flags)
        if self.moves_atime and data.note_access(found, flags):
            self.notifier.expire_attributes_now(inode)
        return self.file_info(found, flags, ctx)

    @translated
    async def read(self, fh: int, off: int, size: int) -> bytes:
        handle = self.handles[fh]
        if isinstance(handle, FileHandle):
            return data.read(handle.inode, size, off)
        assert isinstance(handle, TextHandle)
        return handle.channel.read(size) if handle.channel is not None else handle.text[off : off + size]

    @translated
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        handle = self.handles[fh]
        if isinstance(handle, FileHandle):
            if not copyup.is_owned(handle.inode):
                await self._copy_ahead(handle.inode)
            return data.write(handle.inode, buf, off, privileged=handle.privileged)
        if not isinstance(handle, TextHandle) or handle.channel is None:
            raise PermissionError(errno.EACCES, "read-only")
        await handle.channel.write(buf)
        return len(buf)

    async def flush(self, fh: int) -> None:
        """Nothing waits to be written: every write has reached the object already."""

    async def release(self, fh: int) -> None:
        handle = self.handles.pop(fh, None)
        if isinstance(handle, FileHandle):
            data.release(handle.inode)
            self.writers -= handle.writes
            if not handle.inode.opens:
                self._copy_locks.pop(handle.inode, None)
        elif isinstance(handle, TextHandle) and handle.channel is not None:
            handle.channel.close()

    @translated
    async def fsync(self, fh: int, datasync: bool) -> None:
        handle = self.handles[fh]
        if isinstance(handle, FileHandle):
            data.sync(handle.inode, data_only=datasync)

    @translated
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        found, reply = self.overlay.backstore.statvfs(), StatvfsData()
        for field in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(reply, field, getattr(found, field))
        reply.f_namemax = 255
        return reply

    @translated
    async def access(self, inode: int, mode: int, ctx: RequestContext) -> bool:
        return True  # the kernel checks permissions itself (default_permissions)


def _is_in_group(ctx: RequestContext, gid: int) -> bool:
    return ctx.uid == 0 or ctx.gid == gid or gid in pyfuse3.get_sup_groups(ctx.pid)
