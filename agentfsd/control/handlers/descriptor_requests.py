"""Requests for real descriptors, which are passed with the reply, and for their settings. It never knows how they are made."""

import errno
import fcntl
import os
import stat
import struct

import trio

from agentfs_client import wire
from agentfsd.control.audit_notes import (
    changes_nothing,
    noted_setting,
    told_as_event,
)
from agentfsd.control.authorization import (
    everybody,
    own_history,
    unbound_only,
)
from agentfsd.control.client_changes import ClientChanges
from agentfsd.control.client_paths import check_changeable, check_permissions, path_of, place_of
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.reply_records import info_of
from agentfsd.control.request_context import RequestContext
from agentfsd.core import copyup, data, inode_stat, permissions, requested_changes
from agentfsd.core.directory_entries import Owner
from agentfsd.core.path_resolution import ResolvedPath
from agentfsd.core.permissions import EXECUTE, READ, WRITE, Credentials
from agentfsd.core.tree import Inode
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.handoff import forwarding_settings
from agentfsd.handoff.descriptor_forwarding import Forwarding, WantedDescriptor, check_mode, declined

_ASK_S = 2.0
_LOOKERS = trio.CapacityLimiter(16)  # threads that a file system which does not answer can block at most
_NEEDED = {os.O_RDONLY: READ, os.O_WRONLY: WRITE, os.O_RDWR: READ | WRITE}


def _forwarding(services: Services, context: RequestContext) -> Forwarding:
    if services.forwarding is None:
        raise declined("this daemon gives out no descriptors")
    if context.channel is None:
        raise declined("the control file carries no descriptors", "use the socket")
    services.forwarding.check_possible()
    return services.forwarding


@control_operation(wire.FdOpen, permission=own_history("branch"), note=told_as_event)
async def open_descriptor(services: Services, request: wire.FdOpen, context: RequestContext) -> wire.FdReply:
    """Open a file by path, and pass its real descriptor with the reply."""
    forwarding, flags = _forwarding(services, context), request.flags
    _check_flags(flags)
    check_permissions(request.permissions)
    follow = not flags & os.O_NOFOLLOW and flags & (os.O_CREAT | os.O_EXCL) != os.O_CREAT | os.O_EXCL
    place = place_of(services, request, context, follow=follow)
    wanted = WantedDescriptor(flags, request.require_reflink, not request.no_copy)
    inode = place.inode
    if inode is None:
        forwarding.check_possible(wanted)
        inode = _create(services, place, request, context)
    else:
        _open_existing(services, inode, place, flags, context.credentials())
        forwarding.check(inode, wanted)
        if flags & os.O_TRUNC:
            await _empty(services, inode, context)
    given = await forwarding.give(inode, wanted, context.caller.pid)
    context.peer.outgoing.append(given.fd)
    await services.settle()
    shown = info_of(path_of(request.path, request.raw_path), inode_stat.attributes(inode))
    return wire.FdReply(source=given.source, file=shown)


def _create(services: Services, place: ResolvedPath, request: wire.FdOpen, context: RequestContext) -> Inode:
    if not request.flags & os.O_CREAT:
        raise FileNotFoundError(errno.ENOENT, "no such file or directory")
    check_changeable(services, place, context.ruled)
    check_mode(request.permissions)
    who = context.creator()
    permissions.check(place.directory, WRITE | EXECUTE, who)
    mode = permissions.mode_of_new(place.directory, stat.S_IFREG | request.permissions, who)
    owner = Owner(who.uid, who.gid, who.umask)
    by = ClientChanges(services, context)
    return requested_changes.make(by, place.directory.tree, place.directory, place.name, mode, owner)


def _open_existing(services: Services, inode: Inode, place: ResolvedPath, flags: int, who: Credentials) -> None:
    writes = flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC
    if flags & os.O_CREAT and flags & os.O_EXCL:
        raise FileExistsError(errno.EEXIST, "file exists")
    if stat.S_ISLNK(inode.mode):
        raise OSError(errno.ELOOP, "it is a symlink, which was not to be followed")
    if inode.is_dir:
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if not inode.is_file:
        raise invalid("only a regular file's content has a descriptor", "open it on the mount", "not-a-file")
    if writes:
        check_changeable(services, place, who.ruled)
    permissions.check(inode, _NEEDED[flags & os.O_ACCMODE] | (WRITE if flags & os.O_TRUNC else 0), who)


async def _empty(services: Services, inode: Inode, context: RequestContext) -> None:
    """Truncate the file for O_TRUNC, and drop its capabilities and set-id bits as a write does."""
    by = ClientChanges(services, context)
    by.file_changed(inode, data=True)  # pages changed through a mapping are written back first
    await services.write_back()
    copyup.check_writable(inode.tree)
    requested_changes.empty(by, inode, privileged=context.credentials().privileged)


