"""The session through pyfuse3: mounting, and each request into Operations and back. One connection per process."""

import errno
import itertools
import os
import stat
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, ReaddirToken, RequestContext, SetattrFields, StatvfsData

from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.tree import Inode
from agentfsd.fuse import pyfuse3_entries
from agentfsd.fuse.base import DirHandle, FileHandle
from agentfsd.fuse.errno_map import errno_of
from agentfsd.fuse.files import is_acl
from agentfsd.fuse.name_reservations import NameReserved
from agentfsd.fuse.notifier import all_taken
from agentfsd.fuse.operations import Operations
from agentfsd.fuse.reply import AttributesReply, CallContext, LookupReply
from agentfsd.fuse.request_profiling import look_closer

_BY_HANDLE = frozenset({"read", "write", "flush", "fsync", "release", "readdir", "releasedir", "fsyncdir"})
_ABOUT_NONE = frozenset({"forget", "statfs"})
_EXPIRES_SINCE = (6, 2)  # FUSE_EXPIRE_ONLY; libfuse does not show us what INIT said

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Method = Callable[Concatenate["_Requests", _P], Coroutine[Any, Any, _T]]


def _counted(method: _Method[_P, _T]) -> _Method[_P, _T]:
    """A request, from its arrival to its answer; what is raised becomes an errno. See _Requests.count."""
    op = method.__name__

    async def request(self: "_Requests", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        began_ns, failed = time.monotonic_ns(), 1
        node, tid = self.asked_about(op, args)  # before: a release forgets whose it was
        try:
            found = await method(self, *args, **kwargs)
            failed = 0
            return found
        except FUSEError:
            raise
        except Exception as exc:  # noqa: BLE001 - becomes an errno
            raise FUSEError(errno_of(exc, op)) from None
        finally:
            self.count(op, time.monotonic_ns() - began_ns, failed, node, tid)

    return request


class Pyfuse3Session:
    """One mount."""

    kind = "pyfuse3"

    def __init__(self, operations: Operations, mountpoint: str, options: frozenset[str]) -> None:
        self.operations = operations
        self._requests = _Requests(operations)
        self._mountpoint, self._options = mountpoint, options
        self._mounted = False

    def mount(self) -> None:
        """OSError with a sentence when the kernel or fusermount3 refuses."""
        options = {"fsname=agentfsd", "subtype=agentfsd", "default_permissions", *self._options}
        try:
            pyfuse3.init(self._requests, self._mountpoint, options)
        except RuntimeError as exc:
            raise OSError(errno.EIO, f"mounting on {self._mountpoint} failed: {exc} (`agentfsd doctor` says why)") from exc
        self._mounted = True

    async def serve(self) -> None:
        """Answers requests until the file system is unmounted or terminate() is called."""
        self.operations.notifier.start(_fuse_descriptor(), expires=_kernel_version() >= _EXPIRES_SINCE)
        self.operations.unite()
        try:
            await pyfuse3.main()
        finally:
            self.operations.notifier.stop()

    def terminate(self) -> None:
        """Asks serve() to return; the mount stays until close()."""
        pyfuse3.terminate()

    def close(self, *, unmount: bool) -> None:
        """Ends the connection. *unmount* only while the mount is there: libfuse takes away whatever is on top."""
        if self._mounted:
            self._mounted = False
            pyfuse3.close(unmount=unmount)


class _Requests(pyfuse3.Operations):
    """Every request pyfuse3 can express."""

    supports_dot_lookup = False
    enable_writeback_cache = False  # a snapshot would miss acknowledged writes that the kernel still holds
    enable_acl = True

    def __init__(self, operations: Operations) -> None:
        super().__init__()
        self._ops = operations
        self._traffic = operations.connections.traffic

    async def _do(self, handler: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        while True:
            try:
                found = handler(*args, **kwargs)
                break
            except NameReserved as exc:
                await exc.over()
        if self._ops.unsettled:
            await all_taken(self._ops.take_unsettled())
        return found

    def asked_about(self, op: str, args: tuple[Any, ...]) -> tuple[int, int]:
        """The node and the thread that a request is about, 0 where nobody knows; of an open file whoever opened it."""
        if op not in _BY_HANDLE:
            return (0 if op in _ABOUT_NONE else args[0]), next((one.pid for one in args if isinstance(one, RequestContext)), 0)
        handle = self._ops.handles.get(args[0])
        if isinstance(handle, FileHandle):
            node = self._ops.nodes.find_file(handle.inode)
            return (node.id if node is not None else 0), handle.opener
        return (handle.node.id, 0) if isinstance(handle, DirHandle) else (0, 0)

    def count(self, op: str, took_ns: int, failed: int, node: int, tid: int) -> None:
        tally = self._traffic.tally("fuse", op)
        tally.errors += failed
        tally.total_ns += took_ns
        tally.classes[took_ns.bit_length()] += 1
        if took_ns > self._traffic.slow.limit_ns or self._traffic.profiles:
            look_closer(self._ops, op, took_ns, node, tid)

    # -- names

    @_counted
    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        found = await self._do(self._ops.lookup, parent_inode, name, _context(ctx))
        if not found.node and not found.entry_s:
            raise FUSEError(errno.ENOENT)
        return _entry(found)

    @_counted
    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for number, count in inode_list:
            self._ops.forget(number, count)

    @_counted
    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._do(self._ops.mkdir, parent_inode, name, mode, _context(ctx)))

    @_counted
    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._do(self._ops.mknod, parent_inode, name, mode, rdev, _context(ctx)))

    @_counted
    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._do(self._ops.symlink, parent_inode, name, target, _context(ctx)))

    @_counted
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        handle, _, found = await self._do(self._ops.create, parent_inode, name, mode, flags, _context(ctx))
        self._opened_by(handle, ctx.pid)
        return FileInfo(fh=handle, keep_cache=True), _entry(found)

    @_counted
    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._do(self._ops.link, inode, new_parent_inode, new_name, _context(ctx)))

    @_counted
    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        await self._do(self._ops.unlink, parent_inode, name, _context(ctx))

    @_counted
    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        await self._do(self._ops.rmdir, parent_inode, name, _context(ctx))

    @_counted
    async def rename(
        self, parent_inode_old: int, name_old: bytes, parent_inode_new: int, name_new: bytes, flags: int, ctx: RequestContext
    ) -> None:
        await self._do(self._ops.rename, parent_inode_old, name_old, parent_inode_new, name_new, flags, _context(ctx))

    @_counted
    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        return await self._do(self._ops.opendir, inode, _context(ctx))

    @_counted
    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        await self._do(self._fill, fh, start_id, token)

    def _fill(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        for name, found, following in self._ops.read_directory(fh, start_id):
            if not pyfuse3.readdir_reply(token, name, _entry(found), following):
                self._ops.untaken(found)
                return

    @_counted
    async def releasedir(self, fh: int) -> None:
        self._ops.releasedir(fh)

    @_counted
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        await self._ops.sync_names()

    # -- one inode

    @_counted
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        return _attributes(inode, await self._do(self._ops.getattr, inode, _context(ctx)))

    @_counted
    async def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        new = NewAttributes(
            mode=attr.st_mode if fields.update_mode else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
            size=attr.st_size if fields.update_size else None,
            atime_ns=attr.st_atime_ns if fields.update_atime else None,
            mtime_ns=attr.st_mtime_ns if fields.update_mtime else None,
        )
        caller, by_handle = _context(ctx), fh is not None
        if new.size:
            await self._copy_ahead(await self._do(self._ops.file_to_resize, inode, by_handle, caller))
        setattr_ = self._ops.setattr
        return _attributes(inode, await self._do(setattr_, inode, new, by_handle, caller, keeps_setid=ctx.uid == 0))

    async def _copy_ahead(self, inode: Inode | None) -> None:
        if inode is not None and self._ops.must_copy(inode):
            await self._ops.copy_ahead(inode)

    @_counted
    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        return await self._do(self._ops.readlink, inode, _context(ctx))

    @_counted
    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        return await self._do(self._ops.getxattr, inode, name, _context(ctx))

    @_counted
    async def listxattr(self, inode: int, ctx: RequestContext) -> list[bytes]:
        return await self._do(self._ops.listxattr, inode, _context(ctx))

    @_counted
    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        caller = _context(ctx)
        in_group = not is_acl(name) or _is_in_group(ctx, (await self._do(self._ops.getattr, inode, caller)).attributes.gid)
        await self._do(self._ops.setxattr, inode, name, value, 0, caller, in_group=in_group)

    @_counted
    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        await self._do(self._ops.removexattr, inode, name, _context(ctx))

    @_counted
    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        caller = _context(ctx)
        text = await self._do(self._ops.open_text, inode, caller)
        if text is not None:
            return FileInfo(fh=await text, direct_io=True, keep_cache=False)
        handle, _ = await self._do(self._ops.open, inode, flags, caller)
        self._opened_by(handle, ctx.pid)
        return FileInfo(fh=handle, keep_cache=True)  # pages stay good: see Base

    @_counted
    async def read(self, fh: int, off: int, size: int) -> bytes:
        found = await self._do(self._ops.read, fh, size, off)
        self._traffic.read_bytes += len(found)
        return found

    @_counted
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        inode = self._ops.file_of(fh)
        if inode is None:
            await (await self._do(self._ops.write_text, fh, buf))
            return len(buf)
        await self._copy_ahead(inode)
        keeps_setid, (_, opener) = self._ops.may_keep_setid(fh), self.asked_about("write", (fh,))
        written = await self._do(self._ops.write, inode, buf, off, keeps_setid=keeps_setid, tid=opener)
        self._traffic.written_bytes += written
        return written

    def _opened_by(self, handle: int, tid: int) -> None:
        """libfuse does not say who reads and writes: whoever opened the file is taken for it."""
        opened = self._ops.handles.get(handle)
        if isinstance(opened, FileHandle):
            opened.opener = tid

    @_counted
    async def flush(self, fh: int) -> None:
        """Nothing waits to be written: every write has reached the object already."""

    @_counted
    async def release(self, fh: int) -> None:
        self._ops.release(fh)

    @_counted
    async def fsync(self, fh: int, datasync: bool) -> None:
        inode = self._ops.file_of(fh)
        if inode is not None:
            await self._ops.sync(inode, data_only=datasync)

    @_counted
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        found, reply = await self._do(self._ops.statfs), StatvfsData()
        for field in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(reply, field, getattr(found, field))
        reply.f_namemax = 255
        return reply

    @_counted
    async def access(self, inode: int, mode: int, ctx: RequestContext) -> bool:
        return True  # the kernel checks permissions itself (default_permissions)


def _context(ctx: RequestContext) -> CallContext:
    """The kernel has applied the umask already."""
    return CallContext(ctx.pid, ctx.uid, ctx.gid)


def _entry(found: LookupReply) -> EntryAttributes:
    if found.attributes is None:
        return pyfuse3_entries.missing(found.entry_s)
    return pyfuse3_entries.make(found.node, found.attributes, found.entry_s, found.attr_s)


def _attributes(number: int, found: AttributesReply) -> EntryAttributes:
    return pyfuse3_entries.make(number, found.attributes, 0.0, found.attr_s)


def _is_in_group(ctx: RequestContext, gid: int) -> bool:
    return ctx.uid == 0 or ctx.gid == gid or gid in pyfuse3.get_sup_groups(ctx.pid)


def _kernel_version() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(itertools.takewhile(str.isdigit, minor)) or 0)


def _fuse_descriptor() -> int:
    """pyfuse3 does not show the connection's descriptor; notifications that it does not know go through it directly."""
    for name in os.listdir("/proc/self/fd"):
        try:
            found = os.stat(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(10, 229):
            return int(name)
    raise OSError(errno.ENODEV, "no connection to /dev/fuse")
