"""Requests about many files at once, for clients that search or copy whole trees: one request for each file would take longer."""

import stat
from collections.abc import Collection, Iterator

from agentfs_client import wire
from agentfsd.control.audit_notes import changes_nothing
from agentfsd.control.authorization import own_history
from agentfsd.control.client_paths import find_path
from agentfsd.control.cooperative import Steps, drive
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.request_context import RequestContext
from agentfsd.core import data, inode_attributes, inode_stat, permissions
from agentfsd.core.inode import Attributes
from agentfsd.core.path_resolution import existing
from agentfsd.core.permissions import EXECUTE, READ, Credentials
from agentfsd.core.tree import Inode, Tree
from agentfsd.domain_errors import invalid
from agentfsd.types import CONTROL_DIR

_STEP_FILES = 16  # that are read before others may have their turn
_REPLY_BYTES = 8 << 20
_REPLY_NAMES = 20_000


@control_operation(wire.FileContents, permission=own_history("branch"), note=changes_nothing)
async def read_files(services: Services, request: wire.FileContents, context: RequestContext) -> wire.ContentsReply:
    """Return the contents of several small files."""
    if not 0 <= request.most_bytes <= wire.MAX_DATA_BYTES:
        raise invalid(f"one message cannot carry {request.most_bytes} bytes of each file", f"at most {wire.MAX_DATA_BYTES}")
    tree = services.overlay.trees.of(request.branch or context.branch)
    reader = _Reader(services, tree, context.credentials(), request.most_bytes)
    return wire.ContentsReply(contents=await drive(reader.read(request.raw_paths), context))


class _Reader:
    def __init__(self, services: Services, tree: Tree, who: Credentials, most_bytes: int) -> None:
        self._services, self._tree, self._who, self._most_bytes = services, tree, who, most_bytes

    def read(self, paths: list[bytes]) -> Steps[list[bytes | None]]:
        contents: list[bytes | None] = []
        size_bytes = 0
        for start in range(0, len(paths), _STEP_FILES):
            for content in self._read_some(paths[start : start + _STEP_FILES]):
                contents.append(content)
                size_bytes += len(content or b"")
                if size_bytes >= _REPLY_BYTES:
                    return contents
            yield len(contents), len(paths), "reading"
        return contents

    def _read_some(self, paths: list[bytes]) -> Iterator[bytes | None]:
        """Read files in one atomic step, in which no directory need be resolved twice."""
        directories: dict[bytes, Inode] = {}
        written = self._services.open_for_writing(self._tree.id)
        for path in paths:
            try:
                inode = self._find(path, directories)
                yield self._content(inode, written)
            except OSError:  # a Refusal is one
                yield None

    def _find(self, path: bytes, directories: dict[bytes, Inode]) -> Inode:
        above, _, name = path.rpartition(b"/")
        directory = directories.get(above)
        if directory is None:
            directory = existing(find_path(self._services, self._tree, above, self._who, follow=True))
            permissions.check(directory, EXECUTE, self._who)
            directories[above] = directory
        found = directory.tree.find(directory, name) if name not in (b"", b".", b"..", CONTROL_DIR) else None
        if found is None or not found.is_file or self._who.ruled is not None:
            return existing(find_path(self._services, self._tree, path, self._who, follow=True))
        return found

    def _content(self, inode: Inode, written: Collection[Inode]) -> bytes | None:
        if not inode.is_file or inode in written:
            return None
        permissions.check(inode, READ, self._who)
        data.open_(inode, 0)
        try:
            content = data.read(inode, self._most_bytes + 1, 0)
        finally:
            data.release(inode)
        return content if len(content) <= self._most_bytes else None


@control_operation(wire.FileListings, permission=own_history("branch"), note=changes_nothing)
async def list_directories(services: Services, request: wire.FileListings, context: RequestContext) -> wire.ListingsReply:
    """List several directories. Where rules hold for the caller, details are to be asked for one by one: each is checked then."""
    if request.detailed and context.ruled is not None:
        return wire.ListingsReply(listings=[None] * len(request.raw_paths))
    tree = services.overlay.trees.of(request.branch or context.branch)
    listings = _listings(services, tree, request.raw_paths, context.credentials(), detailed=request.detailed)
    return wire.ListingsReply(listings=await drive(listings, context))


def _listings(
    services: Services, tree: Tree, paths: list[bytes], who: Credentials, *, detailed: bool
) -> Steps[list[list[wire.NameInTree] | None]]:
    listings: list[list[wire.NameInTree] | None] = []
    count = 0
    for path in paths:
        try:
            directory = existing(find_path(services, tree, path, who, follow=True))
            permissions.check(directory, READ, who)
            listing = yield from _listing(directory, who, detailed=detailed and permissions.allows(directory, EXECUTE, who))
        except OSError:
            listings.append(None)
            continue
        listings.append(listing)
        count += len(listing)
        if count >= _REPLY_NAMES:
            break
    return listings


def _listing(directory: Inode, who: Credentials, *, detailed: bool) -> Steps[list[wire.NameInTree]]:
    tree, listing = directory.tree, []
    for number, (name, kind) in enumerate(sorted(tree.kinds(directory))):
        if name == CONTROL_DIR and directory.parent is None:
            continue
        if who.ruled is not None and who.ruled.hides(directory, name, is_dir=stat.S_ISDIR(kind)):
            continue
        shown = _detailed(directory, name, who) if detailed else wire.NameInTree(name, kind)
        if shown is not None:
            listing.append(shown)
        if number % _STEP_FILES == 0:
            yield number, 0, "listing"
    return listing


def _detailed(directory: Inode, name: bytes, who: Credentials) -> wire.NameInTree | None:
    """Describe a name; None if it has gone since the names were read."""
    try:
        looked = inode_stat.look(directory.tree, directory, name)
        if looked is None:
            return None
        inode, attributes = looked
        target = inode.tree.readlink(inode) if stat.S_ISLNK(attributes.mode) else b""
        return wire.NameInTree(
            name, attributes.mode, attributes.uid, attributes.gid, attributes.size, attributes.blocks, attributes.mtime_ns,
            attributes.rdev, _group(attributes), target, _xattrs(inode, who),
        )  # fmt: skip
    except OSError:
        return None


def _group(attributes: Attributes) -> int:
    return attributes.ino if attributes.nlink > 1 and not stat.S_ISDIR(attributes.mode) else 0


def _xattrs(inode: Inode, who: Credentials) -> dict[bytes, bytes]:
    """Return the extended attributes that xattr(7) lets the caller read."""
    found = inode_attributes.all_xattrs(inode.tree, inode)
    if not found or who.privileged:
        return found
    try:
        permissions.check(inode, READ, who)
        may_read = True
    except OSError:
        may_read = False
    return {
        name: value for name, value in found.items()
        if not name.startswith(b"trusted.") and (may_read or not name.startswith(b"user."))
    }  # fmt: skip
