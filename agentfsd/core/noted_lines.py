"""The lines of a file that a note is about: what is remembered of them, and where they are when the file has changed.

A line is the same if its bytes are. Where several places have the remembered lines, the one whose neighbours are the same wins,
and then the nearest. It never reads a file.
"""

import errno
import hashlib
from collections.abc import Sequence

import msgspec

MOST_LINES = 50  # that a note can be about
LINES_OF_A_FILE = 200_000  # in one with more, lines are not searched
_LINE_BYTES = 500  # that are kept of a line; a hash stands for the rest
_HASH_BYTES = 16
_NEIGHBOURS = 3  # lines before and after
_NEAR = 500  # lines up and down that are searched
_TELLING_BYTES = 4  # letters and digits of a text that is found without its neighbours


class NotedLines(msgspec.Struct, frozen=True):
    """What is remembered. Each line is as kept() returns it."""

    lines: list[bytes]
    before: list[bytes]
    after: list[bytes]

    def shown(self) -> list[bytes]:
        """Return the beginning of each line, to show it."""
        return [line[: _LINE_BYTES - _HASH_BYTES] for line in self.lines]


def kept(line: bytes) -> bytes:
    """Return what is kept of a line: the line, or of a long one its beginning and a hash."""
    if len(line) <= _LINE_BYTES:
        return line
    return line[: _LINE_BYTES - _HASH_BYTES] + hashlib.blake2b(line, digest_size=_HASH_BYTES).digest()


class SearchedFile:
    """The lines of one file, in which notes can be found.

    Args:
        content: All of the file.

    Raises:
        OSError: EFBIG, it has too many lines.
    """

    def __init__(self, content: bytes) -> None:
        if content.count(b"\n") > LINES_OF_A_FILE:
            raise OSError(errno.EFBIG, "the file has too many lines to be searched")
        self._lines = content.replace(b"\r\n", b"\n").split(b"\n")
        if not self._lines[-1]:
            self._lines.pop()
        self._long: dict[int, bytes] = {}  # what is kept of long lines, by their number

    def __len__(self) -> int:
        return len(self._lines)

    def _kept(self, first: int, end: int) -> list[bytes]:
        """Return what is kept of some lines, from 0."""
        return [self._kept_one(number) for number in range(max(0, first), min(end, len(self._lines)))]

    def _kept_one(self, number: int) -> bytes:
        line = self._lines[number]
        if len(line) <= _LINE_BYTES:
            return line
        if number not in self._long:
            self._long[number] = kept(line)
        return self._long[number]

    def remember(self, line: int, last_line: int) -> NotedLines:
        """Return what is to be remembered of these lines, which count from 1."""
        first = line - 1
        return NotedLines(
            self._kept(first, last_line), self._kept(first - _NEIGHBOURS, first), self._kept(last_line, last_line + _NEIGHBOURS)
        )

    def find(self, noted: NotedLines, line: int) -> int:
        """Return the first line, from 1, of the remembered lines, which began at *line*; 0 if they are nowhere near."""
        start, best, most = line - 1, (0, 0), len(noted.before) + len(noted.after)
        needed = int(not _tells(noted.lines) and most > 0)
        for distance in range(_NEAR + 1):
            for at in (start - distance, start + distance)[: 1 + (distance > 0)]:
                if not self._has(noted.lines, at):
                    continue
                same = self._same_neighbours(noted, at)
                if same == most:
                    return at + 1
                if same >= needed and (not best[1] or same > best[0]):
                    best = (same, at + 1)
        return best[1]

    def has_all(self, noted: NotedLines, line: int) -> bool:
        """Return whether the remembered lines are near *line* with all neighbours, so that this is the file they were in."""
        found = self.find(noted, line)
        if not found or not _tells([*noted.before, *noted.lines, *noted.after]):
            return False
        return self._same_neighbours(noted, found - 1) == len(noted.before) + len(noted.after)

    def _has(self, lines: Sequence[bytes], at: int) -> bool:
        if not 0 <= at <= len(self._lines) - len(lines):
            return False
        return self._kept_one(at) == lines[0] and self._kept(at, at + len(lines)) == lines

    def _same_neighbours(self, noted: NotedLines, at: int) -> int:
        end = at + len(noted.lines)
        before, after = self._kept(at - len(noted.before), at), self._kept(end, end + len(noted.after))
        return _same(before[::-1], noted.before[::-1]) + _same(after, noted.after)


def _same(lines: Sequence[bytes], remembered: Sequence[bytes]) -> int:
    """Return how many of the first lines are the remembered ones."""
    count = 0
    for line, other in zip(lines, remembered, strict=False):
        if line != other:
            break
        count += 1
    return count


def _tells(lines: Sequence[bytes]) -> bool:
    """Return whether lines are unlike the many that hold a bracket or nothing."""
    return sum(byte in _WORD_BYTES for line in lines for byte in line) >= _TELLING_BYTES


_WORD_BYTES = frozenset(byte for byte in range(256) if chr(byte).isalnum() or byte > 0x7F)
