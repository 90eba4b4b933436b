"""Shows a patch on a terminal: with colours, also for the code in it, and with control characters escaped.

It must never be used for output that a program reads, which gets the patch as it is.
"""

import re
from collections.abc import Iterable, Iterator

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword, Number, String, _TokenType
from pygments.util import ClassNotFound

_SYNTAX_BYTES = 256 << 10  # a longer patch of one file gets colours by line only
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_SIGNS = {"+": "32", "-": "31", " ": ""}  # SGR parameters: green, red
_HEAD, _HUNK_HEAD, _NOTE = "1", "36", "33"
_TOKENS = ((Keyword, "1"), (Comment, "2;3"), (String, "33"), (Number, "36"))
_SHOWN = frozenset("\t\u00a0\u3000")

_Line = tuple[str, str]  # sign, text


def plain(patch: bytes) -> Iterator[str]:
    """Return the lines of a patch, without colour."""
    return map(visible, _lines(patch))


def coloured(patch: bytes, path: bytes) -> Iterator[str]:
    """Return the lines of one file's patch, with colours."""
    lexer = _lexer(path) if len(patch) <= _SYNTAX_BYTES else None
    lines = _lines(patch)
    for line in lines:
        hunk = _HUNK.match(line)
        if hunk:
            yield _sgr(_HUNK_HEAD, hunk[0]) + visible(line[hunk.end() :])
            yield from _hunk(_body(lines, *(1 if count is None else int(count) for count in hunk.groups())), lexer)
        else:
            yield line if line.startswith("\\") else _sgr(_HEAD, visible(line))


def styled(style: str, text: str) -> str:
    """Return text with an SGR parameter ("" for none), and its control characters but line ends escaped."""
    return "\n".join(_sgr(style, visible(line)) for line in text.split("\n"))


def note(text: str) -> str:
    return _sgr(_NOTE, visible(text))


def added(text: str) -> str:
    return _sgr(_SIGNS["+"], text)


def removed(text: str) -> str:
    return _sgr(_SIGNS["-"], text)


def visible(text: str) -> str:
    """Escape control characters, stray bytes, and characters that change the direction of writing."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(char: str) -> str:
    if char.isprintable() or char in _SHOWN:
        return char
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:02x}"
    return "^" + chr(ord(char) ^ 0x40) if char < "\x20" or char == "\x7f" else repr(char)[1:-1]


def _lines(patch: bytes) -> Iterator[str]:
    text = patch.decode("utf-8", "surrogateescape")
    return iter(text.removesuffix("\n").split("\n")) if text else iter(())


def _body(lines: Iterator[str], old: int, new: int) -> Iterator[_Line]:
    """Return as many lines as the head of the hunk says."""
    while old > 0 or new > 0:
        line = next(lines, None)
        if line is None:
            return
        sign = line[:1]
        old, new = old - (sign in " -"), new - (sign in " +")
        yield sign, visible(line[1:])


def _hunk(body: Iterable[_Line], lexer: Lexer | None) -> Iterator[str]:
    lines = list(body)
    old = _lexed(lexer, [text for sign, text in lines if sign in " -"])
    new = _lexed(lexer, [text for sign, text in lines if sign in " +"])
    for sign, text in lines:
        before = next(old, None) if sign in " -" else None
        after = next(new, None) if sign in " +" else None
        base = _SIGNS.get(sign, "")
        parts = after or before or [("", text)]
        yield _sgr(base, sign) + "".join(_sgr(";".join(filter(None, (base, style))), part) for style, part in parts)


def _lexed(lexer: Lexer | None, lines: list[str]) -> Iterator[list[tuple[str, str]]]:
    """Return each line as (style, text) parts; nothing if there is no lexer."""
    if lexer is None:
        return
    line: list[tuple[str, str]] = []
    for _, token, value in lexer.get_tokens_unprocessed("\n".join([*lines, ""])):
        first, *others = value.split("\n")
        line.append((_style(token), first))
        for part in others:
            yield line
            line = [(_style(token), part)]


def _style(token: _TokenType) -> str:
    return next((style for kind, style in _TOKENS if token in kind), "")


def _lexer(path: bytes) -> Lexer | None:
    try:
        return get_lexer_for_filename(path.rpartition(b"/")[2].decode("utf-8", "replace"))
    except ClassNotFound:
        return None


def _sgr(style: str, text: str) -> str:
    return f"\x1b[{style}m{text}\x1b[m" if style and text else text
