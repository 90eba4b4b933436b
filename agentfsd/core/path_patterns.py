"""Patterns for paths as in .gitignore, taken apart into one matcher for each name of a path.

Source: gitignore(5), and what git's wildmatch does where that page is silent. Matching one name at a time lets a look-up go on
where the look-up of its directory ended.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from agentfsd.domain_errors import Refusal, invalid

Matcher = Callable[[bytes], object]  # of one name; true if it matches

_CLASSES: dict[bytes, Callable[[int], bool]] = {
    b"alnum": lambda c: chr(c).isalnum(),
    b"alpha": lambda c: chr(c).isalpha(),
    b"blank": lambda c: c in b" \t",
    b"cntrl": lambda c: c < 32 or c == 127,
    b"digit": lambda c: chr(c).isdigit(),
    b"graph": lambda c: 32 < c < 127,
    b"lower": lambda c: chr(c).islower(),
    b"print": lambda c: 32 <= c < 127,
    b"punct": lambda c: 32 < c < 127 and not chr(c).isalnum(),
    b"space": lambda c: c in b" \t\n\v\f\r",
    b"upper": lambda c: chr(c).isupper(),
    b"xdigit": lambda c: c in b"0123456789abcdefABCDEF",
}


class NamePattern(NamedTuple):
    """What one name of a path must be.

    Attributes:
        literal: The name itself; None where the pattern has wildcards.
        expression: A regular expression for the whole name.
        matches: Tells whether a name matches.
    """

    literal: bytes | None
    expression: bytes
    matches: Matcher


class PathPattern(NamedTuple):
    """A pattern that was taken apart.

    Attributes:
        floats: Its only part matches a name in any directory.
        parts: One pattern for each name, from the root; None stands for any number of directories (``**``). A None at the end
            matches everything below.
        only_dirs: It matches directories only: it ended with a slash.
    """

    floats: bool
    parts: tuple[NamePattern | None, ...]
    only_dirs: bool


def parse_pattern(text: bytes) -> PathPattern:
    """Take a pattern apart.

    Raises:
        Refusal: ``bad-pattern``: it could never match.
    """
    shown = text.decode("utf-8", "backslashreplace")
    stripped = _without_trailing_spaces(text)
    only_dirs = stripped.endswith(b"/")
    body = stripped.removesuffix(b"/")
    anchored = b"/" in body
    body = body.removeprefix(b"/")
    if not body or b"\0" in body:
        raise _bad(f"{shown!r} is no pattern", "write one as in .gitignore, such as *.key, secrets/** or /config/*.local")
    names = body.split(b"/")
    if any(name in (b"", b".", b"..") for name in names):
        raise _bad(f"{shown!r} can match no path", "leave out '.', '..' and empty names; the root is the workspace")
    parts = [None if len(name) > 1 and not name.strip(b"*") and anchored else _name_pattern(name, shown) for name in names]
    return PathPattern(not anchored, tuple(parts), only_dirs)


def _without_trailing_spaces(text: bytes) -> bytes:
    while text.endswith(b" "):
        before = text[:-1]
        if (len(before) - len(before.rstrip(b"\\"))) % 2:
            break
        text = before
    return text


def _name_pattern(name: bytes, shown: str) -> NamePattern:
    if not re.search(rb"[*?\[\\]", name):
        expression = re.escape(name)
        return NamePattern(name, expression, re.compile(expression, re.DOTALL).fullmatch)
    expression, at = b"", 0
    while at < len(name):
        part, at = _translated(name, at, shown)
        expression += part
    return NamePattern(None, expression, re.compile(expression, re.DOTALL).fullmatch)


def _translated(name: bytes, at: int, shown: str) -> tuple[bytes, int]:
    """Translate what begins at an index into a regular expression; return it and the index of what follows."""
    letter = name[at : at + 1]
    if letter == b"*":
        while name[at : at + 1] == b"*":
            at += 1
        return b".*", at
    if letter == b"?":
        return b".", at + 1
    if letter == b"\\":
        if at + 1 == len(name):
            raise _bad(f"{shown!r} ends with a backslash", "write \\\\ for a backslash")
        return re.escape(name[at + 1 : at + 2]), at + 2
    if letter == b"[":
        return _bracket(name, at + 1, shown)
    return re.escape(letter), at + 1


def _bracket(name: bytes, at: int, shown: str) -> tuple[bytes, int]:
    """Translate ``[...]``, whose inside begins at an index."""
    negated = name[at : at + 1] in (b"!", b"^")
    at += negated
    members: set[int] = set()
    first, before = True, 0
    while first or name[at : at + 1] != b"]":
        first = False
        if at >= len(name):
            raise _bad(f"{shown!r} has a [ without its ]", "write \\[ for the letter; a / within [] is not possible")
        found, before, at = _member(name, at, before, shown)
        members |= found
    chosen = set(range(256)) - members if negated else members
    if not chosen:
        return b"(?!)", at + 1
    return b"[" + b"".join(b"\\x%02x" % code for code in sorted(chosen)) + b"]", at + 1


def _member(name: bytes, at: int, before: int, shown: str) -> tuple[set[int], int, int]:
    """Read a member of ``[...]``: return its bytes, the byte from which a range may go on (0: none), and the next index."""
    code = name[at]
    if code == ord("-") and before and name[at + 1 : at + 2] not in (b"", b"]"):
        end, at = _escaped(name, at + 1, shown)
        return set(range(before, end + 1)), 0, at
    if name[at : at + 2] == b"[:":
        close = name.find(b"]", at + 2)
        if close > at + 2 and name[close - 1 : close] == b":":
            return _class(name[at + 2 : close - 1], shown), 0, close + 1
    code, at = _escaped(name, at, shown)
    return {code}, code, at


def _class(name: bytes, shown: str) -> set[int]:
    if name not in _CLASSES:
        raise _bad(f"{shown!r} names no class of letters that exists", "such as [[:digit:]]")
    return {code for code in range(128) if _CLASSES[name](code)}


def _escaped(name: bytes, at: int, shown: str) -> tuple[int, int]:
    if name[at : at + 1] == b"\\":
        at += 1
    if at >= len(name):
        raise _bad(f"{shown!r} has a [ without its ]", "write \\[ for the letter")
    return name[at], at + 1


def _bad(message: str, hint: str) -> Refusal:
    return invalid(message, hint, "bad-pattern")
