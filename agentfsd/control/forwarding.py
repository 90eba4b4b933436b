"""Requests for real descriptors, which go along with the reply, and how they are given out. What those are, handoff/ knows."""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from agentfs_client import wire
from agentfsd.control.files import FileHandlers, check_permissions, info_of, path_of
from agentfsd.control.request_context import RequestContext
from agentfsd.core import copyup, data, directory_entries, inode_attributes, permissions
from agentfsd.core.directory_entries import Owner
from agentfsd.core.inode import Inode
from agentfsd.core.path_resolution import ResolvedPath
from agentfsd.core.permissions import EXECUTE, READ, WRITE, Credentials
from agentfsd.errors import Refusal, invalid
from agentfsd.handoff import forwarding_settings
from agentfsd.handoff.descriptor_forwarding import Forwarding, WantedDescriptor, check_mode, declined

if TYPE_CHECKING:
    from agentfsd.handoff.interpose_server import InterposeServer

_ASK_S = 2.0
_LOOKS = 16  # descriptors of a file system that does not answer keep as many threads, and no others
_NEEDED = {os.O_RDONLY: READ, os.O_WRONLY: WRITE, os.O_RDWR: READ | WRITE}


class ForwardHandlers(FileHandlers):
    """Part of ControlService. ``tell_command``: the ioctl by which a descriptor of the mount says which file it is."""

    forwarding: Forwarding | None = None
    doorway: "InterposeServer | None" = None
    tell_command = 0
    _lookers = trio.CapacityLimiter(_LOOKS)
    _settle: Callable[[], Awaitable[None]]

    def _forwarding(self, context: RequestContext | None = None) -> Forwarding:
        if self.forwarding is None:
            raise declined("this daemon gives out no descriptors")
        if context is not None and context.channel is None:
            raise declined("the control file carries no descriptors", "use the socket")
        self.forwarding.check_possible()
        return self.forwarding

    # -- fd.open

    async def _fd_open(self, request: wire.FdOpen, context: RequestContext) -> wire.FdReply:
        forwarding, flags = self._forwarding(context), request.flags
        _check_flags(flags)
        check_permissions(request.permissions)
        follow = not flags & os.O_NOFOLLOW and flags & (os.O_CREAT | os.O_EXCL) != os.O_CREAT | os.O_EXCL
        place = self._place(request, context, follow=follow)
        wanted = WantedDescriptor(flags, request.require_reflink, not request.no_copy)
        found = place.inode
        if found is None:
            forwarding.check_possible(wanted)
            found = self._create(place, request, context)
        else:
            self._open_existing(found, place, flags, context.peer.credentials())
            forwarding.check(found, wanted)
            if flags & os.O_TRUNC:
                await self._empty(found, context)
        given = await forwarding.give(found, wanted, context.caller.pid)
        context.peer.outgoing.append(given.fd)
        await self._settle()
        shown = info_of(path_of(request.path, request.raw_path), found.tree.attributes(found))
        return wire.FdReply(source=given.source, file=shown)

    def _create(self, place: ResolvedPath, request: wire.FdOpen, context: RequestContext) -> Inode:
        if not request.flags & os.O_CREAT:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory")
        self._check_changeable(place)
        check_mode(request.permissions)
        who = context.peer.creator()
        permissions.check(place.directory, WRITE | EXECUTE, who)
        mode = permissions.mode_of_new(place.directory, stat.S_IFREG | request.permissions, who)
        owner = Owner(who.uid, who.gid, who.umask)
        made = directory_entries.make(place.directory.tree, place.directory, place.name, mode, owner)
        self._tell_file("created", made, context)
        self.overlay.names_changed(place.directory, place.name)
        return made

    def _open_existing(self, found: Inode, place: ResolvedPath, flags: int, who: Credentials) -> None:
        writes = flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "file exists")
        if stat.S_ISLNK(found.mode):
            raise OSError(errno.ELOOP, "it is a symlink, which was not to be followed")
        if found.is_dir:
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        if not found.is_file:
            raise invalid("only a regular file's content has a descriptor", "open it on the mount", "not-a-file")
        if writes:
            self._check_changeable(place)
        permissions.check(found, _NEEDED[flags & os.O_ACCMODE] | (WRITE if flags & os.O_TRUNC else 0), who)

    async def _empty(self, inode: Inode, context: RequestContext) -> None:
        """O_TRUNC, as of somebody who writes."""
        self.overlay.file_changed(inode, data=True)  # pages that a mapping has changed come before this, not after
        await self._write_back()
        copyup.check_writable(inode.tree)
        inode_attributes.truncate(inode, 0)
        inode_attributes.drop_capabilities(inode)
        if not context.peer.credentials().privileged:
            inode_attributes.drop_setid(inode)
        self._tell_file("modified", inode, context)
        self.overlay.file_changed(inode, data=True)

    # -- by another descriptor

    async def _fd_dup(self, request: wire.FdDup, context: RequestContext) -> wire.FdReply:
        forwarding = self._forwarding(context)
        inode, flags = await self._file_of(forwarding, context)
        given = await forwarding.give(
            inode, WantedDescriptor(flags, request.require_reflink, not request.no_copy), context.caller.pid
        )
        context.peer.outgoing.append(given.fd)
        return wire.FdReply(source=given.source, file=info_of(inode.path, inode.tree.attributes(inode)))

    async def _fd_sync(self, request: wire.FdSync, context: RequestContext) -> wire.Done:
        inode, _ = await self._file_of(self._forwarding(context), context)
        await trio.to_thread.run_sync(data.sync_later(inode, data_only=request.data_only))
        return wire.Done()

    async def _file_of(self, forwarding: Forwarding, context: RequestContext) -> tuple[Inode, int]:
        """The file of a branch that a descriptor stands for, and its flags. A bound process names its own branch's only."""
        if not context.descriptors:
            raise Refusal(errno.EINVAL, "no-descriptor", "no descriptor came along", "send one with the request")
        if not self._lookers.available_tokens:
            raise declined("too many descriptors are being looked at", "try again")
        fd = context.descriptors.pop(0)
        token, flags, found = forwarding.expect(), os.O_PATH, None
        try:
            with trio.move_on_after(_ASK_S):
                flags, found = await trio.to_thread.run_sync(
                    _look, fd, self.tell_command, token, abandon_on_cancel=True, limiter=self._lookers
                )
        finally:
            inode = forwarding.heard(token)
        if inode is None and found is not None:
            inode = forwarding.behind(found)
        if inode is None or flags & os.O_PATH:
            raise Refusal(errno.EBADF, "not-ours", "that descriptor is no open file of this mount", "open a file on it first")
        bound = context.bound_to
        if bound not in (None, inode.tree.id) and not (inode.tree.read_only and self.overlay.in_history(bound, inode.tree.id)):
            raise Refusal(errno.EPERM, "outside-branch", "that file is another branch's", "open it in your own")
        return inode, flags

    # -- settings

    async def _interpose_get(self, request: wire.InterposeGet, context: RequestContext) -> wire.InterposeReply:
        return self._interpose()

    async def _interpose_set(self, request: wire.InterposeSet, context: RequestContext) -> wire.InterposeReply:
        if self.forwarding is None:
            raise declined("this daemon gives out no descriptors")
        self.forwarding.set(request.name, request.value)
        return self._interpose()

    def _interpose(self) -> wire.InterposeReply:
        forwarding = self.forwarding
        why = "this daemon gives out no descriptors" if forwarding is None else forwarding.why_not
        return wire.InterposeReply(
            settings=forwarding_settings.texts(self.overlay.store), possible=not why, why=why,
            socket=self.doorway.path if self.doorway is not None else "", open=len(forwarding) if forwarding is not None else 0,
        )  # fmt: skip


def _look(fd: int, command: int, token: int) -> tuple[int, os.stat_result | None]:
    """Its flags, and what stat shows where it is none of the mount's. In a thread: asks whoever serves it, and closes it."""
    try:
        flags, found = fcntl.fcntl(fd, fcntl.F_GETFL), os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return flags, None
        try:
            fcntl.ioctl(fd, command, struct.pack("=Q", token))
        except OSError:
            return flags, found
        return flags, None
    finally:
        os.close(fd)


def _check_flags(flags: int) -> None:
    if flags < 0 or flags & os.O_ACCMODE not in _NEEDED:
        raise invalid(f"{flags} are no flags of open(2)", "give such as os.O_RDWR | os.O_CREAT")
    if flags & (os.O_PATH | os.O_DIRECTORY):
        raise invalid(
            "only a regular file's content has a descriptor", "leave O_PATH, O_DIRECTORY and O_TMPFILE out", "not-a-file"
        )
