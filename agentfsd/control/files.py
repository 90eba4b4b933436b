"""Requests about files, for who has no mount to see them through: a container, a sandbox, another mount namespace.

What the kernel does for a program on the mount is done here: walking the path, checking permissions, streaming. It must never
write content where somebody sees it half done.
"""

import errno
import os
import stat
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

import trio

from agentfs_client import wire
from agentfsd.control import file_differences
from agentfsd.control.conversation_files import OpenedFile, StagedFile
from agentfsd.control.cooperative import Steps, drive
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.control.request_context import RequestContext
from agentfsd.core import copyup, data, directory_entries, path_resolution, permissions
from agentfsd.core.branch_events import BranchEvent, EventKind
from agentfsd.core.directory_entries import RENAME_NOREPLACE, Owner
from agentfsd.core.inode import Attributes, Inode
from agentfsd.core.overlay import Overlay
from agentfsd.core.path_resolution import ResolvedPath, existing
from agentfsd.core.permissions import EXECUTE, READ, WRITE, Credentials
from agentfsd.core.tree import Tree, join
from agentfsd.errors import Refusal, invalid
from agentfsd.handoff.descriptor_forwarding import copy_up
from agentfsd.types import CONTROL_DIR

_F = TypeVar("_F", OpenedFile, StagedFile)


