"""The interface for authors of tools: one `Filesystem`, whatever the backend, and further protocols for what some backends can
do.

Source: the file system protocol, version 3 (streaming), with the additions of versions 1 and 2 and of the tool operations. All
paths are relative to the root. An absolute path is accepted if it lies beneath ``mount_point`` or ``root``. A path that leads out
of the root raises PathEscapeError.
"""

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import Protocol, Self, runtime_checkable
from uuid import UUID

from agentfs_files.filesystem.file_results import (
    FileEntry,
    FileStat,
    GlobMatch,
    GrepMatch,
    ReadBytesResult,
    ReadResult,
    WriteMode,
    WriteResult,
)
from agentfs_files.filesystem.records import FilesystemDiff, FilesystemSnapshot, SnapshotRetentionPolicy


@runtime_checkable
class ByteReader(Protocol):
    """A file opened for reading. It holds one chunk in memory, whatever the size. After close() every operation raises
    ValueError.
    """

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Size of the whole file in bytes when it was opened."""
        ...

    @property
    def position(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    def read(self, size: int = -1) -> bytes:
        """Return at most *size* bytes (-1: the rest of the file); b"" at the end."""
        ...

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position and return it, in bytes from the start. *whence* is 0 for the start, 1 for the present position, 2 for
        the end.
        """
        ...

    def chunks(self, size: int) -> Iterator[bytes]: ...

    def close(self) -> None: ...

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over chunks of 64 KiB."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None: ...


