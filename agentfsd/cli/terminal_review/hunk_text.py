"""The lines of one hunk, coloured a piece at a time, so that the first screen of a hunk of 100,000 lines is there at once."""

import re
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from agentfsd.cli.output.patch_colours import visible
from agentfsd.history.word_changes import word_changes
from agentfsd.web.diff_rows import align
from agentfsd.web.highlighting import Line, coloured, marked, text_of

PIECE = 200  # lines that are coloured together
_PIECES_KEPT = 64
_HEAD = re.compile(rb"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_TAB = 4
_LEAST_SHARED = 1 / 3  # of a line, or its words are not marked: it is another line


class HunkLine(NamedTuple):
    """A line. ``old`` and ``new`` count from 1; 0: the line is not in that version. ``sign``: space, -, +, or backslash for what
    is no line of the file. A colour of ``parts`` is a letter, and * where words differ.
    """

    sign: str
    old: int
    new: int
    parts: Line


class HunkText:
    """The lines of a hunk as a patch shows it.

    Args:
        path: The name of the file says in which language it is.
        shown: What ChangedFile.shown() returned.
    """

    def __init__(self, path: bytes, shown: bytes) -> None:
        self._path = path.decode("utf-8", "backslashreplace")
        lines = shown.removesuffix(b"\n").split(b"\n") if shown else []
        head = _HEAD.match(lines[0]) if lines else None
        self._lines = lines[1:] if head is not None else lines
        self.range = lines[0].decode() if head is not None else ""
        self._is_lines = head is not None
        old, new = (int(head[1]), int(head[2])) if head is not None else (0, 0)
        self._starts = list[tuple[int, int]]()  # the numbers of the first lines of each piece
        for at, line in enumerate(self._lines):
            if at % PIECE == 0:
                self._starts.append((old, new))
            sign = line[:1]
            old, new = old + (sign in (b" ", b"-", b"")), new + (sign in (b" ", b"+", b""))
        self.piece = lru_cache(maxsize=_PIECES_KEPT)(self._piece)

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, number: int) -> HunkLine:
        """Return a line, by its number from 0 on."""
        return self.piece(number // PIECE)[number % PIECE]

    def _piece(self, number: int) -> list[HunkLine]:
        lines = [line.decode("utf-8", "surrogateescape") for line in self._lines[number * PIECE : (number + 1) * PIECE]]
        if not self._is_lines:
            return [HunkLine("\\", 0, 0, [("", expanded(visible(line)))]) for line in lines]
        body = [(line[:1] or " ", expanded(visible(line[1:]))) for line in lines]
        was = iter(coloured(self._path, [text for sign, text in body if sign in " -"]))
        now = iter(coloured(self._path, [text for sign, text in body if sign in " +"]))
        old, new = self._starts[number]
        made = list[HunkLine]()
        for sign, text in body:
            if sign == "\\":
                made.append(HunkLine(sign, 0, 0, [("", f"\\{text}")]))
            elif sign == "-":
                made.append(HunkLine(sign, old, 0, next(was)))
            elif sign == "+":
                made.append(HunkLine(sign, 0, new, next(now)))
            else:
                next(was)
                made.append(HunkLine(" ", old, new, next(now)))
            old, new = old + (sign in " -"), new + (sign in " +")
        return _with_words(made)


def expanded(text: str) -> str:
    """Replace tabs by blanks up to the next stop."""
    return text.expandtabs(_TAB) if "\t" in text else text


def _with_words(lines: list[HunkLine]) -> list[HunkLine]:
    """Mark the words that differ between lines that replace each other."""
    made = list(lines)
    at = 0
    for is_change, group in groupby(lines, key=lambda line: line.sign in "-+\\"):
        count = len(list(group))
        if is_change:
            gone = [index for index in range(at, at + count) if lines[index].sign == "-"]
            came = [index for index in range(at, at + count) if lines[index].sign == "+"]
            texts = ([text_of(lines[index].parts) for index in side] for side in (gone, came))
            for left, right in align(*texts) if gone and came else ():
                if left is not None and right is not None:
                    pair = gone[left], came[right]
                    made[pair[0]], made[pair[1]] = _marked_pair(made[pair[0]], made[pair[1]])
        at += count
    return made


def _marked_pair(was: HunkLine, now: HunkLine) -> tuple[HunkLine, HunkLine]:
    old, new = text_of(was.parts), text_of(now.parts)
    changes = list(word_changes(old, new))
    differing = sum(change.new[1] - change.new[0] for change in changes), sum(change.old[1] - change.old[0] for change in changes)
    longest = max(len(new.strip()), len(old.strip()), 1)
    if 1 - max(differing) / longest < _LEAST_SHARED:
        return was, now
    left, right = was.parts, now.parts
    for change in changes:
        left, right = marked(left, *change.old), marked(right, *change.new)
    return was._replace(parts=left), now._replace(parts=right)
