"""glob and grep for models, over those of the file system, which match in linear time. This module decides what to omit and how
much to show.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

from agentfs_files.filesystem.file_results import GlobMatch, GrepMatch
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.tools.context import ToolResult
from agentfs_files.tools.handling import ToolRefused
from agentfs_files.tools.ignoring import without_ignored
from agentfs_files.tools.lines import NotTextError, Range, window
from agentfs_files.tools.parameters import GlobParams, GrepParams
from agentfs_files.tools.result_text import count, excerpt, fitting
from agentfs_files.tools.tool_limits import ToolLimits
from agentfs_files.tools.tool_results import GlobResult, GrepResult, MatchCount

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def glob(params: GlobParams, filesystem: Filesystem, limits: ToolLimits) -> ToolResult[GlobResult]:
    base = _directory(params.path, filesystem)
    matches = filesystem.glob(params.pattern, path=params.path)
    left_out = 0
    if matches and not params.include_ignored:
        beneath = "." if params.pattern.startswith("/") else base
        kept, ignored = without_ignored(filesystem, beneath, (match.path for match in matches))
        matches, left_out = [GlobMatch(path, True) for path in kept], len(ignored)
    if params.order == "newest":
        matches = sorted(matches, key=lambda match: _modified(filesystem, match), reverse=True)
    shown, _ = fitting((match.path for match in matches[: limits.entries]), limits.result_characters)
    result = GlobResult(params.pattern, base, tuple(matches[: len(shown)]), len(shown) < len(matches), left_out)
    if not matches:
        shown = [f"No file in {base} matches {params.pattern}."]
    if result.truncated:
        shown.append(f"[{len(shown):,} of {count(len(matches), 'file')}; a narrower pattern or path shows others]")
    return ToolResult("\n".join(shown + _left_out(left_out)), result)


def _directory(path: str, filesystem: Filesystem) -> str:
    entry = filesystem.stat(path)
    if not entry.is_directory:
        raise ToolRefused(f"{entry.path} is a file. Give a directory as path, and what to look for beneath it as pattern.")
    return entry.path


def _modified(filesystem: Filesystem, match: GlobMatch) -> datetime:
    try:
        return filesystem.stat(match.path).modified_at or _LONG_AGO
    except OSError:
        return _LONG_AGO  # deleted meanwhile


def _left_out(files: int) -> list[str]:
    if not files:
        return []
    return [f"[{count(files, 'file')} left out because of ignore files; include_ignored=true includes them]"]


def grep(params: GrepParams, filesystem: Filesystem, limits: ToolLimits) -> ToolResult[GrepResult]:
    base = filesystem.stat(params.path)
    with_lines = params.output_mode == "content"
    most = limits.matches if with_lines else limits.counted_matches
    most = min(params.max_matches or most, most)
    searched = _Searched([base.path], params.glob, 0)
    if base.is_directory and not params.include_ignored:
        searched = _searched(filesystem, base.path, params.glob)
    found = _matches(params, searched, filesystem, most + 1)
    counts = tuple(MatchCount(path, len(list(group))) for path, group in groupby(found[:most], lambda match: match.path))
    matches = tuple(found[:most]) if with_lines else ()
    result = GrepResult(params.pattern, base.path, matches, counts, len(found) > most, searched.left_out)
    lines = _content(params, result, filesystem, limits) if with_lines else _per_file(params, result)
    shown, whole = fitting(lines, limits.result_characters)
    if not whole:
        shown.append(
            f"[cut here: more than {limits.result_characters:,} characters; a narrower pattern, path or glob shows others]"
        )
    return ToolResult("\n".join(shown + _notes(params, result, most)), result)


class _Searched(NamedTuple):
    """The files and directories to search, by path, and the filter for them."""

    places: Sequence[str]
    glob: str | None
    left_out: int


def _searched(filesystem: Filesystem, base: str, glob: str | None) -> _Searched:
    """Return what to search beneath a directory without ignored files: as few places as possible, since each takes a walk."""
    by_path = glob is not None and "/" in glob
    pattern = glob if by_path and glob is not None else f"**/{glob or '*'}"
    kept, ignored = without_ignored(filesystem, base, (match.path for match in filesystem.glob(pattern, path=base)))
    if not ignored:
        return _Searched([base], glob, 0)
    if by_path:
        return _Searched(kept, None, len(ignored))
    return _Searched(fewest_places(kept, ignored), glob, len(ignored))


def fewest_places(kept: Iterable[str], left_out: Iterable[str]) -> list[str]:
    """Return the files and directories that hold all of *kept* and none of *left_out*, in the order of the files' paths."""
    mixed = {directory for path in left_out for directory in _above(path)}
    places = {next((directory for directory in _above(path) if directory not in mixed), path): path for path in kept}
    return sorted(places, key=lambda place: place if places[place] == place else f"{place}/")


def _above(path: str) -> Iterator[str]:
    """Yield the directories above a path, topmost first."""
    return (path[:end] for end, character in enumerate(path) if character == "/")


def _matches(params: GrepParams, searched: _Searched, filesystem: Filesystem, most: int) -> list[GrepMatch]:
    pattern = f"(?i:{params.pattern})" if params.ignore_case else params.pattern
    matches: list[GrepMatch] = []
    for place in searched.places:
        matches += filesystem.grep(pattern, path=place, glob=searched.glob, max_matches=most - len(matches))
        if len(matches) >= most:
            break
    return matches


def _per_file(params: GrepParams, result: GrepResult) -> Iterator[str]:
    for file in result.counts:
        yield file.path if params.output_mode == "files" else f"{file.path}:{file.lines}"


def _content(params: GrepParams, result: GrepResult, filesystem: Filesystem, limits: ToolLimits) -> Iterator[str]:
    for path, group in groupby(result.matches, lambda match: match.path):
        lines = {match.line_number: _match_line(match, limits) for match in group}
        if not params.context:
            yield from lines.values()
            continue
        around = _ranges(lines, params.context)
        previous = 0
        for number, text in sorted((_context_lines(filesystem, path, around, limits) | lines).items()):
            if number != previous + 1:
                yield "--"
            yield text
            previous = number


def _match_line(match: GrepMatch, limits: ToolLimits) -> str:
    text = excerpt(match.line_content.removesuffix("\r"), match.match_start, match.match_end, limits.match_characters)
    return f"{match.path}:{match.line_number}:{text}"


def _ranges(numbers: Iterable[int], around: int) -> list[Range]:
    """Return ranges for ascending line numbers with the lines around them; adjacent ranges are joined."""
    ranges: list[Range] = []
    for number in numbers:
        first, last = max(1, number - around), number + around
        if ranges and first <= ranges[-1][1] + 1:
            first, _ = ranges.pop()
        ranges.append((first, last))
    return ranges


def _context_lines(filesystem: Filesystem, path: str, ranges: list[Range], limits: ToolLimits) -> dict[int, str]:
    try:
        lines = window(filesystem, path, ranges, limits.match_characters).lines
    except (OSError, NotTextError):
        return {}  # deleted or changed since the search
    return {line.number: f"{path}-{line.number}-{line.text}{' … [cut]' if line.cut else ''}" for line in lines}


def _notes(params: GrepParams, result: GrepResult, most: int) -> list[str]:
    notes = _left_out(result.left_out)
    if not result.counts:
        files = f"{result.path} ({params.glob})" if params.glob else result.path
        notes.insert(0, f"No line in {files} matches {params.pattern}.")
    if result.truncated:
        notes.insert(0, f"[these are the first {count(most, 'matching line')}; a narrower pattern, path or glob shows others]")
    return notes