@runtime_checkable
class ByteWriter(Protocol):
    """A file opened for writing. close() makes the content visible; leaving the context with an exception discards it."""

    @property
    def path(self) -> str: ...

    @property
    def bytes_written(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    def write(self, data: bytes) -> int: ...

    def write_all(self, chunks: Iterable[bytes]) -> int:
        """Write all *chunks*, which may be a ByteReader, and return the number of bytes."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None: ...


@runtime_checkable
class TextReader(Protocol):
    """Lines of UTF-8, decoded as they are read. A UnicodeDecodeError names the byte position in the file."""

    @property
    def path(self) -> str: ...

    @property
    def encoding(self) -> str: ...

    @property
    def line_number(self) -> int:
        """Number of lines read so far, which is the number of the next line, counted from 0."""
        ...

    @property
    def closed(self) -> bool: ...

    def readline(self) -> str: ...

    def read(self, size: int = -1) -> str:
        """Return at most *size* characters; -1 means the rest of the file."""
        ...

    def lines(self, *, strip: bool = False) -> Iterator[str]:
        """Iterate over lines. With *strip*, remove white space and the newline at their ends."""
        ...

    def close(self) -> None: ...

    def __iter__(self) -> Iterator[str]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None: ...


@runtime_checkable
class TextWriter(Protocol):
    """The form of ByteWriter for text."""

    @property
    def path(self) -> str: ...

    @property
    def encoding(self) -> str: ...

    @property
    def bytes_written(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    def write(self, text: str) -> int:
        """Write text and return the number of characters."""
        ...

    def write_all(self, parts: Iterable[str]) -> int: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None: ...


@runtime_checkable
class Filesystem(Protocol):
    """A workspace.

    Raises:
        FileNotFoundError, IsADirectoryError, NotADirectoryError, FileExistsError: as for Python's own functions.
        PermissionError: also for a change if ``read_only``.
        ValueError: the content is not valid.
        RuntimeError: the backend cannot be reached.
    """

    @property
    def root(self) -> str: ...

    @property
    def read_only(self) -> bool: ...

    @property
    def mount_point(self) -> str | None:
        """A prefix such as ``/workspace``. Absolute paths beneath it count as paths from the root."""
        ...

    def open_read(self, path: str) -> ByteReader: ...

    def open_write(self, path: str, *, mode: WriteMode = "overwrite", create_parents: bool = True) -> ByteWriter:
        """Open a file for writing. *mode* create: raise FileExistsError if the path exists. append: create a missing file."""
        ...

    def open_text(self, path: str, *, encoding: str = "utf-8") -> TextReader: ...

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> ReadBytesResult:
        """Return a part of a file. *offset* and *limit* are in bytes. Raises ValueError for more than 32 MiB."""
        ...

    def read(self, path: str, *, offset: int = 0, limit: int | None = None, encoding: str = "utf-8") -> ReadResult:
        """Return lines of a text.

        Args:
            offset: the first line, counted from 0. Only ``\\n`` ends a line.
            limit: the number of lines; None means 2,000, -1 the whole file.

        Raises:
            UnicodeDecodeError: the file is not text.
            ValueError: the result would exceed 32 MiB.
        """
        ...

    def write_bytes(
        self, path: str, content: bytes, *, mode: WriteMode = "overwrite", create_parents: bool = True
    ) -> WriteResult: ...

    def write(self, path: str, content: str, *, mode: WriteMode = "overwrite", create_parents: bool = True) -> WriteResult: ...

    def exists(self, path: str) -> bool:
        """Tell whether a path exists; False also for a path that leads out of the root."""
        ...

    def stat(self, path: str) -> FileStat: ...

    def list(self, path: str = ".") -> Sequence[FileEntry]:
        """Return the entries of a directory, sorted by name."""
        ...

    def glob(self, pattern: str, *, path: str = ".") -> Sequence[GlobMatch]:
        """Return the files whose path beneath *path* matches, sorted. ``**`` matches any number of directories. The result is
        empty if the directory does not exist.
        """
        ...

    def grep(
        self,
        pattern: str,
        *,
        path: str = ".",
        glob: str | None = None,
        file_glob: str | None = None,
        max_matches: int | None = None,
    ) -> Sequence[GrepMatch]:
        """Return the lines that match a regular expression, by path and line. Files that are not UTF-8 text are skipped.

        Args:
            glob: selects files (*file_glob* is the same); a pattern without a slash applies to names.
            max_matches: the most matches to return; None means 1,000.

        Raises:
            ValueError: the expression is not valid.
        """
        ...

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or directory. A directory that is not empty needs *recursive*."""
        ...

    def mkdir(self, path: str, *, parents: bool = True, exist_ok: bool = True) -> None: ...


@runtime_checkable
class MovableFilesystem(Filesystem, Protocol):
    def move(self, source: str, destination: str, *, create_parents: bool = True) -> None:
        """Rename a file, symlink or directory. Raises FileExistsError if the destination exists."""
        ...


@runtime_checkable
class DescriptorFilesystem(Filesystem, Protocol):
    def open_fd(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Return a descriptor of a regular file, like os.open(). The caller closes it. A read-only file system accepts only
        O_RDONLY.
        """
        ...


@runtime_checkable
class SnapshotableFilesystem(Filesystem, Protocol):
    def snapshot(self, *, tag: str | None = None) -> FilesystemSnapshot:
        """Take a snapshot. Raises SnapshotCreationError."""
        ...

    def restore(self, snapshot: FilesystemSnapshot) -> None:
        """Restore the whole state; files added since are deleted. Raises SnapshotRestoreError."""
        ...


@runtime_checkable
class DiffableFilesystem(SnapshotableFilesystem, Protocol):
    def diff(self, base: FilesystemSnapshot, target: FilesystemSnapshot | None = None) -> FilesystemDiff:
        """Return the changes from *base* to *target* (None: the present state)."""
        ...

    @property
    def current_snapshot_id(self) -> UUID | None:
        """Id of the snapshot that was last taken or restored, which is the parent of the next one."""
        ...


@runtime_checkable
class PatchingFilesystem(DiffableFilesystem, Protocol):
    def diff(self, base: FilesystemSnapshot | None, target: FilesystemSnapshot | None = None) -> FilesystemDiff:
        """Return the changes as above. *base* None means what the file system was created over."""
        ...

    def patch(self, base: FilesystemSnapshot | None = None, target: FilesystemSnapshot | None = None) -> str:
        """Return the changes of diff() as a git patch."""
        ...

    def log(self) -> Sequence[FilesystemSnapshot]:
        """Return the snapshots in the history, newest first."""
        ...


@runtime_checkable
class ArchivableFilesystem(Filesystem, Protocol):
    """Export and import of ZIPs with ``manifest.json`` and ``files/``, the same for all backends. Source: tool operations, ZIP
    archive format.
    """

    def export_archive(self, path: str | PathLike[str]) -> int:
        """Write an archive and return the number of files. It gets its name only when it is complete."""
        ...

    def import_archive(self, path: str | PathLike[str]) -> int:
        """Replace everything by the content of an archive and return the number of files. After an ArchiveError nothing has
        changed.
        """
        ...


class SnapshotStore(Protocol):
    """A place for records of snapshots."""

    def save(self, snapshot: FilesystemSnapshot) -> None: ...

    def load(self, snapshot_id: UUID) -> FilesystemSnapshot:
        """Return a record. Raises SnapshotNotFoundError."""
        ...

    def list(self) -> Sequence[FilesystemSnapshot]:
        """Return all records, oldest first."""
        ...

    def delete(self, snapshot_id: UUID) -> None:
        """Delete a record. Raises SnapshotNotFoundError."""
        ...

    def prune(self, policy: SnapshotRetentionPolicy) -> int:
        """Delete the records that *policy* does not keep, and return their number."""
        ...
