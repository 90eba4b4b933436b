"""What operations return: frozen records, the same for every backend. Paths are relative to the root, with single slashes.

Source: the result types of the file system protocol, versions 1 to 3, and the data types of the tool operations.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

WriteMode = Literal["create", "overwrite", "append"]
Kind = Literal["file", "directory", "other"]


@dataclass(slots=True, frozen=True)
class FileStat:
    """``size_bytes`` is 0 for a directory. Times are in UTC, ``mode`` is the permission bits; None where the backend does not
    know. A symlink that leads nowhere, a socket and the like are neither file nor directory."""

    path: str
    is_file: bool
    is_directory: bool
    size_bytes: int
    created_at: datetime | None = None
    modified_at: datetime | None = None
    mode: int | None = None


@dataclass(slots=True, frozen=True)
class FileEntry:
    """One name in a directory. ``size_bytes`` is None for directories, and where it was not asked for. ``is_link``: the name is a
    symlink's; the rest is about what it leads to."""

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
    """``line_number`` counts from 1. ``line_content`` is the line without its newline; ``match_start`` and ``match_end`` are
    positions of characters in it."""

    path: str
    line_number: int
    line_content: str
    match_start: int = 0
    match_end: int = 0


class GrepMatches(tuple[GrepMatch, ...]):
    """The matches of a grep, sorted by path and line. ``truncated``: there may be more than were asked for."""

    truncated: bool = False


@dataclass(slots=True, frozen=True)
class ReadResult:
    """Lines ``offset`` (from 0) to at most ``offset + limit`` of a text; ``limit`` is -1 when the whole file was asked for.

    ``truncated``: lines follow after those in ``content``.
    """

    content: str
    path: str
    total_lines: int
    offset: int
    limit: int
    truncated: bool


FileContent = ReadResult  # as the tool operations call it


@dataclass(slots=True, frozen=True)
class ReadBytesResult:
    """Bytes from ``offset``, at most ``limit`` (-1: no limit was asked for) of a file of ``size_bytes``."""

    content: bytes
    path: str
    size_bytes: int
    offset: int
    limit: int
    truncated: bool


@dataclass(slots=True, frozen=True)
class WriteResult:
    """``bytes_written`` counts what this write wrote, not what the file holds."""

    path: str
    bytes_written: int
    mode: WriteMode
