"""edit_file: replace one text by another. Everything else stays unchanged byte by byte: line endings, byte order mark, end of
file.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.tools.context import ToolResult
from agentfs_files.tools.handling import ToolRefused
from agentfs_files.tools.parameters import EditFileParams
from agentfs_files.tools.result_text import count, numbered
from agentfs_files.tools.tool_limits import ToolLimits
from agentfs_files.tools.tool_results import EditFileResult
from agentfs_files.tools.write_tools import check_length

_CRLF = "\r\n"
_SHOWN_PLACES = 20
_SHOWN_LINES = 20
_KEPT_LINES = 100
_AROUND = 3


def edit_file(params: EditFileParams, filesystem: Filesystem, limits: ToolLimits) -> ToolResult[EditFileResult]:
    if not params.old_string:
        raise ToolRefused(
            "old_string is empty. Give the text to replace; write_file writes a whole file or, with mode=append, adds to it."
        )
    check_length(params.new_string, limits)
    read = filesystem.read_bytes(params.path)
    text = _decoded(read.path, read.content)
    edited = replaced(text, params, read.path)
    if edited.text == text:
        raise ToolRefused(f"old_string and new_string are the same, so {read.path} would stay as it is.")
    filesystem.write_bytes(params.path, edited.text.encode())
    done = f"Replaced {count(edited.count, 'occurrence')} in {read.path}" if edited.count > 1 else f"Edited {read.path}"
    result = EditFileResult(read.path, edited.count, edited.lines)
    return ToolResult(f"{done}. It now reads:\n{_now(edited, params, limits)}", result)


def _decoded(path: str, content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as exc:
        raise ToolRefused(f"{path} is not UTF-8 text (byte {exc.start:,}), and edit_file edits only such.") from exc
    if "\0" in text:
        raise ToolRefused(f"{path} is binary, and edit_file edits only text.")
    return text


@dataclass(slots=True, frozen=True)
class Edited:
    """An edited text. ``lines`` are the first hundred line numbers, from 1, at which replacements begin in the new text."""

    text: str
    count: int
    lines: tuple[int, ...]


def replaced(text: str, params: EditFileParams, path: str = "the file") -> Edited:
    """Replace the only occurrence of ``old_string``, or all of them, in *text*.

    ``\\n`` in ``old_string`` matches any line ending; in ``new_string`` it becomes the line ending used at that place.

    Raises:
        ToolRefused: there is no occurrence, or several without ``replace_all``.
    """
    plain, old = text.replace(_CRLF, "\n"), params.old_string.replace(_CRLF, "\n")
    places = _places(plain, old, len(old) if params.replace_all else 1)
    if not places:
        from agentfs_files.tools.misses import explain_miss

        raise ToolRefused(explain_miss(plain, old, path))
    if len(places) > 1 and not params.replace_all:
        raise ToolRefused(_ambiguous(plain, places, path))
    return _replace(text, plain, places, old, params)


def _places(text: str, wanted: str, step: int) -> list[int]:
    places = []
    place = text.find(wanted)
    while place >= 0:
        places.append(place)
        place = text.find(wanted, place + step)
    return places


def _ambiguous(plain: str, places: list[int], path: str) -> str:
    lines = dict.fromkeys(plain.count("\n", 0, place) + 1 for place in places[:_SHOWN_PLACES])
    more = " and further ones" if len(places) > _SHOWN_PLACES else ""
    return (
        f"old_string occurs more than once in {path}: it begins in lines {', '.join(map(str, lines))}{more}. Add neighbouring "
        "lines to old_string so that it fits one place only, or set replace_all=true."
    )


def _replace(text: str, plain: str, places: list[int], old: str, params: EditFileParams) -> Edited:
    new_string = params.new_string
    raw = _RawPositions(text)
    same_before, same_after = _unchanged(old, new_string)
    new = new_string[same_before : len(new_string) - same_after]
    if _CRLF in params.old_string:
        new = new.replace(_CRLF, "\n")
    parts: list[str] = []
    lines: list[int] = []
    done = line = before = 0
    for place in places:
        start, end = place + same_before, place + len(old) - same_after
        ending = raw.ending_at(plain, start)
        parts += [text[done : raw.of(start)], new.replace(_CRLF, "\n").replace("\n", _CRLF) if ending == _CRLF else new]
        done = raw.of(end)
        line += plain.count("\n", before, place)
        before = place
        lines.append(line + 1 + (len(parts) // 2 - 1) * (new_string.count("\n") - old.count("\n")))
    parts.append(text[done:])
    return Edited("".join(parts), len(places), tuple(lines[:_KEPT_LINES]))


def _unchanged(old: str, new: str) -> tuple[int, int]:
    """Return how many characters at the start and the end are equal and are not replaced, so that their line endings stay."""
    if "\r" in new:
        return 0, 0
    before = _common(old, new)
    return before, _common(reversed(old[before:]), reversed(new[before:]))


def _common(one: Iterable[str], other: Iterable[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


class _RawPositions:
    """Map positions in a text with only ``\\n`` as line ending to positions in the original text."""

    def __init__(self, text: str) -> None:
        found = _places(text, _CRLF, 2)
        self._pairs = [place - index for index, place in enumerate(found)]  # where they are when each has one character

    def of(self, position: int) -> int:
        return position + bisect_left(self._pairs, position)

    def ending_at(self, plain: str, position: int) -> str:
        """The line ending in use at a position: of its line, or of the one before it."""
        if not self._pairs:
            return "\n"
        newline = plain.find("\n", position)
        if newline < 0:
            newline = plain.rfind("\n")
        index = bisect_left(self._pairs, newline)
        return _CRLF if index < len(self._pairs) and self._pairs[index] == newline else "\n"


def _now(edited: Edited, params: EditFileParams, limits: ToolLimits) -> str:
    """Return the first replaced place with some lines around it."""
    first = max(1, edited.lines[0] - _AROUND)
    last = min(edited.lines[0] + params.new_string.count("\n") + _AROUND, first + _SHOWN_LINES - 1)
    lines = edited.text.removesuffix("\n").split("\n")
    shown = [
        numbered(number, line.removesuffix("\r")[: limits.match_characters])
        for number, line in enumerate(lines[first - 1 : last], first)
    ]
    if edited.count > 1:
        others = ", ".join(map(str, edited.lines[1:_SHOWN_PLACES])) + (", …" if edited.count > _SHOWN_PLACES else "")
        shown.append(f"[the others begin in lines {others}]")
    return "\n".join(shown)
