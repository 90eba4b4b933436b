"""Requests about names and attributes of files, for clients that see no mount: a container, a sandbox.

The handlers walk the path and check permissions, as the kernel does for a program on the mount.
"""

import errno
import stat
from collections.abc import Iterator

import trio

from agentfs_client import wire
from agentfsd.control import file_differences
from agentfsd.control.audit_notes import changes_nothing, told_as_event
from agentfsd.control.authorization import own_history
from agentfsd.control.client_changes import ClientChanges
from agentfsd.control.client_paths import (
    check_changeable,
    check_not_root,
    check_permissions,
    find_path,
    path_of,
    place_of,
    place_to_change,
)
from agentfsd.control.cooperative import Steps, drive
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.reply_records import info_of, typed_info
from agentfsd.control.request_context import RequestContext
from agentfsd.core import inode_stat, permissions, requested_changes
from agentfsd.core.directory_entries import RENAME_NOREPLACE, Owner
from agentfsd.core.inode import Attributes
from agentfsd.core.path_resolution import ResolvedPath, existing
from agentfsd.core.permissions import EXECUTE, READ, WRITE, Credentials
from agentfsd.core.requested_changes import ChangeReporter
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.types import CONTROL_DIR

_AT_ONCE = 64  # files of one directory that are deleted in one transaction


@control_operation(wire.StatFile, permission=own_history("branch"), note=changes_nothing)
async def stat_file(services: Services, request: wire.StatFile, context: RequestContext) -> wire.FileReply:
    """Return the attributes of a file."""
    inode = existing(place_of(services, request, context, follow=False))
    is_link = stat.S_ISLNK(inode.mode)
    target = inode.tree.readlink(inode) if is_link else b""
    if is_link and request.follow:
        inode = existing(place_of(services, request, context, follow=True))
    attributes = inode_stat.attributes(inode)
    return wire.FileReply(file=info_of(path_of(request.path, request.raw_path), attributes, is_link, target))


@control_operation(wire.FileList, permission=own_history("branch"), note=changes_nothing)
async def list_directory(services: Services, request: wire.FileList, context: RequestContext) -> wire.FilesReply:
    """List the names in a directory, with attributes."""
    directory = existing(place_of(services, request, context, follow=True))
    if not directory.is_dir:
        raise NotADirectoryError(errno.ENOTDIR, "not a directory")
    permissions.check(directory, READ, context.credentials())
    listing = (
        _names(directory, context.credentials()) if request.names_only else _listing(services, directory, context.credentials())
    )
    return wire.FilesReply(files=await drive(listing, context))


@control_operation(wire.FileCount, permission=own_history("branch"), note=changes_nothing, cancellable=True)
async def count_files(services: Services, request: wire.FileCount, context: RequestContext) -> wire.FilesCounted:
    """Count the files beneath a directory, and add up their sizes."""
    directory = existing(place_of(services, request, context, follow=True))
    with services.overlay.trees.frozen(directory.tree.id) as tree:
        return await drive(file_differences.count(tree, tree.walk(directory.path)), context)


def _listing(services: Services, directory: Inode, who: Credentials) -> Steps[list[wire.FileInfo]]:
    names, entries = sorted(directory.tree.names(directory)), []
    may_search = permissions.allows(directory, EXECUTE, who)
    for number, name in enumerate(names):
        if name == CONTROL_DIR and directory.parent is None:
            continue
        shown = _listed(services, directory, name, who, may_search)
        if shown is not None:
            entries.append(shown)
        yield number, len(names), "listing"
    return entries


def _listed(services: Services, directory: Inode, name: bytes, who: Credentials, may_search: bool) -> wire.FileInfo | None:
    """Describe a name of a directory; None if it was deleted since the names were read, or is hidden from the caller."""
    try:
        looked = inode_stat.look(directory.tree, directory, name)
    except OSError:
        return None
    if looked is None:
        return None
    inode, attributes = looked
    if who.ruled is not None and who.ruled.hides(directory, name, is_dir=inode.is_dir):
        return None
    if not may_search:
        return typed_info(name, inode.mode)
    is_link = stat.S_ISLNK(attributes.mode)
    if is_link:
        attributes = _behind(services, join(directory.path, name), directory.tree, who) or attributes
    return info_of(name, attributes, is_link)


def _behind(services: Services, path: bytes, tree: Tree, who: Credentials) -> Attributes | None:
    """Return the attributes of a symlink's target; None if the caller cannot reach one."""
    try:
        inode = find_path(services, tree, path, who, follow=True).inode
        return inode_stat.attributes(inode) if inode is not None else None
    except OSError:
        return None


