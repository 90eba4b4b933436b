"""The results of tools as records for programs. The model reads the message beside them."""

from dataclasses import dataclass

from agentfs_files.filesystem.file_results import FileEntry, GlobMatch, GrepMatch, WriteMode


@dataclass(slots=True, frozen=True)
class LsResult:
    """A listing: directories first, each kind sorted by name. ``total`` is the number of entries, of which ``entries`` holds the
    first.
    """

    path: str
    entries: tuple[FileEntry, ...]
    total: int


@dataclass(slots=True, frozen=True)
class ReadFileResult:
    """Lines of a file.

    ``content`` holds the lines from ``offset`` (counted from 0). Lines in ``cut_lines`` (numbers from 1) are shortened; all
    others are unchanged. ``next_offset`` is where to continue; None at the end of the file.
    """

    content: str
    path: str
    truncated: bool = False
    offset: int = 0
    total_lines: int = 0
    next_offset: int | None = None
    cut_lines: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class WriteFileResult:
    path: str
    bytes_written: int
    mode: WriteMode
    created: bool


@dataclass(slots=True, frozen=True)
class EditFileResult:
    """An edit. ``lines`` are the first hundred line numbers, from 1, at which replacements begin in the new text."""

    path: str
    replacements: int
    lines: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class GlobResult:
    """Matching files. ``left_out`` is the number of further matches that ignore files exclude. ``truncated`` means that
    ``matches`` holds only the first.
    """

    pattern: str
    path: str
    matches: tuple[GlobMatch, ...]
    truncated: bool
    left_out: int = 0


@dataclass(slots=True, frozen=True)
class MatchCount:
    path: str
    lines: int


@dataclass(slots=True, frozen=True)
class GrepResult:
    """The result of a search.

    ``counts`` holds the number of matching lines of each file, ``matches`` the lines themselves if requested; both up to the
    limit. ``left_out`` is the number of files that were not searched because of ignore files.
    """

    pattern: str
    path: str
    matches: tuple[GrepMatch, ...]
    counts: tuple[MatchCount, ...]
    truncated: bool
    left_out: int = 0


@dataclass(slots=True, frozen=True)
class RmResult:
    """A removal. ``files`` is the number of removed files (1 also for an empty directory)."""

    path: str
    files: int
