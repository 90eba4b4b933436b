"""Resolve the paths in requests about files, and check whether a file may be changed there."""

import errno
import os
from collections.abc import Sequence

import msgspec

from agentfs_client import wire
from agentfsd.control.handler_services import Services
from agentfsd.control.request_context import RequestContext
from agentfsd.core import copyup, path_resolution
from agentfsd.core.path_resolution import ResolvedPath
from agentfsd.core.permissions import Credentials
from agentfsd.core.rule_checks import RuledCaller
from agentfsd.core.tree import Inode, Tree
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.history import paths, picked
from agentfsd.history.picked import LineReplacement, PartialFile


def find_path(services: Services, tree: Tree, path: bytes, who: Credentials, *, follow: bool) -> ResolvedPath:
    """Resolve *path* in *tree* with these credentials, as the kernel does on the mount. Raises OSError.

    An absolute symlink to a place in the workspace's own directory leads to that place in *tree*, too.
    """
    shown_at = tuple(os.fsencode(place) for place in (*services.info.shown_at, services.info.lower) if place)
    return path_resolution.find(tree, path, who, follow=follow, shown_at=shown_at)


def place_of(services: Services, request: wire.FileRequest, context: RequestContext, *, follow: bool) -> ResolvedPath:
    """Resolve the path of a request in the branch or snapshot that it names. Raises OSError."""
    tree = services.overlay.trees.of(request.branch or context.branch)
    return find_path(services, tree, path_of(request.path, request.raw_path), context.credentials(), follow=follow)


def place_to_change(services: Services, request: wire.FileRequest, context: RequestContext) -> ResolvedPath:
    """Resolve the path of a request that creates, replaces or removes a name. Raises OSError if nothing may be changed there."""
    place = place_of(services, request, context, follow=False)
    check_changeable(services, place, context.ruled, is_dir=isinstance(request, wire.FileMkdir))
    return place


def check_changeable(services: Services, place: ResolvedPath, ruled: RuledCaller | None, *, is_dir: bool = False) -> None:
    """Raise OSError for a place in the control directory, on a read-only mount, in a snapshot, or that a rule protects.

    Args:
        services: Services of the daemon.
        place: The place to change.
        ruled: The rules that hold for the caller; None for none.
        is_dir: Whether a directory is to be created there.
    """
    if place.is_reserved:
        raise Refusal(errno.EPERM, "reserved", ".agentfs is agentfsd's own", "choose another name")
    if services.info.read_only:
        raise OSError(errno.EROFS, "the mount is read-only")
    copyup.check_writable(place.directory.tree)
    if ruled is not None and place.name:
        ruled.check_name(place.directory, place.name, is_dir=place.inode.is_dir if place.inode is not None else is_dir)


def path_of(path: str, raw_path: bytes) -> bytes:
    """Return the bytes of a path in a message."""
    return raw_path or path.encode()


def requested_paths(request: wire.Diff | wire.DiffPatch | wire.Restore | wire.Commit | wire.Merge) -> list[bytes]:
    """Return the only paths that a request concerns; empty for all."""
    return [path.encode() for path in request.paths] + request.raw_paths


def requested_picks(request: wire.Restore | wire.Commit | wire.Merge, wanted: Sequence[bytes]) -> list[PartialFile]:
    """Return the files of which only some lines are wanted.

    Raises:
        Refusal: A path is invalid, or is not among *wanted*, the paths of the request.
    """
    picks = []
    for file in request.picked:
        path = path_of(file.path, file.raw_path)
        path, old_path = paths.parse([path, path_of(file.old_path, file.raw_old_path) or path])
        lines = tuple(LineReplacement(*msgspec.structs.astuple(each)) for each in file.lines)
        picks.append(PartialFile(path, old_path, lines, file.mode, file.whole, file.old_sha256, file.new_sha256))
    picked.check(picks, wanted)
    return picks


def check_permissions(mode: int) -> None:
    """Raise Refusal if *mode* has other bits than permission bits."""
    if not 0 <= mode <= 0o7777:
        raise invalid(f"{mode} are not permission bits", "give the bits of chmod(2), such as 0o644")


def check_regular(inode: Inode) -> None:
    """Raise OSError if the inode has no content."""
    if inode.is_dir:
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if not inode.is_file:
        raise invalid("only a regular file has content", "only the mount serves other kinds of files", "not-a-file")


def check_not_root(*places: ResolvedPath) -> None:
    """Raise Refusal if one of the places is the root, which cannot be moved or deleted."""
    if any(place.inode is not None and place.inode.parent is None for place in places):
        raise Refusal(errno.EBUSY, "root", "the root itself cannot be moved or deleted", "name what is in it")
