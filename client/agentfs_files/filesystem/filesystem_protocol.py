"""What tool authors program against: one `Filesystem`, whatever is behind it, and what some backends can do besides.

Source: the file system protocol, version 3 (streaming), with what versions 1 and 2 and the tool operations add. All paths are
relative to the root; an absolute path counts when it lies beneath ``mount_point`` or ``root``. A path that leads out of the
root raises PathEscapeError.
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
    """A file opened for reading: memory for one chunk, whatever the size. After close() everything raises ValueError."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Of the whole file in bytes, when it was opened."""
        ...

    @property
    def position(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    def read(self, size: int = -1) -> bytes:
        """At most *size* bytes (-1: all that is left); empty at the end."""
        ...

    def seek(self, offset: int, whence: int = 0) -> int:
        """*whence*: 0 from the start, 1 from here, 2 from the end. The new position from the start."""
        ...

    def chunks(self, size: int) -> Iterator[bytes]: ...

    def close(self) -> None: ...

    def __iter__(self) -> Iterator[bytes]:
        """Chunks of 64 KiB."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None: ...


@runtime_checkable
class ByteWriter(Protocol):
    """A file opened for writing. It takes effect when it is closed; leaving the context by an exception discards it."""

    @property
    def path(self) -> str: ...

    @property
    def bytes_written(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    def write(self, data: bytes) -> int: ...

    def write_all(self, chunks: Iterable[bytes]) -> int:
        """All *chunks* (a ByteReader is such); how many bytes those were."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None: ...


@runtime_checkable
class TextReader(Protocol):
    """Lines of UTF-8, decoded as they are read. UnicodeDecodeError says at which byte of the file."""

    @property
    def path(self) -> str: ...

    @property
    def encoding(self) -> str: ...

    @property
    def line_number(self) -> int:
        """How many lines have been read: the number, from 0, of the next one."""
        ...

    @property
    def closed(self) -> bool: ...

    def readline(self) -> str: ...

    def read(self, size: int = -1) -> str:
        """At most *size* characters (-1: all that is left)."""
        ...

    def lines(self, *, strip: bool = False) -> Iterator[str]:
        """*strip*: without newline and white space at their ends."""
        ...

    def close(self) -> None: ...

    def __iter__(self) -> Iterator[str]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None: ...


@runtime_checkable
class TextWriter(Protocol):
    """As ByteWriter, for text."""

    @property
    def path(self) -> str: ...

    @property
    def encoding(self) -> str: ...

    @property
    def bytes_written(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    def write(self, text: str) -> int:
        """How many characters were written."""
        ...

    def write_all(self, parts: Iterable[str]) -> int: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None: ...


@runtime_checkable
class Filesystem(Protocol):
    """A workspace. FileNotFoundError, IsADirectoryError, NotADirectoryError, FileExistsError, PermissionError (also when
    ``read_only``), ValueError for content that cannot be, RuntimeError when the backend is out of reach."""

    @property
    def root(self) -> str: ...

    @property
    def read_only(self) -> bool: ...

    @property
    def mount_point(self) -> str | None:
        """A prefix under which absolute paths are taken for paths from the root, such as ``/workspace``."""
        ...

    def open_read(self, path: str) -> ByteReader: ...

    def open_write(self, path: str, *, mode: WriteMode = "overwrite", create_parents: bool = True) -> ByteWriter:
        """*mode* create: FileExistsError where there is something; append: created where there is nothing."""
        ...

    def open_text(self, path: str, *, encoding: str = "utf-8") -> TextReader: ...

    def read_bytes(self, path: str, *, offset: int = 0, limit: int | None = None) -> ReadBytesResult:
        """*offset* and *limit* in bytes. ValueError for more than 32 MiB at once."""
        ...

    def read(self, path: str, *, offset: int = 0, limit: int | None = None, encoding: str = "utf-8") -> ReadResult:
        """*offset* and *limit* in lines, which end with ``\\n`` alone; None: 2,000 lines, -1: the whole file.

        UnicodeDecodeError for what is no text; ValueError for more than 32 MiB at once.
        """
        ...

    def write_bytes(
        self, path: str, content: bytes, *, mode: WriteMode = "overwrite", create_parents: bool = True
    ) -> WriteResult: ...

    def write(self, path: str, content: str, *, mode: WriteMode = "overwrite", create_parents: bool = True) -> WriteResult: ...

    def exists(self, path: str) -> bool:
        """False, too, for a path that leads out of the root."""
        ...

    def stat(self, path: str) -> FileStat: ...

    def list(self, path: str = ".") -> Sequence[FileEntry]:
        """What is in a directory, sorted by name."""
        ...

    def glob(self, pattern: str, *, path: str = ".") -> Sequence[GlobMatch]:
        """Files whose path beneath *path* matches, sorted; ``**`` stands for any number of directories. None where there is no
        such directory."""
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
        """Lines that match a regular expression, by path and line; files that are no UTF-8 text are passed over.

        *glob* (or *file_glob*, which is the same) chooses files; without a slash it is about their names. ValueError for an
        invalid expression. At most *max_matches* (None: 1,000).
        """
        ...

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """A directory that holds something only with *recursive*."""
        ...

    def mkdir(self, path: str, *, parents: bool = True, exist_ok: bool = True) -> None: ...


@runtime_checkable
class MovableFilesystem(Filesystem, Protocol):
    def move(self, source: str, destination: str, *, create_parents: bool = True) -> None:
        """Gives a file, a symlink or a directory another name. FileExistsError where there is something by that name."""
        ...


@runtime_checkable
class DescriptorFilesystem(Filesystem, Protocol):
    def open_fd(self, path: str, flags: int, mode: int = 0o666) -> int:
        """A descriptor of a regular file, as os.open() gives it; the caller's, who closes it. Read-only: O_RDONLY alone."""
        ...


@runtime_checkable
class SnapshotableFilesystem(Filesystem, Protocol):
    def snapshot(self, *, tag: str | None = None) -> FilesystemSnapshot:
        """SnapshotCreationError."""
        ...

    def restore(self, snapshot: FilesystemSnapshot) -> None:
        """Makes everything as it was: what was added since goes. SnapshotRestoreError."""
        ...


@runtime_checkable
class DiffableFilesystem(SnapshotableFilesystem, Protocol):
    def diff(self, base: FilesystemSnapshot, target: FilesystemSnapshot | None = None) -> FilesystemDiff:
        """What leads from *base* to *target* (None: to what there is now)."""
        ...

    @property
    def current_snapshot_id(self) -> UUID | None:
        """The snapshot last taken or restored: the parent of the next one."""
        ...


@runtime_checkable
class PatchingFilesystem(DiffableFilesystem, Protocol):
    def diff(self, base: FilesystemSnapshot | None, target: FilesystemSnapshot | None = None) -> FilesystemDiff:
        """As above; *base* None: what the file system lies over."""
        ...

    def patch(self, base: FilesystemSnapshot | None = None, target: FilesystemSnapshot | None = None) -> str:
        """What diff() names, as git shows it."""
        ...

    def log(self) -> Sequence[FilesystemSnapshot]:
        """The snapshots in its history, the newest first."""
        ...


@runtime_checkable
class ArchivableFilesystem(Filesystem, Protocol):
    """ZIP with ``manifest.json`` and ``files/``, the same for all backends. Source: tool operations, ZIP archive format."""

    def export_archive(self, path: str | PathLike[str]) -> int:
        """How many files were written to the archive, which appears only when it is whole."""
        ...

    def import_archive(self, path: str | PathLike[str]) -> int:
        """Replaces everything by what the archive holds; how many files that is. ArchiveError, and nothing has changed."""
        ...


class SnapshotStore(Protocol):
    """Where snapshots are kept on record."""

    def save(self, snapshot: FilesystemSnapshot) -> None: ...

    def load(self, snapshot_id: UUID) -> FilesystemSnapshot:
        """SnapshotNotFoundError."""
        ...

    def list(self) -> Sequence[FilesystemSnapshot]:
        """The oldest first."""
        ...

    def delete(self, snapshot_id: UUID) -> None:
        """SnapshotNotFoundError."""
        ...

    def prune(self, policy: SnapshotRetentionPolicy) -> int:
        """Deletes what *policy* does not keep; how many that were."""
        ...
