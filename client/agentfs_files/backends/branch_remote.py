"""A branch's files over the daemon's socket. This module knows nothing of snapshots: see branch.py."""

import os
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_files.backends.base_filesystem import BaseFilesystem
from agentfs_files.backends.branch_descriptors import open_source
from agentfs_files.filesystem.file_results import FileEntry, FileStat, WriteMode
from agentfs_files.filesystem.file_streams import Sink, Source
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS, Limits
from agentfs_files.filesystem.virtual_paths import join
from agentfs_files.remote_files import RemoteFiles

_SMALL_BYTES = 128 << 10  # larger files are read one by one


class RemoteTree(BaseFilesystem):
    """The files of a branch or snapshot. *ref* is its name or id."""

    def __init__(self, client: ControlClient, ref: str, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(limits=limits)
        self._files = RemoteFiles(client, ref)

    @property
    def root(self) -> str:
        return "/"

    def _stat(self, path: str) -> FileStat:
        return _file_stat(path, self._files.stat(path))

    def _stat_name(self, path: str) -> FileStat:
        return _file_stat(path, self._files.stat(path, follow=False))

    def _scan(self, path: str) -> Iterator[FileEntry]:
        for info in self._files.list(path):
            yield _entry(path, info)

    def _walk(self, path: str, depth: int | None = None) -> Iterator[str]:
        level, pending = 1, [path]
        while pending and (depth is None or level <= depth):
            below: list[str] = []
            for directory, listing in self._files.listings(pending):
                for name in listing or ():  # None: deleted meanwhile, or not readable
                    where = join(directory, os.fsdecode(name.name))
                    if stat.S_ISREG(name.mode) or (stat.S_ISLNK(name.mode) and self._leads_to_file(where)):
                        yield where
                    elif stat.S_ISDIR(name.mode):
                        below.append(where)
            level, pending = level + 1, below

    def _leads_to_file(self, path: str) -> bool:
        try:
            return self._stat(path).is_file
        except (OSError, ValueError):  # it leads nowhere, or out of the root
            return False

    def read_small(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return the contents of small files; None for those that must be opened."""
        return self._files.contents(paths, _SMALL_BYTES)

    def _open_read(self, path: str) -> Source:
        return open_source(self._files, path)

    def _open_write(self, path: str, mode: WriteMode) -> Sink:
        return self._files.create(path, mode)

    def _move(self, source: str, destination: str) -> None:
        self._files.rename(source, destination, replace=False)

    def _make_directory(self, path: str) -> None:
        self._files.mkdir(path)

    def _remove_file(self, path: str) -> None:
        self._files.delete(path)

    def _remove_tree(self, path: str) -> None:
        if path:
            self._files.delete(path, recursive=True)
            return
        for info in self._files.list(""):
            self._files.delete(_entry("", info).name, recursive=True)


def _entry(directory: str, info: wire.FileInfo) -> FileEntry:
    name = info.path_bytes.decode("utf-8", "surrogateescape")
    is_file = info.kind == "file"
    size = info.size if is_file else None
    return FileEntry(name, join(directory, name), is_file, info.kind == "directory", size, info.is_link)


def _file_stat(path: str, info: wire.FileInfo) -> FileStat:
    is_file = info.kind == "file"
    size = info.size if is_file else 0
    created = _time(info.created_ns) if info.created_ns else None
    return FileStat(path or ".", is_file, info.kind == "directory", size, created, _time(info.mtime_ns), info.mode & 0o7777)


def _time(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / 1e9, UTC)
