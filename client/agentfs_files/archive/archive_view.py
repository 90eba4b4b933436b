"""Look into an archive without unpacking it: its manifest, its list of files, and their contents."""

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

import msgspec

from agentfs_files.archive.plain_members import Plain
from agentfs_files.archive.unpack import Archive
from agentfs_files.filesystem.filesystem_errors import ArchiveError
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS, Limits
from agentfs_files.filesystem.virtual_paths import normalize, refusal
from agentfs_files.trees.stored_tree import stream
from agentfs_files.trees.tree_source import walk


@dataclass(slots=True, frozen=True)
class ArchiveEntry:
    path: str
    size_bytes: int


class ArchiveView:
    """A read-only view of an archive.

    Raises:
        ArchiveError: no file system would import this archive. For damaged content, the error is raised when that file is read.
    """

    def __init__(self, path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._archive = Archive(os.fspath(path), limits.max_archive_bytes, check_contents=False)
        try:
            self._plain = Plain(self._archive)
            self._files = {os.fsdecode(entry.path): entry for entry in walk(self._plain) if entry.is_file}
        except BaseException:
            self._archive.close()
            raise

    def manifest(self) -> Mapping[str, object]:
        """Return ``version``, ``created_at``, ``file_count`` and ``total_bytes`` of the manifest; nothing if there is none."""
        text = self._archive.manifest()
        if not text:
            return {}
        try:
            manifest = msgspec.json.decode(text, type=dict[str, object])
        except msgspec.DecodeError as exc:
            raise ArchiveError(f"the manifest cannot be read: {exc}") from exc
        manifest.pop("entries", None)  # internal, of no use to callers
        return manifest

    def tree(self) -> tuple[ArchiveEntry, ...]:
        """Return all files, sorted by path."""
        return tuple(ArchiveEntry(path, entry.size) for path, entry in sorted(self._files.items()))

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is larger than the limit of one read.
        """
        entry = self._files.get(normalize(path))
        if entry is None:
            raise refusal(errno.ENOENT, path)
        if entry.size > self._limits.max_read_bytes:
            raise ValueError(f"{path} has {entry.size} bytes, and at most {self._limits.max_read_bytes} are returned at once")
        return b"".join(stream(self._plain.chunks(entry), entry.size))

    def close(self) -> None:
        self._archive.close()

    def __enter__(self) -> "ArchiveView":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
