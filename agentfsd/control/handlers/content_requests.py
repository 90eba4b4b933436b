"""Requests that read and write the content of files, for clients that see no mount.

A written file gets its new content at once, so a reader never sees half of it. There are two exceptions, which are written
step by step: an append, and a file that has external writers.
"""

import errno
from typing import TypeVar

from agentfs_client import wire
from agentfsd.control.audit_notes import (
    changes_nothing,
    told_as_event,
)
from agentfsd.control.authorization import (
    own_handle,
    own_history,
)
from agentfsd.control.client_changes import ClientChanges
from agentfsd.control.client_paths import (
    check_changeable,
    check_permissions,
    check_regular,
    find_path,
    path_of,
    place_of,
)
from agentfsd.control.conversation_files import OpenedFile, StagedFile
from agentfsd.control.cooperative import Steps, drive
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.reply_records import info_of
from agentfsd.control.request_context import RequestContext
from agentfsd.core import copyup, data, inode_stat, permissions, requested_changes
from agentfsd.core.path_resolution import ResolvedPath, existing
from agentfsd.core.permissions import EXECUTE, READ, WRITE, Credentials
from agentfsd.core.tree import Inode
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.handoff.descriptor_forwarding import copy_up

_F = TypeVar("_F", OpenedFile, StagedFile)


@control_operation(wire.FileOpen, permission=own_history("branch"), note=changes_nothing)
async def open_file(services: Services, request: wire.FileOpen, context: RequestContext) -> wire.FileOpened:
    """Open a file for reading, and return its attributes and the beginning of its content."""
    _check_size(request.read_bytes)
    inode = existing(place_of(services, request, context, follow=True))
    check_regular(inode)
    permissions.check(inode, READ, context.credentials())
    reading = OpenedFile(inode)
    try:
        attributes = inode_stat.attributes(inode)
        head = reading.read(request.read_bytes, 0) if request.read_bytes else b""
    except BaseException:
        reading.close()
        raise
    handle = 0
    if request.read_bytes and len(head) >= attributes.size:
        reading.close()
    else:
        handle = context.peer.enter(reading)
    return wire.FileOpened(handle=handle, file=info_of(path_of(request.path, request.raw_path), attributes), data=head)


@control_operation(wire.FileRead, permission=own_handle, note=changes_nothing)
async def read_file(services: Services, request: wire.FileRead, context: RequestContext) -> wire.FileData:
    """Return a part of an open file's content."""
    _check_size(request.size)
    if not 0 <= request.offset < 1 << 63:
        raise invalid(f"{request.offset} is not an offset", "an offset counts bytes from the start")
    return wire.FileData(data=_opened(context, request.handle, OpenedFile).read(request.size, request.offset))


@control_operation(wire.FileClose, permission=own_handle, note=changes_nothing)
async def close_file(services: Services, request: wire.FileClose, context: RequestContext) -> wire.Done:
    """Close a file. Content that was not committed is removed."""
    file = context.peer.files.pop(request.handle, None)
    if file is None:
        raise _no_handle(request.handle)
    file.close()
    return wire.Done()


@control_operation(wire.FileCreate, permission=own_history("branch"), note=changes_nothing)
async def create_file(services: Services, request: wire.FileCreate, context: RequestContext) -> wire.FileOpened:
    """Begin a new content for a file. Nobody sees it before commit_file()."""
    check_permissions(request.permissions)
    path = path_of(request.path, request.raw_path)
    place = place_of(services, request, context, follow=request.mode != "create")
    _check_writable(services, place, request.mode, context.credentials())
    staged = StagedFile(place.directory.tree, path, request.mode, request.permissions)
    return wire.FileOpened(handle=context.peer.enter(staged))


def _check_writable(services: Services, place: ResolvedPath, mode: str, who: Credentials) -> None:
    check_changeable(services, place, who.ruled)
    if place.inode is None:
        permissions.check(place.directory, WRITE | EXECUTE, who)
    elif mode == "create":
        raise FileExistsError(errno.EEXIST, "file exists")
    else:
        check_regular(place.inode)
        permissions.check(place.inode, WRITE, who)


@control_operation(wire.FileWrite, permission=own_handle, note=changes_nothing)
async def write_file(services: Services, request: wire.FileWrite, context: RequestContext) -> wire.Done:
    """Add data to the end of a new content."""
    _check_size(len(request.data))
    _opened(context, request.handle, StagedFile).write(request.data)
    return wire.Done()


@control_operation(wire.FileCommit, permission=own_handle, note=told_as_event)
async def commit_file(services: Services, request: wire.FileCommit, context: RequestContext) -> wire.FileReply:
    """Give a file its new content, and report the change."""
    staged = _opened(context, request.handle, StagedFile)
    del context.peer.files[request.handle]
    try:
        _check_size(len(request.data))
        staged.write(request.data)
        written = await _put(services, staged, context)
    finally:
        staged.close()
    await services.settle()
    return wire.FileReply(file=info_of(staged.path, inode_stat.attributes(written)))


async def _put(services: Services, staged: StagedFile, context: RequestContext) -> Inode:
    """Put the staged content where the path leads now, if the caller may still write there, and return the file."""
    who, by = context.credentials(), ClientChanges(services, context)
    place = _place_of(services, staged, who)
    if place.inode is not None:
        # The kernel must write back pages changed through a mapping now: later they would overwrite the new content.
        by.file_changed(place.inode, data=True)
        await services.write_back()
        place = _place_of(services, staged, who)
    while staged.mode == "append" and place.inode is not None and data.copy_size(place.inode) >= copyup.THREAD_BYTES:
        await copy_up(place.inode)
        place = _place_of(services, staged, who)  # the path may lead to another file by now, or the branch may have another state
    if place.inode is None:
        return staged.become(by, place.directory, place.name, context.creator())
    inode = place.inode
    if staged.mode == "append":
        await _pour(by, staged.append(inode, who), inode, context)
    elif inode in inode.tree.external_writers:  # an external writer cannot be moved to another content object
        await _pour(by, staged.overwrite(inode, who), inode, context)
    else:
        staged.replace(inode, who)
    requested_changes.content_changed(by, inode)
    return inode


async def _pour(by: ClientChanges, steps: Steps[None], inode: Inode, context: RequestContext) -> None:
    """Drive the steps. If they fail, report the file as changed too, because some of the content may be written."""
    try:
        await drive(steps, context)
    except BaseException:
        by.file_changed(inode, data=True)
        raise


def _place_of(services: Services, staged: StagedFile, who: Credentials) -> ResolvedPath:
    place = find_path(services, services.overlay.trees.by_id(staged.tree_id), staged.path, who, follow=staged.mode != "create")
    _check_writable(services, place, staged.mode, who)
    return place


def _opened(context: RequestContext, handle: int, kind: type[_F]) -> _F:
    file = context.peer.files.get(handle)
    if not isinstance(file, kind):
        raise _no_handle(handle)
    return file


def _no_handle(handle: int) -> Refusal:
    return Refusal(
        errno.EBADF, "no-such-handle", f"this conversation has no such file open: handle {handle}",
        "file.open opens a file for reading, file.create one for writing",
    )  # fmt: skip


def _check_size(size: int) -> None:
    if not 0 <= size <= wire.MAX_DATA_BYTES:
        raise invalid(f"one message cannot carry {size} bytes", f"at most {wire.MAX_DATA_BYTES}")
