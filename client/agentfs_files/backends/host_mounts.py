"""Copy files of this machine into another file system. They are read through a HostFilesystem over an allowed root, so no path
and no symlink leads out of it.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentfs_files.filesystem.filesystem_errors import PathEscapeError
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.filesystem.search import PathMatch, path_matcher
from agentfs_files.filesystem.virtual_paths import join, normalize

Paths = Sequence[os.PathLike[str] | str]


@dataclass(slots=True, frozen=True)
class HostMount:
    """Files to copy in.

    ``host_path`` is a file or directory, absolute or relative to an allowed root. ``mount_path`` is where it appears; None means
    the same path as beneath that root. ``include_glob`` limits the copy to files that match one of its patterns (none: all), and
    ``exclude_glob`` omits files that match one of its patterns. A pattern without a slash applies to names, one with a slash to
    paths beneath ``host_path``. ``max_bytes`` limits the size of all files together.
    """

    host_path: os.PathLike[str] | str
    include_glob: tuple[str, ...] = ()
    exclude_glob: tuple[str, ...] = ()
    mount_path: str | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.include_glob, str) or isinstance(self.exclude_glob, str):
            raise TypeError('include_glob and exclude_glob are several patterns, such as ("*.py",)')


@dataclass(slots=True, frozen=True)
class ResolvedMount:
    """A mount after its check: ``root`` is an allowed root, ``source`` a path beneath it, ``target`` the path in the other file
    system.
    """

    mount: HostMount
    root: str
    source: str
    target: str


def resolve(mount: HostMount, allowed_roots: Paths) -> ResolvedMount:
    """Check a mount against the allowed roots.

    Raises:
        PathEscapeError: its path lies beneath none of the roots.
        FileNotFoundError: its path does not exist.
    """
    given = os.fspath(mount.host_path)
    is_allowed = False
    for root in [os.path.abspath(root) for root in allowed_roots]:
        source = os.path.relpath(os.path.join(root, given), root)
        if source == ".." or source.startswith("../"):
            continue
        if os.path.lexists(os.path.join(root, source)):
            target = source if mount.mount_path is None else mount.mount_path
            return ResolvedMount(mount, root, normalize(source), normalize(target))
        is_allowed = True
    if is_allowed:
        raise FileNotFoundError(errno.ENOENT, "there is no such file or directory beneath the allowed host roots", given)
    raise PathEscapeError(errno.EACCES, "the mount lies beneath none of the allowed host roots (allowed_host_roots=)", given)


def hydrate(target: Filesystem, mounts: Iterable[ResolvedMount]) -> int:
    """Copy the files of all mounts into *target*, and return their number.

    Raises:
        ValueError: a mount holds more than its ``max_bytes``.
    """
    return sum(_copy(target, mount) for mount in mounts)


def _copy(target: Filesystem, mount: ResolvedMount) -> int:
    from agentfs_files.backends.host import HostFilesystem

    source = HostFilesystem(mount.root, read_only=True)
    try:
        room = mount.mount.max_bytes
        paths = list(_files(source, mount))
        for path in paths:
            place = join(mount.target, path[len(mount.source) :].lstrip("/"))
            with source.open_read(path) as reader, target.open_write(place) as writer:
                for chunk in reader:
                    room = room if room is None else room - len(chunk)
                    if room is not None and room < 0:
                        raise ValueError(f"{mount.mount.host_path} holds more than max_bytes={mount.mount.max_bytes}")
                    writer.write(chunk)
        return len(paths)
    finally:
        source.close()


def _files(source: Filesystem, mount: ResolvedMount) -> Iterator[str]:
    """Yield the files that the patterns select, by path."""
    if source.stat(mount.source).is_file:
        yield mount.source
        return
    included, excluded = _matcher(mount.mount.include_glob), _matcher(mount.mount.exclude_glob)
    for match in source.glob("**/*", path=mount.source):
        inside = match.path[len(mount.source) :].lstrip("/")
        if (not mount.mount.include_glob or included(inside)) and not excluded(inside):
            yield match.path


def _matcher(patterns: Sequence[str]) -> PathMatch:
    """Return a function that tells whether any of the patterns matches."""
    matchers = [path_matcher(pattern, by_name="/" not in pattern) for pattern in patterns]
    return lambda path: any(matches(path) for matches in matchers)
