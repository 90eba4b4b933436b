"""The session through pyfuse3: mounts, and translates each request into a call of ``handlers/`` and the result into a reply.

pyfuse3 keeps its session in module globals, so a process has one such connection. What pyfuse3 fixes for us:

- A method answers an error by raising FUSEError. Any other exception ends the session, so ``_counted`` translates all of them.
- ``lookup`` tells the kernel to cache a missing name by an entry with node number 0 and a timeout above 0.
- Each entry that the kernel takes counts as one look-up, as does each successful ``readdir_reply`` but those of ``.`` and ``..``.
- It passes no RequestContext to ``read``, ``write`` and the like, so the daemon does not learn which thread asks.
"""

import errno
import itertools
import os
import stat
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, ReaddirToken, RequestContext, SetattrFields, StatvfsData

from agentfsd.asking.questions import AnswerNeeded
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.tree import Inode
from agentfsd.fuse import pyfuse3_entries
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.errno_map import errno_of
from agentfsd.fuse.handlers import (
    control_directory,
    creation,
    extended_attributes,
    file_data,
    file_handles,
    listing,
    lookup,
    node_attributes,
    removal,
)
from agentfsd.fuse.handles import DirHandle, FileHandle
from agentfsd.fuse.name_reservations import NameReserved
from agentfsd.fuse.notifier import all_taken
from agentfsd.fuse.reply import AttributesReply, CallContext, LookupReply
from agentfsd.fuse.request_profiling import look_closer, note_refusal
from agentfsd.linux import mounts

_BY_HANDLE = frozenset({"read", "write", "flush", "fsync", "release", "readdir", "releasedir", "fsyncdir"})
_ABOUT_NONE = frozenset({"forget", "statfs"})
_EXPIRES_SINCE = (6, 2)  # Linux with FUSE_EXPIRE_ONLY; pyfuse3 does not tell us which flags INIT offered

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Method = Callable[Concatenate["_Requests", _P], Coroutine[Any, Any, _T]]


