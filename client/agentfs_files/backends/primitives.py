"""The operations that a backend supplies, and those that it may implement better than the defaults here.

Paths are normalised, and "" is the root. Callers of a file system use none of this.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

from agentfs_files.filesystem.file_results import FileEntry, FileStat, WriteMode
from agentfs_files.filesystem.file_streams import Sink, Source
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS, Limits


class Primitives(ABC):
    """The base of a backend. ``limits`` may differ from those of the specification."""

    def __init__(self, *, read_only: bool = False, mount_point: str | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        if mount_point is not None and not mount_point.startswith("/"):
            raise ValueError(f"a mount point is an absolute path such as /workspace, not {mount_point!r}")
        self._read_only, self._mount_point = read_only, mount_point
        self.limits: Limits = limits

    def close(self) -> None:  # noqa: B027 - many hold nothing
        """Release what the file system holds, if anything. The files stay. May be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

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
        """Return the attributes of a path. Raises FileNotFoundError or NotADirectoryError."""

    @abstractmethod
    def _scan(self, path: str) -> Iterable[FileEntry]:
        """Return the entries of a directory in any order."""

    @abstractmethod
    def _open_read(self, path: str) -> Source:
        """Open a file that existed at the last check."""

    @abstractmethod
    def _open_write(self, path: str, mode: WriteMode) -> Sink:
        """Open a file for writing. The parent exists; for ``create`` the path did not exist at the last check."""

    @abstractmethod
    def _make_directory(self, path: str) -> None:
        """Create a directory. The parent exists, and the path did not exist at the last check."""

    @abstractmethod
    def _remove_file(self, path: str) -> None: ...

    @abstractmethod
    def _remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it. The root itself stays, empty."""

    # -- what a backend may do better

    def _remove_empty(self, path: str) -> None:
        """Remove a directory that was empty at the last check. Raises OSError with ENOTEMPTY if the backend sees that it no
        longer is.
        """
        self._remove_tree(path)

    def _stat_name(self, path: str) -> FileStat:
        """Return the attributes of a symlink itself, which a deletion needs. A symlink is neither file nor directory."""
        return self._stat(path)

    def _walk(self, path: str, depth: int | None = None) -> Iterator[str]:
        """Yield all files beneath a directory, *depth* names deep, in any order. Symlinks to directories are not followed."""
        pending = [(path, 1)]
        while pending:
            directory, level = pending.pop()
            try:
                entries = list(self._scan(directory))
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue  # deleted meanwhile, or not readable
            for entry in entries:
                if entry.is_file:
                    yield entry.path
                elif entry.is_directory and (depth is None or level < depth) and self._is_plain_directory(entry):
                    pending.append((entry.path, level + 1))

    def _is_plain_directory(self, entry: FileEntry) -> bool:
        """Tell whether an entry is a directory; False for a symlink to one."""
        return not entry.is_link

    def _contents(self, paths: Iterable[str]) -> Iterator[tuple[str, Source]]:
        """Open each of several files. Files that cannot be opened are skipped."""
        for path in paths:
            try:
                source = self._open_read(path)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
                continue
            yield path, source
