"""What a backend supplies, and what it may do better than by those few operations.

Paths are normalised, "" is the root. Nothing here is for callers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from agentfs_files.filesystem.file_results import FileEntry, FileStat, WriteMode
from agentfs_files.filesystem.file_streams import Sink, Source
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS, Limits


class Primitives(ABC):
    """``limits`` may be others than the specification's."""

    def __init__(self, *, read_only: bool = False, mount_point: str | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        if mount_point is not None and not mount_point.startswith("/"):
            raise ValueError(f"a mount point is an absolute path such as /workspace, not {mount_point!r}")
        self._read_only, self._mount_point = read_only, mount_point
        self.limits: Limits = limits

    @property
    def read_only(self) -> bool:
        return self._read_only

    @property
    def mount_point(self) -> str | None:
        return self._mount_point

    # -- what a backend supplies

    @property
    @abstractmethod
    def root(self) -> str: ...

    @abstractmethod
    def _stat(self, path: str) -> FileStat:
        """FileNotFoundError, NotADirectoryError."""

    @abstractmethod
    def _scan(self, path: str) -> Iterable[FileEntry]:
        """What is in a directory, in any order."""

    @abstractmethod
    def _open_read(self, path: str) -> Source:
        """A file that was there a moment ago."""

    @abstractmethod
    def _open_write(self, path: str, mode: WriteMode) -> Sink:
        """The parent is there; for ``create`` the path was not there a moment ago."""

    @abstractmethod
    def _make_directory(self, path: str) -> None:
        """The parent is there, the path was not there a moment ago."""

    @abstractmethod
    def _remove_file(self, path: str) -> None: ...

    @abstractmethod
    def _remove_tree(self, path: str) -> None:
        """A directory with all that is in it; the root stays, empty."""

    # -- what a backend may do better

    def _remove_empty(self, path: str) -> None:
        """A directory that was empty a moment ago. OSError with ENOTEMPTY where it can be told that it no longer is."""
        self._remove_tree(path)

    def _stat_name(self, path: str) -> FileStat:
        """As _stat, of a symlink itself: what a deletion is about. One is neither file nor directory."""
        return self._stat(path)

    def _walk(self, path: str, depth: int | None = None) -> Iterator[str]:
        """All files beneath a directory, *depth* names deep, in any order. Symlinks to directories are not followed."""
        pending = [(path, 1)]
        while pending:
            directory, level = pending.pop()
            try:
                entries = list(self._scan(directory))
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue  # went meanwhile, or is nobody's business
            for entry in entries:
                if entry.is_file:
                    yield entry.path
                elif entry.is_directory and (depth is None or level < depth) and self._is_plain_directory(entry):
                    pending.append((entry.path, level + 1))

    def _is_plain_directory(self, entry: FileEntry) -> bool:
        """False for a symlink to one."""
        return not entry.is_link

    def _contents(self, paths: Iterable[str]) -> Iterator[tuple[str, Source]]:
        """Each of several files, opened; those that cannot be are left out."""
        for path in paths:
            try:
                source = self._open_read(path)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
                continue
            yield path, source
