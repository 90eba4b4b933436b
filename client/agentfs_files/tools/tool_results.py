"""What the tools found or did, as records for programs; the model reads the message beside them."""

from dataclasses import dataclass

from agentfs_files.filesystem.file_results import FileEntry, GlobMatch, GrepMatch, WriteMode


@dataclass(slots=True, frozen=True)
class LsResult:
    """Directories first, each kind by name. ``total``: how many there are, of which ``entries`` shows the first."""

    path: str
    entries: tuple[FileEntry, ...]
    total: int


@dataclass(slots=True, frozen=True)
class ReadFileResult:
    """``content``: lines ``offset`` (from 0) and the following of the file, as they are in it but for ``cut_lines`` (numbers
    from 1), of which only the beginning is there. ``next_offset``: where to go on; None when that was all."""

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
    """``lines``: where the replacements begin in the new text, from 1; the first hundred."""

    path: str
    replacements: int
    lines: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class GlobResult:
    """``left_out``: how many more match, were it not for ignore files. ``truncated``: ``matches`` has only the first."""

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
    """``counts``: how many lines of each file match, ``matches``: those lines, where they were asked for; both up to the limit.
    ``left_out``: how many files were not searched because of ignore files."""

    pattern: str
    path: str
    matches: tuple[GrepMatch, ...]
    counts: tuple[MatchCount, ...]
    truncated: bool
    left_out: int = 0


@dataclass(slots=True, frozen=True)
class RmResult:
    """``files``: how many went (1 for an empty directory, too)."""

    path: str
    files: int