def _counted(method: _Method[_P, _T]) -> _Method[_P, _T]:
    """Wrap a request: count it and its duration (_Requests.count), and turn any exception into FUSEError with an errno."""
    op = method.__name__

    async def request(self: "_Requests", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        began_ns, failed = time.monotonic_ns(), errno.EIO
        node, tid = self.asked_about(op, args)  # asked now: RELEASE removes the handle
        try:
            reply = await method(self, *args, **kwargs)
            failed = 0
            return reply
        except FUSEError as exc:
            failed = exc.errno
            raise
        except Exception as exc:  # noqa: BLE001 - becomes an errno
            failed = errno_of(exc, op)
            raise FUSEError(failed) from None
        finally:
            self.count(op, time.monotonic_ns() - began_ns, failed, node, tid)

    return request


class Pyfuse3Session:
    """The connection at the mount point, served by pyfuse3.

    Args:
        options: Options of mount(8).
    """

    kind = "pyfuse3"

    def __init__(self, connection: Connection, mountpoint: str, options: frozenset[str]) -> None:
        self.connection = connection
        self._requests = _Requests(connection)
        self._mountpoint, self._options = mountpoint, options
        self._mounted = False

    def mount(self) -> None:
        """Mount the file system.

        Raises:
            OSError: EIO, the kernel or fusermount3 refuses; the text says why.
        """
        options = {"fsname=agentfsd", "subtype=agentfsd", "default_permissions", *self._options}
        mounts.clear_dead(self._mountpoint)
        try:
            pyfuse3.init(self._requests, self._mountpoint, options)
        except RuntimeError as exc:
            raise OSError(errno.EIO, f"mounting on {self._mountpoint} failed: {exc} (`agentfsd doctor` says why)") from exc
        self._mounted = True

    async def serve(self) -> None:
        """Answer requests until the file system is unmounted or terminate() is called."""
        self.connection.notifier.start(_fuse_descriptor(), expires=_kernel_version() >= _EXPIRES_SINCE)
        self.connection.cache.unite(self.connection.overlay.default_id)
        try:
            await pyfuse3.main()
        finally:
            self.connection.notifier.stop()

    def terminate(self) -> None:
        """Ask serve() to return. The mount stays until close()."""
        pyfuse3.terminate()

    def close(self, *, unmount: bool) -> None:
        """End the connection.

        Args:
            unmount: Unmount the mount point too. Pass True only while our mount is there: libfuse unmounts whatever is on top.
        """
        if self._mounted:
            self._mounted = False
            pyfuse3.close(unmount=unmount)


class _Requests(pyfuse3.Operations):
    """The requests that pyfuse3 passes on, each handed to ``handlers/``."""

    supports_dot_lookup = False
    enable_writeback_cache = False  # a snapshot would miss acknowledged writes that the kernel still holds
    enable_acl = True

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._conn = connection
        self._traffic = connection.shared.traffic

    async def _do(self, handler: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a handler (again, if another thread has the name reserved); return once other connections know of its change."""
        while True:
            try:
                reply = handler(*args, **kwargs)
                break
            except (NameReserved, AnswerNeeded) as exc:
                await exc.over()
        if self._conn.changes.unsettled:
            await all_taken(self._conn.changes.take_unsettled())
        return reply

    def asked_about(self, op: str, args: tuple[Any, ...]) -> tuple[int, int]:
        """Return the node id and the thread id that a request is about, 0 for one that is not known.

        A request on an open file does not say who makes it: the thread that opened the file stands for it.
        """
        if op not in _BY_HANDLE:
            return (0 if op in _ABOUT_NONE else args[0]), next(
                (argument.pid for argument in args if isinstance(argument, RequestContext)), 0
            )
        handle = self._conn.handles.get(args[0])
        if isinstance(handle, FileHandle):
            node = self._conn.nodes.find_file(handle.inode)
            return (node.id if node is not None else 0), handle.opener
        return (handle.node.id, 0) if isinstance(handle, DirHandle) else (0, 0)

    def count(self, op: str, took_ns: int, failed: int, node: int, tid: int) -> None:
        """Count a request, its duration, and whether it *failed* (an errno, 0 if not); look closer at a slow or refused one."""
        tally = self._traffic.tally("fuse", op)
        if failed:
            tally.errors += 1
            note_refusal(self._conn, op, failed, node, tid)
        tally.total_ns += took_ns
        tally.classes[took_ns.bit_length()] += 1
        if took_ns > self._traffic.slow.limit_ns or self._traffic.profiles:
            look_closer(self._conn, op, took_ns, node, tid)

    # -- names

    @_counted
    async def lookup(self, parent_id: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        reply = await self._do(lookup.lookup, self._conn, parent_id, name, _context(ctx))
        if not reply.node_id and not reply.entry_s:
            raise FUSEError(errno.ENOENT)
        return _entry(reply)

    @_counted
    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for node_id, count in inode_list:
            lookup.forget(self._conn, node_id, count)

    @_counted
    async def mkdir(self, parent_id: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._do(creation.mkdir, self._conn, parent_id, name, mode, _context(ctx)))

    @_counted
    async def mknod(self, parent_id: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._do(creation.mknod, self._conn, parent_id, name, mode, rdev, _context(ctx)))

    @_counted
    async def symlink(self, parent_id: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._do(creation.symlink, self._conn, parent_id, name, target, _context(ctx)))

    @_counted
    async def create(
        self, parent_id: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        handle, _, reply = await self._do(creation.create, self._conn, parent_id, name, mode, flags, _context(ctx))
        self._opened_by(handle, ctx.pid)
        return FileInfo(fh=handle, keep_cache=True), _entry(reply)

    @_counted
    async def link(self, node_id: int, new_parent_id: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        return _entry(await self._do(creation.link, self._conn, node_id, new_parent_id, new_name, _context(ctx)))

    @_counted
    async def unlink(self, parent_id: int, name: bytes, ctx: RequestContext) -> None:
        await self._do(removal.unlink, self._conn, parent_id, name, _context(ctx))

    @_counted
    async def rmdir(self, parent_id: int, name: bytes, ctx: RequestContext) -> None:
        await self._do(removal.rmdir, self._conn, parent_id, name, _context(ctx))

    @_counted
    async def rename(
        self, old_parent_id: int, old_name: bytes, new_parent_id: int, new_name: bytes, flags: int, ctx: RequestContext
    ) -> None:
        await self._do(removal.rename, self._conn, old_parent_id, old_name, new_parent_id, new_name, flags, _context(ctx))

    @_counted
    async def opendir(self, node_id: int, ctx: RequestContext) -> int:
        return await self._do(listing.opendir, self._conn, node_id, _context(ctx))

    @_counted
    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        await self._do(self._fill, fh, start_id, token)

    def _fill(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        for name, reply, following in listing.read_directory(self._conn, fh, start_id):
            if not pyfuse3.readdir_reply(token, name, _entry(reply), following):
                listing.untaken(self._conn, reply)
                return

    @_counted
    async def releasedir(self, fh: int) -> None:
        listing.releasedir(self._conn, fh)

    @_counted
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        await listing.sync_names(self._conn)

    # -- one inode

    @_counted
    async def getattr(self, node_id: int, ctx: RequestContext) -> EntryAttributes:
        return _attributes(node_id, await self._do(node_attributes.getattr_, self._conn, node_id, _context(ctx)))

    @_counted
    async def setattr(
        self, node_id: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
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
            await self._copy_ahead(await self._do(node_attributes.file_to_resize, self._conn, node_id, by_handle, caller))
        setattr_ = node_attributes.setattr_
        reply = await self._do(setattr_, self._conn, node_id, new, by_handle, caller, keeps_setid=ctx.uid == 0)
        return _attributes(node_id, reply)

    async def _copy_ahead(self, inode: Inode | None) -> None:
        if inode is not None:
            await file_data.copy_ahead(self._conn, inode)

    @_counted
    async def readlink(self, node_id: int, ctx: RequestContext) -> bytes:
        return await self._do(node_attributes.readlink, self._conn, node_id, _context(ctx))

    @_counted
    async def getxattr(self, node_id: int, name: bytes, ctx: RequestContext) -> bytes:
        return await self._do(extended_attributes.getxattr, self._conn, node_id, name, _context(ctx))

    @_counted
    async def listxattr(self, node_id: int, ctx: RequestContext) -> list[bytes]:
        return await self._do(extended_attributes.listxattr, self._conn, node_id, _context(ctx))

    @_counted
    async def setxattr(self, node_id: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        caller = _context(ctx)
        in_group = not extended_attributes.is_access_acl(name) or _is_in_group(
            ctx, (await self._do(node_attributes.getattr_, self._conn, node_id, caller)).attributes.gid
        )
        await self._do(extended_attributes.setxattr, self._conn, node_id, name, value, 0, caller, in_group=in_group)

    @_counted
    async def removexattr(self, node_id: int, name: bytes, ctx: RequestContext) -> None:
        await self._do(extended_attributes.removexattr, self._conn, node_id, name, _context(ctx))

    @_counted
    async def open(self, node_id: int, flags: int, ctx: RequestContext) -> FileInfo:
        caller = _context(ctx)
        text = await self._do(control_directory.open_text, self._conn, node_id, caller)
        if text is not None:
            return FileInfo(fh=await text, direct_io=True, keep_cache=False)
        handle, _ = await self._do(file_handles.open_file, self._conn, node_id, flags, caller)
        self._opened_by(handle, ctx.pid)
        return FileInfo(fh=handle, keep_cache=True)  # notifications drop pages that become invalid

    @_counted
    async def read(self, fh: int, off: int, size: int) -> bytes:
        inode = file_handles.file_of(self._conn, fh)
        if inode is None:
            return await self._do(control_directory.read_text, self._conn, fh, size, off)
        return await self._do(file_data.read, self._conn, inode, size, off)

    @_counted
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        inode = file_handles.file_of(self._conn, fh)
        if inode is None:
            await (await self._do(control_directory.write_text, self._conn, fh, buf))
            return len(buf)
        await self._copy_ahead(inode)
        keeps_setid, (_, opener) = file_handles.may_keep_setid(self._conn, fh), self.asked_about("write", (fh,))
        return await self._do(file_data.write, self._conn, inode, buf, off, keeps_setid=keeps_setid, tid=opener)

    def _opened_by(self, handle: int, tid: int) -> None:
        """Note which thread opened a file: pyfuse3 does not say which one writes, so the writes are attributed to this one."""
        opened = self._conn.handles.get(handle)
        if isinstance(opened, FileHandle):
            opened.opener = tid

    @_counted
    async def flush(self, fh: int) -> None:
        """Do nothing: write() has written to the content object already."""

    @_counted
    async def release(self, fh: int) -> None:
        file_handles.release(self._conn, fh)

    @_counted
    async def fsync(self, fh: int, datasync: bool) -> None:
        inode = file_handles.file_of(self._conn, fh)
        if inode is not None:
            await file_data.sync(inode, data_only=datasync)

    @_counted
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        stored, reply = await self._do(node_attributes.statfs, self._conn), StatvfsData()
        for field in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(reply, field, getattr(stored, field))
        reply.f_namemax = 255
        return reply

    @_counted
    async def access(self, node_id: int, mode: int, ctx: RequestContext) -> bool:
        return True  # the kernel checks permissions itself (default_permissions)


def _context(ctx: RequestContext) -> CallContext:
    """Return the caller. Without FUSE_DONT_MASK, which pyfuse3 cannot ask for, the kernel has applied the umask."""
    return CallContext(ctx.pid, ctx.uid, ctx.gid)


def _entry(reply: LookupReply) -> EntryAttributes:
    if reply.attributes is None:
        return pyfuse3_entries.missing(reply.entry_s)
    return pyfuse3_entries.make(reply.node_id, reply.attributes, reply.entry_s, reply.attr_s)


def _attributes(node_id: int, reply: AttributesReply) -> EntryAttributes:
    return pyfuse3_entries.make(node_id, reply.attributes, 0.0, reply.attr_s)


def _is_in_group(ctx: RequestContext, gid: int) -> bool:
    return ctx.uid == 0 or ctx.gid == gid or gid in pyfuse3.get_sup_groups(ctx.pid)


def _kernel_version() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(itertools.takewhile(str.isdigit, minor)) or 0)


def _fuse_descriptor() -> int:
    """Return the connection's descriptor, for notifications that pyfuse3 has no call for. pyfuse3 does not expose it."""
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.stat(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(10, 229):
            return int(name)
    raise OSError(errno.ENODEV, "no connection to /dev/fuse")