@control_operation(wire.FdDup, permission=everybody, note=changes_nothing)
async def duplicate_descriptor(services: Services, request: wire.FdDup, context: RequestContext) -> wire.FdReply:
    """Pass a real descriptor of the file that the request's descriptor has open."""
    forwarding = _forwarding(services, context)
    inode, flags = await _file_of(services, forwarding, context)
    given = await forwarding.give(
        inode, WantedDescriptor(flags, request.require_reflink, not request.no_copy), context.caller.pid
    )
    context.peer.outgoing.append(given.fd)
    return wire.FdReply(source=given.source, file=info_of(inode.path, inode_stat.attributes(inode)))


@control_operation(wire.FdSync, permission=everybody, note=changes_nothing)
async def sync_descriptor(services: Services, request: wire.FdSync, context: RequestContext) -> wire.Done:
    """Sync the file that the request's descriptor has open, with its rows."""
    inode, _ = await _file_of(services, _forwarding(services, context), context)
    await trio.to_thread.run_sync(data.sync_later(inode, data_only=request.data_only))
    return wire.Done()


async def _file_of(services: Services, forwarding: Forwarding, context: RequestContext) -> tuple[Inode, int]:
    """Return the file that the request's descriptor has open, and its flags.

    A bound process may use only files of its branch and of snapshots in the branch's history.

    Raises:
        Refusal: There is no descriptor, it is of no file of this mount, or the file is another branch's.
    """
    if not context.descriptors:
        raise Refusal(errno.EINVAL, "no-descriptor", "no descriptor came along", "send one with the request")
    if not _LOOKERS.available_tokens:
        raise declined("too many descriptors are being looked at", "try again")
    fd = context.descriptors.pop(0)
    token, flags, info = forwarding.expect(), os.O_PATH, None
    try:
        with trio.move_on_after(_ASK_S):
            flags, info = await trio.to_thread.run_sync(
                _look, fd, services.descriptor_ioctl, token, abandon_on_cancel=True, limiter=_LOOKERS
            )
    finally:
        inode = forwarding.heard(token)
    if inode is None and info is not None:
        inode = forwarding.behind(info)
    if inode is None or flags & os.O_PATH:
        raise Refusal(errno.EBADF, "not-ours", "that descriptor is no open file of this mount", "open a file on it first")
    bound = context.bound_to
    if bound not in (None, inode.tree.id) and not (
        inode.tree.read_only and services.overlay.snapshots.in_history(bound, inode.tree.id)
    ):
        raise Refusal(errno.EPERM, "outside-branch", "that file is another branch's", "open it in your own")
    if context.ruled is not None:
        context.ruled.check_open(inode, writes=flags & os.O_ACCMODE != os.O_RDONLY)
    return inode, flags


@control_operation(wire.InterposeGet, permission=everybody, note=changes_nothing)
async def get_interpose_settings(services: Services, request: wire.InterposeGet, context: RequestContext) -> wire.InterposeReply:
    """Return the settings for real descriptors, and whether they can be given out."""
    return _interpose_reply(services)


@control_operation(wire.InterposeSet, permission=unbound_only, note=noted_setting("interpose"))
async def set_interpose_setting(services: Services, request: wire.InterposeSet, context: RequestContext) -> wire.InterposeReply:
    """Change a setting for real descriptors."""
    if services.forwarding is None:
        raise declined("this daemon gives out no descriptors")
    services.forwarding.set(request.name, request.value)
    return _interpose_reply(services)


def _interpose_reply(services: Services) -> wire.InterposeReply:
    forwarding = services.forwarding
    why = "this daemon gives out no descriptors" if forwarding is None else forwarding.why_not
    return wire.InterposeReply(
        settings=forwarding_settings.texts(services.overlay.store), possible=not why, why=why,
        socket=services.interpose_path, open=len(forwarding) if forwarding is not None else 0,
    )  # fmt: skip


def _look(fd: int, command: int, token: int) -> tuple[int, os.stat_result | None]:
    """Return a descriptor's flags, and its attributes if this mount does not serve it. Then close it.

    Run it in a thread: each call asks the file system of the descriptor, which may not answer.
    """
    try:
        flags, info = fcntl.fcntl(fd, fcntl.F_GETFL), os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return flags, None
        try:
            fcntl.ioctl(fd, command, struct.pack("=Q", token))
        except OSError:
            return flags, info
        return flags, None
    finally:
        os.close(fd)


def _check_flags(flags: int) -> None:
    if flags < 0 or flags & os.O_ACCMODE not in _NEEDED:
        raise invalid(f"{flags} are not flags of open(2)", "give flags such as os.O_RDWR | os.O_CREAT")
    if flags & (os.O_PATH | os.O_DIRECTORY):
        raise invalid(
            "only a regular file's content has a descriptor", "leave O_PATH, O_DIRECTORY and O_TMPFILE out", "not-a-file"
        )