class FileHandlers:
    """Part of ControlService."""

    overlay: Overlay
    info: DaemonInfo
    _settle: Callable[[], Awaitable[None]]
    _write_back: Callable[[], Awaitable[None]]

    def _find(self, tree: Tree, path: bytes, who: Credentials, *, follow: bool) -> ResolvedPath:
        return path_resolution.find(tree, path, who, follow=follow, shown_at=tuple(map(os.fsencode, self.info.shown_at)))

    def _place(self, request: wire.FileRequest, context: RequestContext, *, follow: bool) -> ResolvedPath:
        tree = self.overlay.tree(request.branch or context.branch)
        return self._find(tree, path_of(request.path, request.raw_path), context.peer.credentials(), follow=follow)

    def _place_to_change(self, request: wire.FileRequest, context: RequestContext) -> ResolvedPath:
        """A name to be made, replaced or removed."""
        place = self._place(request, context, follow=False)
        self._check_changeable(place)
        return place

    def _check_changeable(self, place: ResolvedPath) -> None:
        if place.is_reserved:
            raise Refusal(errno.EPERM, "reserved", ".agentfs is agentfsd's own", "choose another name")
        if self.info.read_only:
            raise OSError(errno.EROFS, "the mount is read-only")
        copyup.check_writable(place.directory.tree)

    def _tell_file(
        self, kind: EventKind, inode: Inode, context: RequestContext, path: bytes | None = None, old_path: bytes = b""
    ) -> None:
        if self.overlay.listeners:
            self.overlay.tell(BranchEvent(kind, inode.tree.id, context.caller.pid, inode, path, old_path))

    # -- looking

    async def _file_stat(self, request: wire.FileStat, context: RequestContext) -> wire.FileReply:
        found = existing(self._place(request, context, follow=False))
        is_link = stat.S_ISLNK(found.mode)
        target = found.tree.readlink(found) if is_link else b""
        if is_link and request.follow:
            found = existing(self._place(request, context, follow=True))
        attributes = found.tree.attributes(found)
        return wire.FileReply(file=info_of(path_of(request.path, request.raw_path), attributes, is_link, target))

    async def _file_list(self, request: wire.FileList, context: RequestContext) -> wire.FilesReply:
        directory = existing(self._place(request, context, follow=True))
        if not directory.is_dir:
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")
        permissions.check(directory, READ, context.peer.credentials())
        listing = _names(directory) if request.names_only else self._listing(directory, context.peer.credentials())
        return wire.FilesReply(files=await drive(listing, context))

    async def _file_count(self, request: wire.FileCount, context: RequestContext) -> wire.FilesCounted:
        directory = existing(self._place(request, context, follow=True))
        with self.overlay.frozen(directory.tree.id) as tree:
            return await drive(file_differences.count(tree, tree.walk(directory.path)), context)

    def _listing(self, directory: Inode, who: Credentials) -> Steps[list[wire.FileInfo]]:
        names, found = sorted(directory.tree.names(directory)), []
        may_search = permissions.allows(directory, EXECUTE, who)
        for number, name in enumerate(names):
            if name == CONTROL_DIR and directory.parent is None:
                continue
            shown = self._listed(directory, name, who, may_search)
            if shown is not None:
                found.append(shown)
            yield number, len(names), "listing"
        return found

    def _listed(self, directory: Inode, name: bytes, who: Credentials, may_search: bool) -> wire.FileInfo | None:
        """None for what went since the names were read."""
        try:
            looked = directory.tree.look(directory, name)
        except OSError:
            return None
        if looked is None:
            return None
        inode, attributes = looked
        if not may_search:
            return _typed(name, inode.mode)
        is_link = stat.S_ISLNK(attributes.mode)
        if is_link:
            attributes = self._behind(join(directory.path, name), directory.tree, who) or attributes
        return info_of(name, attributes, is_link)

    def _behind(self, path: bytes, tree: Tree, who: Credentials) -> Attributes | None:
        """What a symlink leads to; None for nothing that the caller can reach."""
        try:
            found = self._find(tree, path, who, follow=True).inode
            return tree.attributes(found) if found is not None else None
        except OSError:
            return None

    # -- reading

    async def _file_open(self, request: wire.FileOpen, context: RequestContext) -> wire.FileOpened:
        _check_size(request.read_bytes)
        found = existing(self._place(request, context, follow=True))
        _check_regular(found)
        permissions.check(found, READ, context.peer.credentials())
        reading = OpenedFile(found)
        try:
            attributes = found.tree.attributes(found)
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

    async def _file_read(self, request: wire.FileRead, context: RequestContext) -> wire.FileData:
        _check_size(request.size)
        if not 0 <= request.offset < 1 << 63:
            raise invalid(f"{request.offset} is no place in a file", "an offset counts bytes from the start")
        return wire.FileData(data=_opened(context, request.handle, OpenedFile).read(request.size, request.offset))

    async def _file_close(self, request: wire.FileClose, context: RequestContext) -> wire.Done:
        found = context.peer.files.pop(request.handle, None)
        if found is None:
            raise _no_handle(request.handle)
        found.close()
        return wire.Done()

    # -- writing

    async def _file_create(self, request: wire.FileCreate, context: RequestContext) -> wire.FileOpened:
        check_permissions(request.permissions)
        path = path_of(request.path, request.raw_path)
        place = self._place(request, context, follow=request.mode != "create")
        self._check_writable(place, request.mode, context.peer.credentials())
        staged = StagedFile(place.directory.tree, path, request.mode, request.permissions)
        return wire.FileOpened(handle=context.peer.enter(staged))

    def _check_writable(self, place: ResolvedPath, mode: str, who: Credentials) -> None:
        self._check_changeable(place)
        if place.inode is None:
            permissions.check(place.directory, WRITE | EXECUTE, who)
        elif mode == "create":
            raise FileExistsError(errno.EEXIST, "file exists")
        else:
            _check_regular(place.inode)
            permissions.check(place.inode, WRITE, who)

    async def _file_write(self, request: wire.FileWrite, context: RequestContext) -> wire.Done:
        _check_size(len(request.data))
        _opened(context, request.handle, StagedFile).write(request.data)
        return wire.Done()

    async def _file_commit(self, request: wire.FileCommit, context: RequestContext) -> wire.FileReply:
        staged = _opened(context, request.handle, StagedFile)
        del context.peer.files[request.handle]
        try:
            _check_size(len(request.data))
            staged.write(request.data)
            written = await self._put(staged, context)
        finally:
            staged.close()
        await self._settle()
        return wire.FileReply(file=info_of(staged.path, written.tree.attributes(written)))

    async def _put(self, staged: StagedFile, context: RequestContext) -> Inode:
        """Where the path leads now, if the caller may still write there."""
        who = context.peer.credentials()
        place = self._place_of(staged, who)
        if place.inode is not None:
            self.overlay.file_changed(place.inode, data=True)  # what was written through a mapping comes before this, not after
            await self._write_back()
            place = self._place_of(staged, who)
        while staged.mode == "append" and place.inode is not None and data.copy_size(place.inode) >= copyup.THREAD_BYTES:
            await copy_up(place.inode)
            place = self._place_of(staged, who)  # which may be another file by now, or the branch another state
        if place.inode is None:
            made = staged.become(place.directory, place.name, context.peer.creator())
            self._tell_file("created", made, context)
            self.overlay.names_changed(place.directory, place.name)
            return made
        found = place.inode
        if staged.mode == "append":
            await self._pour(staged.append(found, who), found, context)
        elif found in found.tree.external_writers:  # who writes it past us cannot be moved to another object
            await self._pour(staged.overwrite(found, who), found, context)
        else:
            staged.replace(found, who)
        self._tell_file("modified", found, context)
        self.overlay.file_changed(found, data=True)
        return found

    async def _pour(self, steps: Steps[None], inode: Inode, context: RequestContext) -> None:
        """What failed may have changed something, too."""
        try:
            await drive(steps, context)
        except BaseException:
            self.overlay.file_changed(inode, data=True)
            raise

    def _place_of(self, staged: StagedFile, who: Credentials) -> ResolvedPath:
        place = self._find(self.overlay.any_tree(staged.tree_id), staged.path, who, follow=staged.mode != "create")
        self._check_writable(place, staged.mode, who)
        return place

    # -- names

    async def _file_mkdir(self, request: wire.FileMkdir, context: RequestContext) -> wire.FileReply:
        check_permissions(request.permissions)
        place, who = self._place_to_change(request, context), context.peer.creator()
        directory, mode = place.directory, stat.S_IFDIR | request.permissions
        if place.inode is not None:
            raise FileExistsError(errno.EEXIST, "file exists")
        permissions.check(directory, WRITE | EXECUTE, who)
        made = directory_entries.make(directory.tree, directory, place.name, mode, Owner(who.uid, who.gid, who.umask))
        self._tell_file("created", made, context)
        self.overlay.names_changed(directory, place.name)
        await self._settle()
        return wire.FileReply(file=info_of(path_of(request.path, request.raw_path), made.tree.attributes(made)))

    async def _file_rename(self, request: wire.FileRename, context: RequestContext) -> wire.Done:
        old, who = self._place_to_change(request, context), context.peer.credentials()
        tree, source = old.directory.tree, existing(old)
        new = self._find(tree, path_of(request.to, request.raw_to), who, follow=False)
        self._check_changeable(new)
        _check_not_root(old, new)
        permissions.check_removal(old.directory, source, who)
        if new.inode is not None:
            permissions.check_removal(new.directory, new.inode, who)
        else:
            permissions.check(new.directory, WRITE | EXECUTE, who)
        if source.is_dir and old.directory is not new.directory:
            permissions.check(source, WRITE, who)  # its .. changes
        paths = join(old.directory.path, old.name), join(new.directory.path, new.name)
        flags = 0 if request.replace else RENAME_NOREPLACE
        directory_entries.rename(tree, old.directory, old.name, new.directory, new.name, flags)
        if new.inode is not source:
            self._tell_file("renamed", source, context, paths[1], paths[0])
        self.overlay.names_changed(old.directory, old.name)
        self.overlay.names_changed(new.directory, new.name)
        if new.inode is not None:
            self.overlay.file_changed(new.inode, data=False)
        await self._settle()
        return wire.Done()

    async def _file_delete(self, request: wire.FileDelete, context: RequestContext) -> wire.Done:
        place = self._place_to_change(request, context)
        existing(place)
        _check_not_root(place)
        try:
            await drive(self._deleting(place, request.recursive, context), context)
        finally:
            with trio.CancelScope(shield=True):
                await self._settle()
        return wire.Done()

    def _deleting(self, place: ResolvedPath, recursive: bool, context: RequestContext) -> Steps[None]:
        """What is in a directory goes before it, each with its own permission, as `rm -r` does it: what comes meanwhile stays."""
        todo, done, who = [(place.directory, place.name, recursive)], 0, context.peer.credentials()
        while todo:
            directory, name, enters = todo.pop()
            found = directory.tree.find(directory, name)
            if found is not None:
                permissions.check_removal(directory, found, who)
                if found.is_dir and enters and not found.tree.is_empty(found):
                    permissions.check(found, READ | EXECUTE, who)
                    todo += [(directory, name, False), *((found, child, True) for child in found.tree.names(found))]
                    continue
                self._remove(directory, name, found, context)
            done += 1
            yield done, 0, "deleting"

    def _remove(self, directory: Inode, name: bytes, found: Inode, context: RequestContext) -> None:
        if found.is_dir:
            directory_entries.rmdir(found.tree, directory, name)
        else:
            directory_entries.unlink(found.tree, directory, name)
        self._tell_file("deleted", found, context, join(directory.path, name))
        self.overlay.names_changed(directory, name)
        if not found.is_dir:
            self.overlay.file_changed(found, data=False)


