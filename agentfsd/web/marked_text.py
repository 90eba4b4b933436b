"""Splits a text at its conflict markers, and puts it together again as a person decided. It asks no daemon and knows no page."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from agentfsd.domain_errors import invalid

_BASE = "base"  # what markers call the common state
_COMMIT = r"[0-9a-f]{7,64}"  # what git calls a side

Take = Literal["ours", "theirs", "both", "text"]


class MarkedLines(NamedTuple):
    """Lines that clash. ``base`` is None if the markers do not have it. ``ends``: its lines end with CR LF.

    The last line of a text may lack its end: see as_ended().
    """

    ours: bytes
    base: bytes | None
    theirs: bytes
    ends: bool

    @property
    def both(self) -> bytes:
        """The lines of both sides, ours first."""
        lacks_end = self.ours and self.theirs and not self.ours.endswith(b"\n")
        return self.ours + ((b"\r\n" if self.ends else b"\n") if lacks_end else b"") + self.theirs


class TakenLines(msgspec.Struct, array_like=True):
    """What becomes of a block: one side, both (ours first), or ``text``."""

    take: Take
    text: str = ""


Part = bytes | MarkedLines


def split(text: bytes, names: Iterable[str]) -> list[Part] | None:
    """Split a text into what is settled and what clashes.

    Args:
        text: A text that a merge has left.
        names: What the markers may call ours and theirs.

    Returns:
        Parts of the text and blocks in turn; None if the markers do not tell for certain where a block ends.
    """
    parts: list[Part] = []
    pattern = re.compile(_pattern(names), re.MULTILINE)
    at = 0
    for begin in pattern.finditer(text):
        if begin["sign"][:1] != b"<" or begin.start() < at:
            if begin.start() >= at:
                return None  # an end without a beginning
            continue
        found = _block(text, begin, pattern)
        if found is None:
            return None
        block, end = found
        parts += [text[at : begin.start()], block]
        at = end
    return [*parts, text[at:]]


def as_ended(parts: list[Part], ours: bytes, theirs: bytes) -> list[Part]:
    """Return the parts with the last lines as the versions of both sides end: markers hide that one lacks its line end."""
    if len(parts) < 2 or parts[-1] != b"" or not isinstance(block := parts[-2], MarkedLines):
        return parts
    return [*parts[:-2], block._replace(ours=_as_ended(block.ours, ours), theirs=_as_ended(block.theirs, theirs)), b""]


def _as_ended(lines: bytes, version: bytes) -> bytes:
    bare = lines.removesuffix(b"\n").removesuffix(b"\r")
    return bare if lines and not version.endswith(b"\n") and version.endswith(bare) else lines


def has_markers(text: bytes, names: Iterable[str]) -> bool:
    """Return whether a line of a text looks like a marker with one of *names*."""
    return re.search(_pattern(names), text, re.MULTILINE) is not None


def _pattern(names: Iterable[str]) -> bytes:
    """Return what matches a line that begins or ends a block, or begins the common state in it."""
    known = "|".join([*(re.escape(name) for name in names if name), "HEAD", _BASE, _COMMIT])
    named = (
        rf"(?P<sign><{{7,}}|>{{7,}}|\|{{7,}})(?:(?<=\|)| (?:{known})(?:[: ][^\n]*?)?)"  # without a common state, it has no name
    )
    return rf"^{named}\r?(?:\n|\Z)".encode()


def _block(text: bytes, begin: "re.Match[bytes]", pattern: "re.Pattern[bytes]") -> tuple[MarkedLines, int] | None:
    """Return the block that begins there, and where the text goes on."""
    length, base, end = len(begin["sign"]), None, None
    for mark in pattern.finditer(text, begin.end()):
        sign = mark["sign"]
        if len(sign) != length or sign[:1] == b"<" or (sign[:1] == b"|" and base is not None):
            return None
        if sign[:1] == b">":
            end = mark
            break
        base = mark
    if end is None:
        return None
    middle = re.compile(rb"^={%d}\r?\n" % length, re.MULTILINE)
    dividers = list(middle.finditer(text, begin.end(), end.start()))
    if len(dividers) != 1 or (base is not None and dividers[0].start() < base.end()):
        return None  # a line of the text looks like a marker
    (divider,) = dividers
    ours = text[begin.end() : base.start() if base is not None else divider.start()]
    common = text[base.end() : divider.start()] if base is not None else None
    theirs = text[divider.end() : end.start()]
    return MarkedLines(ours, common, theirs, b"\r\n" in ours + theirs), end.end()


def blocks(parts: Sequence[Part]) -> list[MarkedLines]:
    """Return what clashes."""
    return [part for part in parts if isinstance(part, MarkedLines)]


def joined(parts: Sequence[Part], choices: Sequence[TakenLines]) -> bytes:
    """Put a text together.

    Raises:
        Refusal: ``invalid`` if there is not one choice for each block.
    """
    if len(choices) != len(blocks(parts)):
        raise invalid(f"{len(choices)} of {len(blocks(parts))} places were decided", "load the page again")
    left = iter(choices)
    return b"".join(_decided(part, next(left)) if isinstance(part, MarkedLines) else part for part in parts)


def _decided(block: MarkedLines, choice: TakenLines) -> bytes:
    if choice.take == "text":
        made, lack_end = written(choice.text, ends=block.ends), not (block.ours + block.theirs).endswith(b"\n")
        return made.removesuffix(b"\n").removesuffix(b"\r") if lack_end and not choice.text.endswith("\n") else made
    return {"ours": block.ours, "theirs": block.theirs, "both": block.both}[choice.take]


def written(text: str, *, ends: bool) -> bytes:
    """Return lines that a person wrote, as a file has them. *ends*: with CR LF. A browser sends CR LF in every form."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    lines += "\n" if lines and not lines.endswith("\n") else ""
    return (lines.replace("\n", "\r\n") if ends else lines).encode("utf-8", "surrogateescape")
