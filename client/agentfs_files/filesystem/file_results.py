"""The results of file system operations: frozen records, the same for every backend. Paths are relative to the root, with single
slashes.

Source: the result types of the file system protocol, versions 1 to 3, and the data types of the tool operations.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

WriteMode = Literal["create", "overwrite", "append"]
Kind = Literal["file", "directory", "other"]


@dataclass(slots=True, frozen=True)
class FileStat:
    """The attributes of a path.

    ``size_bytes`` is 0 for a directory. Times are in UTC, and ``mode`` holds the permission bits; they are None if the backend
    does not know them. A symlink that leads nowhere, a socket and the like are neither file nor directory.
    """

    path: str
    is_file: bool
    is_directory: bool
    size_bytes: int
    created_at: datetime | None = None
    modified_at: datetime | None = None
    mode: int | None = None


@dataclass(slots=True, frozen=True)
class FileEntry:
    """One name in a directory. ``size_bytes`` is None for directories, and if sizes were not requested. If ``is_link``, the name
    is a symlink, and the other fields describe its target.
    """

    name: str
    path: str
    is_file: bool
    is_directory: bool
    size_bytes: int | None = None
    is_link: bool = False

    @property
    def kind(self) -> Kind:
        return "directory" if self.is_directory else "file" if self.is_file else "other"


@dataclass(slots=True, frozen=True)
class GlobMatch:
    path: str
    is_file: bool


@dataclass(slots=True, frozen=True)
class GrepMatch:
    """A line that matches. ``line_number`` counts from 1. ``line_content`` has no newline; ``match_start`` and ``match_end`` are
    character positions in it.
    """

    path: str
    line_number: int
    line_content: str
    match_start: int = 0
    match_end: int = 0


class GrepMatches(tuple[GrepMatch, ...]):
    """The matches of a grep, sorted by path and line. ``truncated`` means that the limit was reached, so there may be more."""

    truncated: bool = False


@dataclass(slots=True, frozen=True)
class ReadResult:
    """At most ``limit`` lines of a text from line ``offset`` (counted from 0). ``limit`` is -1 if the whole file was requested.

    ``truncated`` means that more lines follow after ``content``.
    """

    content: str
    path: str
    total_lines: int
    offset: int
    limit: int
    truncated: bool


FileContent = ReadResult  # the name in the tool operations


@dataclass(slots=True, frozen=True)
class ReadBytesResult:
    """At most ``limit`` bytes (-1: no limit was given) from ``offset``, of a file of ``size_bytes``."""

    content: bytes
    path: str
    size_bytes: int
    offset: int
    limit: int
    truncated: bool


@dataclass(slots=True, frozen=True)
class WriteResult:
    """The result of a write. ``bytes_written`` counts what this write wrote, which may be less than the size of the file."""

    path: str
    bytes_written: int
    mode: WriteMode