def path_of(path: str, raw_path: bytes) -> bytes:
    return raw_path or path.encode()


def _kind(mode: int) -> Literal["file", "directory", "symlink", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    return "directory" if stat.S_ISDIR(mode) else "symlink" if stat.S_ISLNK(mode) else "other"


def _names(directory: Inode) -> Steps[list[wire.FileInfo]]:
    found = []
    for name, mode in sorted(directory.tree.kinds(directory)):
        if name != CONTROL_DIR or directory.parent is not None:
            found.append(_typed(name, mode))
        yield len(found), 0, "listing"
    return found


def _typed(name: bytes, mode: int) -> wire.FileInfo:
    shown = wire.path_fields(name)
    return wire.FileInfo(
        kind=_kind(mode),
        mode=stat.S_IFMT(mode),
        is_link=stat.S_ISLNK(mode),
        path=shown["path"],
        raw_path=shown.get("raw_path", ""),
    )


def info_of(path: bytes, found: Attributes, is_link: bool = False, target: bytes = b"") -> wire.FileInfo:
    shown = wire.path_fields(path) | wire.path_fields(target, "target")
    return wire.FileInfo(
        path=shown["path"], raw_path=shown.get("raw_path", ""), kind=_kind(found.mode), size=found.size, mode=found.mode,
        uid=found.uid, gid=found.gid, nlink=found.nlink, ino=found.ino, mtime_ns=found.mtime_ns, ctime_ns=found.ctime_ns,
        created_ns=found.btime_ns, is_link=is_link, target=shown["target"], raw_target=shown.get("raw_target", ""),
    )  # fmt: skip


def _opened(context: RequestContext, handle: int, kind: type[_F]) -> _F:
    found = context.peer.files.get(handle)
    if not isinstance(found, kind):
        raise _no_handle(handle)
    return found


def _no_handle(handle: int) -> Refusal:
    return Refusal(
        errno.EBADF, "no-such-handle", f"this conversation has nothing of that kind open as {handle}",
        "file.open gives what can be read, file.create what can be written",
    )  # fmt: skip


def _check_size(size: int) -> None:
    if not 0 <= size <= wire.MAX_DATA_BYTES:
        raise invalid(f"{size} bytes cannot be had in one message", f"at most {wire.MAX_DATA_BYTES}")


def check_permissions(mode: int) -> None:
    if not 0 <= mode <= 0o7777:
        raise invalid(f"{mode} are no permissions", "give the bits of chmod(2), such as 0o644")


def _check_regular(inode: Inode) -> None:
    if inode.is_dir:
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if not inode.is_file:
        raise invalid("only a regular file has content", "what is no file is there on the mount alone", "not-a-file")


def _check_not_root(*places: ResolvedPath) -> None:
    if any(place.inode is not None and place.inode.parent is None for place in places):
        raise Refusal(errno.EBUSY, "root", "the root itself cannot be moved or deleted", "name what is in it")
