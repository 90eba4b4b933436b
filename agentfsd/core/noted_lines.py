"""The lines of a file that a note is about: what is remembered of them, and where they are when the file has changed.

A line is the same if its bytes are. Where several places have the remembered lines, the one whose neighbours are the same wins,
and then the nearest. It never reads a file.
"""

import bisect
import hashlib
from collections import defaultdict
from collections.abc import Sequence

import msgspec

MOST_LINES = 50  # that a note can be about
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
    """The lines of one file, in which many notes can be found. *content*: all of it."""

    def __init__(self, content: bytes) -> None:
        lines = content.split(b"\n")
        if not lines[-1]:
            lines.pop()
        self._lines = [kept(line.removesuffix(b"\r")) for line in lines]
        self._places = defaultdict[bytes, list[int]](list)
        for number, line in enumerate(self._lines):
            self._places[line].append(number)

    def __len__(self) -> int:
        return len(self._lines)

    def remember(self, line: int, last_line: int) -> NotedLines:
        """Return what is to be remembered of these lines, which count from 1."""
        first = line - 1
        return NotedLines(
            self._lines[first:last_line], self._lines[max(0, first - _NEIGHBOURS) : first],
            self._lines[last_line : last_line + _NEIGHBOURS],
        )  # fmt: skip

    def find(self, noted: NotedLines, line: int) -> int:
        """Return the first line, from 1, of the remembered lines, which began at *line*; 0 if they are nowhere near."""
        start, best = line - 1, (0, 0, -1)
        places = self._places.get(noted.lines[0], [])
        low, high = bisect.bisect_left(places, start - _NEAR), bisect.bisect_right(places, start + _NEAR)
        needed = int(not _tells(noted.lines) and bool(noted.before or noted.after))
        for at in sorted(places[low:high], key=lambda place: abs(place - start)):
            if self._lines[at : at + len(noted.lines)] != noted.lines:
                continue
            same = self._same_neighbours(noted, at)
            found = (same, -abs(at - start), at)
            if same >= needed and (best[2] < 0 or found > best):
                best = found
            if same == len(noted.before) + len(noted.after):
                break
        return best[2] + 1

    def _same_neighbours(self, noted: NotedLines, at: int) -> int:
        before = self._lines[max(0, at - len(noted.before)) : at]
        after = self._lines[at + len(noted.lines) : at + len(noted.lines) + len(noted.after)]
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
