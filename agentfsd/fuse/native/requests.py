"""Each request of the FUSE protocol: from its bytes to Operations, and the answer back into bytes.

A handler returns the parts of its reply (None: done, nothing to say), or a coroutine for what has to wait.
"""

import errno
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from agentfsd.core import copyup, data
from agentfsd.core.file_locks import Waiter
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.tree import Inode
from agentfsd.fuse.base import DirHandle, FileHandle
from agentfsd.fuse.native import control_ioctl, descriptor_ioctl, lock_requests, request_bodies
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.passthrough import PassthroughFiles
from agentfsd.fuse.native.request_bodies import PERMISSIONS
from agentfsd.fuse.notifier import Owed
from agentfsd.fuse.page_owners import PageOwner
from agentfsd.fuse.reply import NO_REPLY, CallContext, ListedName

if TYPE_CHECKING:
    from agentfsd.fuse.native.native_session import NativeSession

Parts = list[bytes | memoryview] | None
Reply = Parts | Coroutine[Any, Any, Parts]

_READ_BYTES = 1 << 20
_IDLE_FILES = 256  # of files that the kernel reads without opening them
_COPY_BYTES = 16 << 20  # at one go: others are waiting
_KEEP_SIZE_BITS = 1 | 2 | 16  # FALLOC_FL_KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE


