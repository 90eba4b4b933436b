"""A directory of this machine as a file system. No operation reaches anything outside it, even through symlinks.

Closing a writer replaces the old file atomically and keeps its mode, owner and extended attributes. A file with several names, or
in a directory where no name can be created, keeps its inode and is overwritten in place.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from agentfs_files.backends.base_filesystem import BaseFilesystem
from agentfs_files.backends.host_files import FileSource, NamedSink, about, open_regular, sink_for
from agentfs_files.backends.host_removal import remove_directory
from agentfs_files.filesystem.file_results import FileEntry, FileStat, WriteMode
from agentfs_files.filesystem.file_streams import Sink, Source
from agentfs_files.filesystem.filesystem_errors import PathEscapeError
from agentfs_files.filesystem.records import (
    FilesystemDiff,
    FilesystemSnapshot,
    HostFilesystemConfig,
    SnapshotRetentionPolicy,
    SnapshotStrategy,
)
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS, Limits
from agentfs_files.filesystem.virtual_paths import join, name_of, parent_of, refusal
from agentfs_host.beneath import Beneath
from agentfs_host.mount_table import mounts_beneath
from agentfs_host.syscalls import birth_time

if TYPE_CHECKING:
    from agentfs_files.archive.unpack import Archive
    from agentfs_files.snapshots.directory_snapshots import DirectorySnapshots
    from agentfs_files.trees.tree_source import TreeSource

_WENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES)  # removed meanwhile, or not readable


class HostFilesystem(BaseFilesystem):
    """The files of a directory.

    Args:
        root: an existing directory.
        snapshot_strategy: None means the best one that works there.
        snapshot_dir: a directory for snapshots, outside the root.
        git_dir: a repository for the strategy git.
        max_snapshots: if there are more, the oldest without a tag are deleted.
        shown_at: other absolute paths of the root, for the targets of absolute symlinks.
        config: one record with snapshot_strategy, snapshot_dir and max_snapshots, which overrides them.

    The names with an underscore are the specification's names for the same settings.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        read_only: bool = False,
        mount_point: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
        snapshot_strategy: "SnapshotStrategy | None" = None,
        snapshot_dir: str | None = None,
        git_dir: str | None = None,
        max_snapshots: int | None = None,
        config: HostFilesystemConfig | None = None,
        shown_at: tuple[str, ...] = (),
        _root: str | None = None,
        _read_only: bool = False,
        _mount_point: str | None = None,
        _git_dir: str | None = None,
    ) -> None:
        given = root if root is not None else _root
        if given is None:
            raise TypeError("HostFilesystem needs the directory that it is about: HostFilesystem('/path/to/workspace')")
        super().__init__(read_only=read_only or _read_only, mount_point=mount_point or _mount_point, limits=limits)
        self._root = os.path.abspath(given)
        self._shown_at = shown_at
        self._beneath = Beneath(self._root, shown_at=shown_at)
        self._config = config or HostFilesystemConfig(snapshot_strategy, snapshot_dir, max_snapshots)
        self._git_dir = git_dir or _git_dir
        self._area: DirectorySnapshots | None = None
        self._current: UUID | None = None

    @property
    def root(self) -> str:
        return self._root

    def close(self) -> None:
        """Close the descriptor of the root. Snapshots stay."""
        self._beneath.close()

    def open_fd(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Return a descriptor of a regular file, like os.open(). The caller closes it."""
        where = self._normalize(path)
        self._check_opening(where, flags)
        return self.descriptor(where, flags, mode)

    def descriptor(self, path: str, flags: int, permissions: int) -> int:
        """Do the same as open_fd() for a path that is normalised and checked."""
        with about(path):
            return open_regular(self._beneath, path, flags, permissions)

    # -- what BaseFilesystem asks for

    def _stat(self, path: str) -> FileStat:
        return self._stat_as(path, follow=True)

    def _stat_name(self, path: str) -> FileStat:
        return self._stat_as(path, follow=False)

    def _stat_as(self, path: str, *, follow: bool) -> FileStat:
        with about(path):
            fd = self._beneath.open(path, os.O_PATH, follow=follow)
            try:
                return _file_stat(path, os.fstat(fd), birth_time(fd))
            finally:
                os.close(fd)

    def _scan(self, path: str) -> Iterator[FileEntry]:
        with about(path):
            for entry in self._names(path):
                where = join(path, entry.name)
                if entry.is_symlink():
                    yield self._behind_link(where, entry.name)
                    continue
                is_file = entry.is_file(follow_symlinks=False)
                try:
                    size = entry.stat(follow_symlinks=False).st_size if is_file else None
                except FileNotFoundError:
                    continue
                except PermissionError:  # the directory may be listed but not searched
                    size = None
                yield FileEntry(entry.name, where, is_file, entry.is_dir(follow_symlinks=False), size)

    def _names(self, path: str) -> Iterator[os.DirEntry[str]]:
        fd = self._beneath.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                yield from entries
        finally:
            os.close(fd)

    def _behind_link(self, path: str, name: str) -> FileEntry:
        """Return the entry of a symlink's target. If the target is missing or outside, the entry is neither a file nor a
        directory.
        """
        try:
            entry = self._stat(path)
        except OSError:
            return FileEntry(name, path, False, False, is_link=True)
        size = entry.size_bytes if entry.is_file else None
        return FileEntry(name, path, entry.is_file, entry.is_directory, size, is_link=True)

    def _walk(self, path: str, depth: int | None = None) -> Iterator[str]:
        pending = [(path, 1)]
        while pending:
            directory, level = pending.pop()
            try:
                for entry in self._names(directory):
                    where = join(directory, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if depth is None or level < depth:
                            pending.append((where, level + 1))
                    elif entry.is_file(follow_symlinks=False) or (entry.is_symlink() and self._behind_link(where, "").is_file):
                        yield where
            except OSError as exc:
                if exc.errno not in _WENT:
                    raise refusal(exc.errno or errno.EIO, directory) from exc

    def _open_read(self, path: str) -> Source:
        with about(path):
            return FileSource(self._beneath.open(path, os.O_RDONLY | os.O_NONBLOCK))

    def _open_write(self, path: str, mode: WriteMode) -> Sink:
        with about(path):
            return NamedSink(sink_for(self._beneath, path, mode), path)

    def _make_directory(self, path: str) -> None:
        self._in_parent(path, lambda name, fd: os.mkdir(name, dir_fd=fd))

    def _remove_file(self, path: str) -> None:
        self._in_parent(path, lambda name, fd: os.unlink(name, dir_fd=fd))

    def _remove_empty(self, path: str) -> None:
        self._in_parent(path, lambda name, fd: os.rmdir(name, dir_fd=fd))

    def _remove_tree(self, path: str) -> None:
        if path:
            self._in_parent(path, remove_directory)
            return
        for entry in list(self._names("")):
            remove = self._remove_tree if entry.is_dir(follow_symlinks=False) else self._remove_file
            try:
                remove(entry.name)
            except FileNotFoundError:
                continue

    def _move(self, source: str, destination: str) -> None:
        try:
            with about(destination):
                self._beneath.move(source, destination)
        except PathEscapeError:  # or another file system is mounted in between
            super()._move(source, destination)

    def _in_parent(self, path: str, act: Callable[[str, int], None]) -> None:
        with about(path):
            fd = self._beneath.open(parent_of(path), os.O_PATH | os.O_DIRECTORY)
            try:
                act(name_of(path), fd)
            finally:
                os.close(fd)

    # -- archives

    def _locate(self, path: str) -> bytes | None:
        where, root = os.path.realpath(path), os.path.realpath(self._root).rstrip("/")
        return os.fsencode(where[len(root) + 1 :]) if where.startswith(root + "/") else None

    @contextmanager
    def _archive_tree(self) -> "Iterator[TreeSource]":
        from agentfs_files.trees.directory_tree import Directory

        with self.opened_root() as fd, Directory(f"/proc/self/fd/{fd}") as directory:
            yield directory

    def _replace_all(self, archive: "Archive") -> int:
        """Replace everything, but keep the archive itself if it lies inside the root."""
        from agentfs_files.backends.host_import import replace_all

        with self.opened_root() as fd:
            return replace_all(fd, archive, self._locate(archive.path))

    def _overwrite(self, archive: "Archive") -> int:
        from agentfs_files.backends.host_import import overwrite

        with self.opened_root() as fd:
            return overwrite(fd, archive, self._locate(archive.path))

    def has_mounts_beneath(self) -> bool:
        """Return whether something is mounted beneath the root."""
        with self.opened_root() as fd:
            return bool(mounts_beneath(fd))

    @contextmanager
    def opened_root(self) -> Iterator[int]:
        """Yield a descriptor of the root."""
        fd = self._beneath.open("", os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield fd
        finally:
            os.close(fd)

    # -- snapshots

    @property
    def _snapshots(self) -> "DirectorySnapshots":
        if self._area is None:
            from agentfs_files.snapshots.directory_snapshots import DirectorySnapshots

            kept = self._config.max_snapshots
            self._area = DirectorySnapshots(
                self._root, strategy=self._config.snapshot_strategy, storage=self._config.snapshot_dir, git_dir=self._git_dir,
                policy=None if kept is None else SnapshotRetentionPolicy(max_count=kept),
            )  # fmt: skip
        return self._area

    @contextmanager
    def _released(self) -> Iterator["DirectorySnapshots"]:
        """Close our descriptor of the root while a mount on it changes, since that requires that nobody uses it."""
        if self._snapshots.strategy is not SnapshotStrategy.OVERLAY:
            yield self._snapshots
            return
        self._beneath.close()
        try:
            yield self._snapshots
        finally:
            self._beneath = Beneath(self._root, shown_at=self._shown_at)

    def snapshot(self, *, tag: str | None = None) -> FilesystemSnapshot:
        with self._released() as snapshots:
            snapshot = snapshots.take(tag, self._current)
        self._current = snapshot.snapshot_id
        return snapshot

    def restore(self, snapshot: FilesystemSnapshot) -> None:
        self._check_writable("")
        with self._released() as snapshots:
            snapshots.restore(snapshot)
        self._current = snapshot.snapshot_id

    def delete_snapshot(self, snapshot: FilesystemSnapshot) -> None:
        """Delete a snapshot and the content that only it held. Raises SnapshotNotFoundError."""
        self._snapshots.delete(snapshot)

    def diff(self, base: FilesystemSnapshot, target: FilesystemSnapshot | None = None) -> FilesystemDiff:
        return self._snapshots.diff(base, target)

    @property
    def current_snapshot_id(self) -> UUID | None:
        return self._current

    @property
    def git_dir(self) -> str | None:
        """Repository of the strategy git; None before it exists."""
        return self._snapshots.git_dir

    def cleanup(self) -> None:
        """Delete all snapshots in a directory that this object created. Later calls do nothing."""
        with self._released() as snapshots:
            snapshots.cleanup()


def _file_stat(path: str, status: os.stat_result, born: float | None) -> FileStat:
    is_directory = stat.S_ISDIR(status.st_mode)
    is_file = stat.S_ISREG(status.st_mode)
    size = status.st_size if is_file else 0
    mode = stat.S_IMODE(status.st_mode)
    return FileStat(path or ".", is_file, is_directory, size, _time(born), _time(status.st_mtime), mode)


def _time(seconds: float | None) -> datetime | None:
    """Return a time; None also for a year that Python cannot represent."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
