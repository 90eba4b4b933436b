"""A text with conflict markers, block by block: what each side has there, and what was decided. It asks nobody."""

import re
from dataclasses import dataclass
from typing import Literal

Taken = Literal["", "ours", "theirs", "both"]

_BEGIN, _BASE, _MIDDLE, _END = (re.compile(rb"^%s{7}(?: .*)?\r?$" % mark) for mark in (rb"<", rb"\|", rb"=", rb">"))


@dataclass(slots=True)
class ClashingLines:
    """Lines that both sides changed. ``start``: the number of its first marker's line, from 0 on. ``taken``: the chosen side."""

    start: int
    ours: list[bytes]
    base: list[bytes]
    theirs: list[bytes]
    taken: Taken = ""


class MarkedText:
    """A text in parts: lines that are settled, and blocks between markers.

    Args:
        text: The file as it is now.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._parts: list[list[bytes] | ClashingLines] = []
        lines = _lines(text)
        plain, at = list[bytes](), 0
        while at < len(lines):
            found = _block(lines, at) if _BEGIN.match(lines[at].rstrip(b"\n")) else None
            if found is None:
                plain.append(lines[at])
                at += 1
                continue
            block, at = found
            self._parts += [plain, block]
            plain = []
        self._parts.append(plain)

    def end_as(self, ours: bytes, theirs: bytes) -> None:
        """Give the last lines the ends that they have in the versions of both sides: markers hide that one has none."""
        if len(self._parts) > 1 and not self._parts[-1] and isinstance(block := self._parts[-2], ClashingLines):
            for side, version in ((block.ours, ours), (block.theirs, theirs)):
                if side and not version.endswith(b"\n") and version.endswith(bare := side[-1].rstrip(b"\r\n")):
                    side[-1] = bare

    @property
    def blocks(self) -> list[ClashingLines]:
        return [part for part in self._parts if isinstance(part, ClashingLines)]

    @property
    def is_decided(self) -> bool:
        return bool(self.blocks) and all(block.taken for block in self.blocks)

    def result(self) -> bytes:
        """Return the text with the chosen side of each block. All must be decided."""
        made = list[bytes]()
        for part in self._parts:
            if isinstance(part, ClashingLines):
                made += part.ours if part.taken in ("ours", "both") else []
                if part.taken == "both" and part.ours and part.theirs and not part.ours[-1].endswith(b"\n"):
                    made.append(b"\r\n" if any(line.endswith(b"\r\n") for line in (*part.ours, *part.theirs)) else b"\n")
                made += part.theirs if part.taken in ("theirs", "both") else []
            else:
                made += part
        return b"".join(made)

    def around(self, block: ClashingLines, count: int) -> tuple[list[bytes], list[bytes]]:
        """Return up to *count* settled lines before and after a block."""
        at = next(number for number, part in enumerate(self._parts) if part is block)
        before, after = self._parts[at - 1], self._parts[at + 1]
        assert isinstance(before, list)
        assert isinstance(after, list)
        return before[-count:], after[:count]


def _lines(text: bytes) -> list[bytes]:
    """Split at line feeds only."""
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _block(lines: list[bytes], start: int) -> tuple[ClashingLines, int] | None:
    """Read a block, and return the number of the line behind it; None if its markers are not all there."""
    sides: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])  # ours, base, theirs
    side = 0
    for at in range(start + 1, len(lines)):
        line = lines[at].rstrip(b"\n")
        if side == 2 and _END.match(line):
            return ClashingLines(start, *sides), at + 1
        if side == 0 and _BASE.match(line):
            side = 1
        elif side < 2 and _MIDDLE.match(line):
            side = 2
        elif _BEGIN.match(line):
            return None
        else:
            sides[side].append(lines[at])
    return None