class Requests:
    """The handlers of one connection, and what its open files need."""

    def __init__(self, session: "NativeSession", long_setxattr: bool) -> None:
        self.ops = session.operations
        self._traffic = self.ops.connections.traffic
        self.session = session
        self.zero = session.io == "zero-message"
        self.waiting: dict[int, Waiter] = {}  # for locks, by the number of the request
        self._backings = PassthroughFiles(session.fd) if session.io == "passthrough" else None
        self._setxattr_in = fuse.SETXATTR_IN if long_setxattr else fuse.SETXATTR_IN_SHORT
        self._page = bytearray(_READ_BYTES)
        self._page_view = memoryview(self._page)
        self._idle: OrderedDict[Inode, None] = OrderedDict()

    def close(self) -> None:
        """The connection has ended: what it had open is closed."""
        lock_requests.close(self)
        for number in list(self.ops.handles):
            self._release(number)
        self._idle.clear()

    # -- names

    def lookup(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        return [fuse.pack_entry(self.ops.lookup(node, request_bodies.name(body), ctx))]

    def forget(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        self._forget(node, fuse.FORGET_IN.unpack_from(body)[0])
        return NO_REPLY

    def batch_forget(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        count, _ = fuse.BATCH_FORGET_IN.unpack_from(body)
        for position in range(count):
            offset = fuse.BATCH_FORGET_IN.size + position * fuse.FORGET_ONE.size
            if offset + fuse.FORGET_ONE.size > len(body):
                break
            self._forget(*fuse.FORGET_ONE.unpack_from(body, offset))
        return NO_REPLY

    def _forget(self, number: int, count: int) -> None:
        gone = self.ops.forget(number, count)
        if gone is not None and self._idle:
            self._idle.pop(gone, None)

    def mkdir(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        mode, umask = fuse.MKDIR_IN.unpack_from(body)
        return [
            fuse.pack_entry(
                self.ops.mkdir(
                    node,
                    request_bodies.name(body[fuse.MKDIR_IN.size :]),
                    mode & PERMISSIONS,
                    _masked(ctx, umask),
                )
            )
        ]

    def mknod(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        mode, rdev, umask, _ = fuse.MKNOD_IN.unpack_from(body)
        name = request_bodies.name(body[fuse.MKNOD_IN.size :])
        if mode & ~PERMISSIONS not in request_bodies.KINDS:
            raise OSError(errno.EINVAL, "no such kind of file")
        return [fuse.pack_entry(self.ops.mknod(node, name, mode, rdev, _masked(ctx, umask)))]

    def symlink(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        name = request_bodies.name(body)
        target = request_bodies.word(body[len(name) + 1 :])
        return [fuse.pack_entry(self.ops.symlink(node, name, target, ctx))]

    def link(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        (old,) = fuse.LINK_IN.unpack_from(body)
        return [fuse.pack_entry(self.ops.link(old, node, request_bodies.name(body[fuse.LINK_IN.size :]), ctx))]

    def unlink(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        self.ops.unlink(node, request_bodies.name(body), ctx)
        return None

    def rmdir(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        self.ops.rmdir(node, request_bodies.name(body), ctx)
        return None

    def rename(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        (new_parent,) = fuse.RENAME_IN.unpack_from(body)
        return self._rename(node, new_parent, 0, body[fuse.RENAME_IN.size :], ctx)

    def rename2(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        new_parent, flags, _ = fuse.RENAME2_IN.unpack_from(body)
        return self._rename(node, new_parent, flags, body[fuse.RENAME2_IN.size :], ctx)

    def _rename(self, node: int, new_parent: int, flags: int, names: memoryview, ctx: CallContext) -> Reply:
        old, new = request_bodies.two_names(names)
        self.ops.rename(node, old, new_parent, new, flags, ctx)
        return None

    def create(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        if self.zero:  # the kernel takes MKNOD from now on, and opens without us
            raise _not_here()
        flags, mode, umask, _ = fuse.CREATE_IN.unpack_from(body)
        name = request_bodies.name(body[fuse.CREATE_IN.size :])
        handle, inode, entry = self.ops.create(node, name, mode & PERMISSIONS, flags, _masked(ctx, umask))
        return [fuse.pack_entry(entry), self._opened(handle, inode, ctx, flags, made=True)]

    def tmpfile(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        flags, mode, umask, _ = fuse.CREATE_IN.unpack_from(body)
        handle, inode, entry = self.ops.tmpfile(node, mode & PERMISSIONS, flags, _masked(ctx, umask))
        if self.zero:  # this open the kernel cannot leave out; reading and writing go by the node as ever
            self._release(handle)
            handle = 0
        return [fuse.pack_entry(entry), self._opened(handle, inode, ctx, flags, made=True)]

    # -- listing

    def opendir(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        if self.zero:
            raise _not_here()
        handle, flags = self.ops.opendir(node, ctx), 0
        if self.ops.may_cache_listing(handle):
            flags = fuse.FOPEN_CACHE_DIR | fuse.FOPEN_KEEP_CACHE
        return [fuse.OPEN_OUT.pack(handle, flags, 0)]

    def readdir(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        parts, room = [], 0
        handle, offset, size, *_ = fuse.READ_IN.unpack_from(body)
        for name, entry, following in self._listing(node, handle, offset, ctx):
            assert entry.attributes is not None
            part = fuse.pack_dirent(entry.attributes.ino, following, name, entry.attributes.mode)
            self.ops.untaken(entry)
            room += len(part)
            if room > size:
                break
            parts.append(part)
        return [b"".join(parts)]

    def readdirplus(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        parts, room = [], 0
        handle, offset, size, *_ = fuse.READ_IN.unpack_from(body)
        for name, entry, following in self._listing(node, handle, offset, ctx):
            found = entry.attributes
            assert found is not None
            dirent = fuse.pack_dirent(found.ino, following, name, found.mode)
            room += fuse.ENTRY_OUT.size + len(dirent)
            if room > size:
                self.ops.untaken(entry)
                break
            parts.append(fuse.pack_entry(entry))
            parts.append(dirent)
        return [b"".join(parts)]

    def _listing(self, node: int, handle: int, offset: int, ctx: CallContext) -> Iterator[ListedName]:
        if self.zero:
            return self.ops.read_unopened(node, offset, ctx)
        return self.ops.read_directory(handle, offset)

    def releasedir(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        self.ops.releasedir(fuse.RELEASE_IN.unpack_from(body)[0])
        return None

    def fsyncdir(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        return self._sync_names()

    async def _sync_names(self) -> Parts:
        await self.ops.sync_names()
        return None

    # -- attributes

    def getattr(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        return [fuse.pack_attributes(*self.ops.getattr(node, ctx))]

    def statx(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        return [fuse.pack_statx(*self.ops.getattr(node, ctx))]

    def setattr(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        valid, new = request_bodies.new_attributes(body)
        # Where we are not asked at opens, an open with O_TRUNC cannot be told from ftruncate(2): the caller is checked at both.
        by_handle = bool(valid & fuse.FATTR_FH) and not self.zero
        keeps_setid = not valid & fuse.FATTR_KILL_SUIDGID
        if new.size is not None:
            inode = self.ops.file_to_resize(node, by_handle, ctx)
            if inode is not None and (self.ops.others_have_pages(inode) or (new.size and self.ops.must_copy(inode))):
                return self._resize(node, inode, new, by_handle, ctx, keeps_setid)
        return [fuse.pack_attributes(*self.ops.setattr(node, new, by_handle, ctx, keeps_setid=keeps_setid))]

    async def _resize(
        self, node: int, inode: Inode, new: NewAttributes, by_handle: bool, ctx: CallContext, keeps_setid: bool
    ) -> Parts:
        await self.ops.pages_back(inode)
        if new.size and self.ops.must_copy(inode):
            await self.ops.copy_ahead(inode)
        return [fuse.pack_attributes(*self.ops.setattr(node, new, by_handle, ctx, keeps_setid=keeps_setid))]

    def readlink(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        return [self.ops.readlink(node, ctx)]

    def getxattr(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        size, _ = fuse.GETXATTR_IN.unpack_from(body)
        return _sized(self.ops.getxattr(node, request_bodies.word(body[fuse.GETXATTR_IN.size :]), ctx), size)

    def listxattr(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        size, _ = fuse.GETXATTR_IN.unpack_from(body)
        return _sized(b"".join(name + b"\0" for name in self.ops.listxattr(node, ctx)), size)

    def setxattr(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        size, flags, *more = self._setxattr_in.unpack_from(body)
        name, _, rest = bytes(body[self._setxattr_in.size :]).partition(b"\0")
        in_group = not (more and more[0] & fuse.SETXATTR_ACL_KILL_SGID)
        if len(rest) < size:
            raise OSError(errno.EINVAL, "the value is cut short")
        self.ops.setxattr(node, name, rest[:size], flags, ctx, in_group=in_group)
        return None

    def removexattr(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        self.ops.removexattr(node, request_bodies.word(body), ctx)
        return None

    def statfs(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        return [fuse.pack_statfs(self.ops.statfs())]

    # -- open files

    def open(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        if self.zero:
            raise _not_here()
        flags, open_flags = fuse.OPEN_IN.unpack_from(body)
        text = self.ops.open_text(node, ctx)
        if text is not None:
            return self._open_text(text)
        if flags & os.O_TRUNC and self.ops.others_have_pages(inode := self.ops.inode(node, ctx)):
            return self._open_emptied(inode, node, flags, open_flags, ctx)
        return self._open(node, flags, open_flags, ctx)

    async def _open_emptied(self, inode: Inode, node: int, flags: int, open_flags: int, ctx: CallContext) -> Parts:
        await self.ops.pages_back(inode)
        return self._open(node, flags, open_flags, ctx)

    def _open(self, node: int, flags: int, open_flags: int, ctx: CallContext) -> Parts:
        handle, inode = self.ops.open(node, flags, ctx)
        if flags & os.O_TRUNC:
            self.ops.truncated(inode, keeps_setid=not open_flags & fuse.OPEN_KILL_SUIDGID)
        return [self._opened(handle, inode, ctx, flags)]

    async def _open_text(self, handle: Awaitable[int]) -> Parts:
        return [fuse.OPEN_OUT.pack(await handle, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH, 0)]

    def _opened(self, handle: int, inode: Inode, ctx: CallContext, flags: int, *, made: bool = False) -> bytes:
        """The reply to an open. Pages stay good: see Base.reply for who has them dropped."""
        opened = self.ops.handles.get(handle)
        if not isinstance(opened, FileHandle):
            return fuse.OPEN_OUT.pack(handle, fuse.FOPEN_KEEP_CACHE, 0)
        closing = lock_requests.open_flags(self, opened, flags, made=made)
        backing = self._backings.enter(inode, writes=opened.writes) if self._backings is not None and inode.is_file else 0
        if not backing:
            return fuse.OPEN_OUT.pack(handle, fuse.FOPEN_KEEP_CACHE | closing, 0)
        opened.passed = True
        if opened.writes:
            opened.opener, opened.since_ns = ctx.pid, copyup.now_ns()
        self.ops.file_changed(inode, data=True)  # others must not rely on what they have cached of it
        return fuse.OPEN_OUT.pack(handle, fuse.FOPEN_PASSTHROUGH | closing, backing)

    def release(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        self._release(fuse.RELEASE_IN.unpack_from(body)[0])
        return None

    def _release(self, number: int) -> None:
        handle = self.ops.handles.get(number)
        if isinstance(handle, FileHandle):
            lock_requests.released(self, handle.inode, handle)
            if self._backings is not None:
                self._backings.leave(handle.inode, handle.passed)
        if isinstance(handle, DirHandle):
            self.ops.releasedir(number)
        else:
            self.ops.release(number)

    def _file(self, node: int, handle_number: int, ctx: CallContext) -> Inode | None:
        """The file that a request about data is for; None for a virtual one."""
        if not self.zero:
            return self.ops.file_of(handle_number)
        inode = self.ops.file_at(node, ctx)
        idle = self._idle
        if inode in idle:
            idle.move_to_end(inode)
        else:
            idle[inode] = None
            if len(idle) > _IDLE_FILES:
                oldest, _ = idle.popitem(last=False)
                if not oldest.opens and not oldest.anonymous:
                    oldest.release_files()
        return inode

    def read(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        handle, offset, size, *_ = fuse.READ_IN.unpack_from(body)
        inode = self._file(node, handle, ctx)
        if inode is None:
            return [self.ops.read_text(handle, size, offset)]
        contest = self._contest(inode)
        if contest is not None:
            return self._in_turn(contest, inode, Requests.read, node, ctx, bytes(body))
        self.ops.nodes.note_pages(inode)
        if size > _READ_BYTES:
            size = _READ_BYTES
        length = data.read_into(inode, self._page_view[:size], offset)
        self._traffic.read_bytes += length
        return [self._page_view[:length]]

    def write(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        handle, offset, size, flags, _, open_flags, _ = fuse.WRITE_IN.unpack_from(body)
        content = body[fuse.WRITE_IN.size : fuse.WRITE_IN.size + size]
        if len(content) < size:
            raise OSError(errno.EINVAL, "the data is cut short")
        inode = self._file(node, handle, ctx)
        if inode is None:
            return self._write_text(handle, bytes(content))
        contest = self._contest(inode) if not flags & fuse.WRITE_CACHE else None  # pages that come back: nobody else has any
        if contest is not None:
            return self._in_turn(contest, inode, Requests.write, node, ctx, bytes(body))
        keeps_setid = not flags & fuse.WRITE_KILL_SUIDGID
        append = bool(open_flags & os.O_APPEND and not flags & fuse.WRITE_CACHE)
        work = _Write(node, inode, offset, keeps_setid, append, ctx.pid)
        if not copyup.is_owned(inode) and self.ops.must_copy(inode):
            return self._write_later(work, bytes(content), flags)
        written, owed = self._write_now(work, content), self.ops.take_unsettled()
        if owed and not flags & fuse.WRITE_CACHE:
            return self._written(inode, written, owed)
        return [fuse.SIZE_OUT.pack(written, 0)]

    def _write_now(self, work: "_Write", content: bytes | memoryview) -> int:
        """Finds the end of the file as it is at this moment, where that counts."""
        node, inode, offset, keeps_setid, append, tid = work
        if append:
            offset = self._end(node, inode, offset)
        written = self.ops.write(inode, content, offset, keeps_setid=keeps_setid, tid=tid, append=append)
        self._traffic.written_bytes += written
        return written

    async def _written(self, inode: Inode, written: int, owed: Owed) -> Parts:
        """Not for what the kernel writes back by itself: others wait for that page, and no program for the answer (see fsync)."""
        await self.ops.connections.written(self.ops, inode, owed)
        return [fuse.SIZE_OUT.pack(written, 0)]

    def _contest(self, inode: Inode) -> PageOwner | None:
        """Who has to give back pages of a file before a request about its content can be answered; None for nobody."""
        contests = self.ops.connections.contests
        contest = contests.of(inode) if contests else None
        return contest if contest is not None and not contest.is_open_to(self.ops) else None

    async def _in_turn(
        self, contest: PageOwner, inode: Inode, handler: "Handler", node: int, ctx: CallContext, body: bytes
    ) -> Parts:
        await contest.take(inode, self.ops)
        reply = handler(self, node, ctx, memoryview(body))
        if reply is not None and not isinstance(reply, list):
            return await reply
        return [bytes(part) for part in reply] if reply is not None else None  # the buffer of reads is everybody's

    def _end(self, node: int, inode: Inode, offset: int) -> int:
        """Where an append goes: the kernel does not know of what was appended through another connection, or merged."""
        end = inode.tree.data_stat(inode).st_size
        if end != offset:
            self.ops.notifier.expire_data(node)
        return end

    async def _write_text(self, handle: int, text: bytes) -> Parts:
        await self.ops.write_text(handle, text)
        return [fuse.SIZE_OUT.pack(len(text), 0)]

    async def _write_later(self, work: "_Write", content: bytes, flags: int) -> Parts:
        await self.ops.copy_ahead(work.inode)
        written, owed = self._write_now(work, content), self.ops.take_unsettled()
        if owed and not flags & fuse.WRITE_CACHE:
            return await self._written(work.inode, written, owed)
        return [fuse.SIZE_OUT.pack(written, 0)]

    def fsync(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        handle, flags, _ = fuse.FSYNC_IN.unpack_from(body)
        inode = self._file(node, handle, ctx)
        return self._fsync(inode, bool(flags & fuse.FSYNC_DATA_ONLY)) if inode is not None else None

    async def _fsync(self, inode: Inode, data_only: bool) -> Parts:
        await self.ops.settled()  # of what was written back before, whose answers have not waited
        await self.ops.sync(inode, data_only=data_only)
        return None

    def fallocate(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        handle, offset, length, mode, _ = fuse.FALLOCATE_IN.unpack_from(body)
        if mode & ~_KEEP_SIZE_BITS:
            raise OSError(errno.EOPNOTSUPP, "no such kind of allocation")
        return self._allocate(self._regular(node, handle, ctx), mode, offset, length, ctx)

    def _regular(self, node: int, handle: int, ctx: CallContext) -> Inode:
        inode = self._file(node, handle, ctx)
        if inode is None:
            raise OSError(errno.EINVAL, "no regular file")
        return inode

    async def _allocate(self, inode: Inode, mode: int, offset: int, length: int, ctx: CallContext) -> Parts:
        await self._ready(inode)
        data.allocate(inode, mode, offset, length)
        self.ops.data_changed(inode, ctx.pid)
        return None

    async def _ready(self, inode: Inode) -> None:
        await self.ops.pages_back(inode)
        if self.ops.must_copy(inode):
            await self.ops.copy_ahead(inode)

    def lseek(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        handle, offset, whence, _ = fuse.LSEEK_IN.unpack_from(body)
        return [fuse.LSEEK_OUT.pack(data.seek(self._regular(node, handle, ctx), offset, whence))]

    def copy_file_range(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        return self._copy(*self._copy_orders(node, ctx, body), ctx, packed=fuse.SIZE_OUT)

    def copy_file_range_64(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        return self._copy(*self._copy_orders(node, ctx, body), ctx, packed=fuse.COPIED_OUT)

    def _copy_orders(self, node: int, ctx: CallContext, body: memoryview) -> tuple[Inode, int, Inode, int, int]:
        handle, offset, to_node, to_handle, to_offset, length, _ = fuse.COPY_FILE_RANGE_IN.unpack_from(body)
        return self._regular(node, handle, ctx), offset, self._regular(to_node, to_handle, ctx), to_offset, length

    async def _copy(
        self, source: Inode, offset: int, target: Inode, to: int, length: int, ctx: CallContext, *, packed: Any
    ) -> Parts:
        await self.ops.pages_back(source)
        await self._ready(target)
        copied = data.copy_range(source, offset, target, to, min(length, _COPY_BYTES))
        self.ops.data_changed(target, ctx.pid)
        self._traffic.written_bytes += copied
        return [packed.pack(copied) if packed is fuse.COPIED_OUT else packed.pack(copied, 0)]

    def ioctl(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        handle, _, command, _, in_size, out_size = fuse.IOCTL_IN.unpack_from(body)
        content = bytes(body[fuse.IOCTL_IN.size : fuse.IOCTL_IN.size + in_size])
        if command in descriptor_ioctl.COMMANDS:
            return descriptor_ioctl.answer(self.ops, self._file(node, handle, ctx), handle, ctx, command, content)
        return control_ioctl.answer(self.ops, node, ctx, command, content, out_size)

    def nothing(self, node: int, ctx: CallContext, body: memoryview) -> Reply:
        raise _not_here()


class _Write(NamedTuple):
    """What a WRITE asks for, besides its data. *append*: *offset* is what the kernel believes to be the end."""

    node: int
    inode: Inode
    offset: int
    keeps_setid: bool
    append: bool
    tid: int


def _masked(ctx: CallContext, umask: int) -> CallContext:
    return ctx._replace(umask=umask & PERMISSIONS)


def _sized(value: bytes, size: int) -> Reply:
    """The answer to a question for an attribute: how long it is, or the whole of it."""
    if not size:
        return [fuse.SIZE_OUT.pack(len(value), 0)]
    if len(value) > size:
        raise OSError(errno.ERANGE, "longer than that")
    return [value]


def _not_here() -> OSError:
    return OSError(errno.ENOSYS, "not spoken here")


Handler = Callable[[Requests, int, CallContext, memoryview], Reply]

HANDLERS: dict[int, Handler] = {
    fuse.LOOKUP: Requests.lookup, fuse.FORGET: Requests.forget, fuse.GETATTR: Requests.getattr, fuse.SETATTR: Requests.setattr,
    fuse.READLINK: Requests.readlink, fuse.SYMLINK: Requests.symlink, fuse.MKNOD: Requests.mknod, fuse.MKDIR: Requests.mkdir,
    fuse.UNLINK: Requests.unlink, fuse.RMDIR: Requests.rmdir, fuse.RENAME: Requests.rename, fuse.LINK: Requests.link,
    fuse.OPEN: Requests.open, fuse.READ: Requests.read, fuse.WRITE: Requests.write, fuse.STATFS: Requests.statfs,
    fuse.RELEASE: Requests.release, fuse.FSYNC: Requests.fsync, fuse.SETXATTR: Requests.setxattr,
    fuse.GETXATTR: Requests.getxattr, fuse.LISTXATTR: Requests.listxattr, fuse.REMOVEXATTR: Requests.removexattr,
    fuse.OPENDIR: Requests.opendir, fuse.READDIR: Requests.readdir,
    fuse.RELEASEDIR: Requests.releasedir, fuse.FSYNCDIR: Requests.fsyncdir, fuse.ACCESS: Requests.nothing,
    fuse.CREATE: Requests.create, fuse.IOCTL: Requests.ioctl, fuse.BATCH_FORGET: Requests.batch_forget,
    fuse.FALLOCATE: Requests.fallocate, fuse.READDIRPLUS: Requests.readdirplus, fuse.RENAME2: Requests.rename2,
    fuse.LSEEK: Requests.lseek, fuse.COPY_FILE_RANGE: Requests.copy_file_range, fuse.TMPFILE: Requests.tmpfile,
    fuse.STATX: Requests.statx, fuse.COPY_FILE_RANGE_64: Requests.copy_file_range_64, **lock_requests.HANDLERS,
}  # fmt: skip