@control_operation(wire.FileMkdir, permission=own_history("branch"), note=told_as_event)
async def make_directory(services: Services, request: wire.FileMkdir, context: RequestContext) -> wire.FileReply:
    """Create a directory."""
    check_permissions(request.permissions)
    place, who = place_to_change(services, request, context), context.creator()
    directory, mode = place.directory, stat.S_IFDIR | request.permissions
    if place.inode is not None:
        raise FileExistsError(errno.EEXIST, "file exists")
    permissions.check(directory, WRITE | EXECUTE, who)
    owner = Owner(who.uid, who.gid, who.umask)
    child = requested_changes.make(ClientChanges(services, context), directory.tree, directory, place.name, mode, owner)
    await services.settle()
    return wire.FileReply(file=info_of(path_of(request.path, request.raw_path), inode_stat.attributes(child)))


@control_operation(wire.FileRename, permission=own_history("branch"), note=told_as_event)
async def rename_file(services: Services, request: wire.FileRename, context: RequestContext) -> wire.Done:
    """Rename a file or directory."""
    old, who = place_to_change(services, request, context), context.credentials()
    tree, source = old.directory.tree, existing(old)
    new = find_path(services, tree, path_of(request.to, request.raw_to), who, follow=False)
    check_changeable(services, new, None)
    check_not_root(old, new)
    if who.ruled is not None:
        who.ruled.check_rename(old.directory, old.name, source, new.directory, new.name)
    permissions.check_removal(old.directory, source, who)
    if new.inode is not None:
        permissions.check_removal(new.directory, new.inode, who)
    else:
        permissions.check(new.directory, WRITE | EXECUTE, who)
    if source.is_dir and old.directory is not new.directory:
        permissions.check(source, WRITE, who)  # a moved directory gets another ".."
    by, flags = ClientChanges(services, context), 0 if request.replace else RENAME_NOREPLACE
    requested_changes.rename(by, tree, old.directory, old.name, new.directory, new.name, flags)
    if source.is_dir:
        services.overlay.rules.directory_moved()
    await services.settle()
    return wire.Done()


@control_operation(wire.FileDelete, permission=own_history("branch"), note=told_as_event, cancellable=True)
async def delete_file(services: Services, request: wire.FileDelete, context: RequestContext) -> wire.Done:
    """Delete a file or directory."""
    place = place_to_change(services, request, context)
    existing(place)
    check_not_root(place)
    try:
        by = ClientChanges(services, context)
        await drive(deleting(by, place, request.recursive, context.credentials()), context)
    finally:
        with trio.CancelScope(shield=True):
            await services.settle()
    return wire.Done()


def deleting(by: ChangeReporter, place: ResolvedPath, recursive: bool, who: Credentials) -> Steps[None]:
    """Delete a file, or a directory with its content first, and check each permission, as `rm -r` does.

    A file that a process creates meanwhile stays, and so does its directory.
    """
    todo, done = [(place.directory, place.name, recursive)], 0
    while todo:
        directory, name, enters = todo.pop()
        inode = directory.tree.find(directory, name)
        if inode is not None:
            _check_removal(directory, name, inode, who)
            if inode.is_dir and enters and not inode.tree.is_empty(inode):
                permissions.check(inode, READ | EXECUTE, who)
                todo.append((directory, name, False))
                for names in _batches(inode.tree.names(inode)):
                    todo += [(inode, child, True) for child in _delete_files(by, inode, names, who)]
                    done += len(names)
                    yield done, 0, "deleting"
                continue
            remove = requested_changes.rmdir if inode.is_dir else requested_changes.unlink
            remove(by, inode.tree, directory, name)
        done += 1
        yield done, 0, "deleting"


def _batches(names: list[bytes]) -> Iterator[list[bytes]]:
    return (names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE))


def _delete_files(by: ChangeReporter, directory: Inode, names: list[bytes], who: Credentials) -> list[bytes]:
    """Delete those of *names* that are no directories, all at once. Return the directories."""
    files, directories = dict[bytes, Inode](), []
    for name in names:
        inode = directory.tree.find(directory, name)
        if inode is not None and inode.is_dir:
            directories.append(name)
        elif inode is not None:
            _check_removal(directory, name, inode, who)
            files[name] = inode
    if files:
        requested_changes.unlink_all(by, directory.tree, directory, files)
    return directories


def _check_removal(directory: Inode, name: bytes, inode: Inode, who: Credentials) -> None:
    permissions.check_removal(directory, inode, who)
    if who.ruled is not None:
        who.ruled.check_name(directory, name, is_dir=inode.is_dir)


def _names(directory: Inode, who: Credentials) -> Steps[list[wire.FileInfo]]:
    entries = []
    for name, mode in sorted(directory.tree.kinds(directory)):
        hidden = who.ruled is not None and who.ruled.hides(directory, name, is_dir=stat.S_ISDIR(mode))
        if not hidden and (name != CONTROL_DIR or directory.parent is not None):
            entries.append(typed_info(name, mode))
        yield len(entries), 0, "listing"
    return entries
