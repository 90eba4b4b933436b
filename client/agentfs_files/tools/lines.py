"""Read some lines of a text file of any size as a stream. Only those lines are in memory, each up to a maximum length."""

import codecs
import io
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from agentfs_files.filesystem.filesystem_protocol import Filesystem

Range = tuple[int, int]

_CHUNK_BYTES = 1 << 16
_NONE = (sys.maxsize, sys.maxsize)


class NotTextError(ValueError):
    """The file is not UTF-8 text."""


@dataclass(slots=True, frozen=True)
class Line:
    """A line. ``number`` counts from 1; ``text`` has no newline; ``ending`` is the newline, or ""; ``cut`` means that the line is
    longer.
    """

    number: int
    text: str
    ending: str
    cut: bool


@dataclass(slots=True, frozen=True)
class Window:
    """Some lines of a file. ``total`` is the number of lines in the file; ``size`` is in bytes."""

    path: str
    lines: tuple[Line, ...]
    total: int
    size: int


def window(filesystem: Filesystem, path: str, ranges: Iterable[Range], characters: int) -> Window:
    """Return the lines in *ranges*, each up to *characters* long.

    Args:
        ranges: first and last line numbers, both included, from 1; ascending and not overlapping.

    Raises:
        NotTextError: one of the lines is not UTF-8, or there is a NUL before their end.
    """
    with filesystem.open_read(path) as reader:
        collected = _Collected(ranges, _most_bytes(characters))
        for chunk in reader.chunks(_CHUNK_BYTES):
            if b"\0" in chunk and collected.wants_more:
                raise NotTextError(f"{reader.path} is binary ({reader.size:,} bytes)")
            collected.add(chunk)
        lines = tuple(_decoded(reader.path, number, data, characters) for number, data in collected.finish())
        return Window(reader.path, lines, collected.ended, reader.size)


def _most_bytes(characters: int) -> int:
    """Return how many bytes to keep to see whether a line is longer: UTF-8 takes up to four bytes per character, a line ending
    two.
    """
    return 4 * (characters + 1)


class _Collected:
    """Collect the bytes of the wanted lines, each up to *most*; count all others."""

    def __init__(self, ranges: Iterable[Range], most: int) -> None:
        self._ranges, self._most = iter(ranges), most
        self._first, self._last = next(self._ranges, _NONE)
        self._wanted: list[tuple[int, bytes]] = []
        self._open = bytearray()
        self._begun = False  # whether a line has begun and not ended
        self.ended = 0

    @property
    def wants_more(self) -> bool:
        return (self._first, self._last) != _NONE

    def add(self, chunk: bytes) -> None:
        newlines = chunk.count(b"\n")
        if self.ended + newlines + 1 < self._first:
            self.ended += newlines
            self._begun = not chunk.endswith(b"\n")
            return
        for part in io.BytesIO(chunk):  # ends lines at \n alone, as splitlines() does not
            if self._first <= self.ended + 1:
                self._open += part[: self._most - len(self._open)]
            self._begun = not part.endswith(b"\n")
            if not self._begun:
                self._end_line()

    def finish(self) -> list[tuple[int, bytes]]:
        if self._begun:
            self._end_line()
        return self._wanted

    def _end_line(self) -> None:
        self.ended += 1
        if self._first <= self.ended:
            self._wanted.append((self.ended, bytes(self._open)))
            self._open.clear()
        if self.ended == self._last:
            self._first, self._last = next(self._ranges, _NONE)


def _decoded(path: str, number: int, data: bytes, characters: int) -> Line:
    try:  # not final: a character may have been cut in two
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) < _most_bytes(characters))
    except UnicodeDecodeError as exc:
        raise NotTextError(f"{path} is not UTF-8 text: line {number} holds the byte 0x{data[exc.start]:02x}") from exc
    bare = text.removesuffix("\n").removesuffix("\r")
    if len(bare) > characters:
        return Line(number, bare[:characters], "", True)
    return Line(number, bare, text[len(bare) :], False)
