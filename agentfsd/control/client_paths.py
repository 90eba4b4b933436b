"""Paths that clients name in requests about files: where they lead, and whether something may be changed there."""

import errno
import os

from agentfs_client import wire
from agentfsd.control.handler_services import Services
from agentfsd.control.request_context import RequestContext
from agentfsd.core import copyup, path_resolution
from agentfsd.core.path_resolution import ResolvedPath
from agentfsd.core.permissions import Credentials
from agentfsd.core.tree import Inode, Tree
from agentfsd.domain_errors import Refusal, invalid


def find_path(services: Services, tree: Tree, path: bytes, who: Credentials, *, follow: bool) -> ResolvedPath:
    """Walk *path* in *tree* with these credentials, as the kernel does on the mount. OSError."""
    return path_resolution.find(tree, path, who, follow=follow, shown_at=tuple(map(os.fsencode, services.info.shown_at)))


def place_of(services: Services, request: wire.FileRequest, context: RequestContext, *, follow: bool) -> ResolvedPath:
    """Walk the path of a request, in the branch or snapshot that it names. OSError."""
    tree = services.overlay.trees.of(request.branch or context.branch)
    return find_path(services, tree, path_of(request.path, request.raw_path), context.peer.credentials(), follow=follow)


def place_to_change(services: Services, request: wire.FileRequest, context: RequestContext) -> ResolvedPath:
    """Likewise, for a name that is to be made, replaced or removed. OSError where nothing may be changed."""
    place = place_of(services, request, context, follow=False)
    check_changeable(services, place)
    return place


def check_changeable(services: Services, place: ResolvedPath) -> None:
    """Refuse to change anything in the control directory, on a read-only mount, or in a snapshot. OSError."""
    if place.is_reserved:
        raise Refusal(errno.EPERM, "reserved", ".agentfs is agentfsd's own", "choose another name")
    if services.info.read_only:
        raise OSError(errno.EROFS, "the mount is read-only")
    copyup.check_writable(place.directory.tree)


def path_of(path: str, raw_path: bytes) -> bytes:
    """Return the bytes of a path that a message holds."""
    return raw_path or path.encode()


def requested_paths(request: wire.Diff | wire.DiffPatch | wire.Restore | wire.Commit) -> list[bytes]:
    """Return the paths that a request keeps to; empty for all."""
    return [path.encode() for path in request.paths] + request.raw_paths


def check_permissions(mode: int) -> None:
    """Refuse what are no permission bits. Refusal."""
    if not 0 <= mode <= 0o7777:
        raise invalid(f"{mode} are no permissions", "give the bits of chmod(2), such as 0o644")


def check_regular(inode: Inode) -> None:
    """Refuse what has no content. OSError."""
    if inode.is_dir:
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if not inode.is_file:
        raise invalid("only a regular file has content", "what is no file is there on the mount alone", "not-a-file")


def check_not_root(*places: ResolvedPath) -> None:
    """Refuse to move or delete the root. Refusal."""
    if any(place.inode is not None and place.inode.parent is None for place in places):
        raise Refusal(errno.EBUSY, "root", "the root itself cannot be moved or deleted", "name what is in it")
