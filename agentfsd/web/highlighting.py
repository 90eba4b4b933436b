"""Splits code into lines of coloured parts, which a page shows as text, never as HTML. It opens no file."""

import time
from functools import lru_cache

from pygments.lexer import Lexer
from pygments.lexers import find_lexer_class_for_filename
from pygments.token import Comment, Keyword, Name, Number, String, _TokenType

from agentfsd.web.display_text import readable, visible

MAX_COLOURED_CHARACTERS = 256 << 10  # longer text gets no colours: lexing it would take a second
MAX_LINE_CHARACTERS = 5_000
_MOST_S = 1.0  # of processor time: some lexers take minutes for a text that an agent has made for that

Part = tuple[str, str]  # colour (a letter, "" for none), text
Line = list[Part]

_COLOURS: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"), (Keyword, "k"), (String, "s"), (Number, "n"), (Name.Function, "f"), (Name.Class, "f"), (Name.Tag, "k"),
    (Name.Decorator, "d"), (Name.Builtin, "b"),
)  # fmt: skip


def coloured(path: str, lines: list[str]) -> list[Line]:
    """Colour each of *lines*, which contain no newlines. *path* decides about the language."""
    shown = [_short(readable(line)) for line in lines]
    lexer = _lexer(path) if sum(map(len, shown)) <= MAX_COLOURED_CHARACTERS else None
    if lexer is None:
        return [[("", line)] for line in shown]
    coloured_lines: list[Line] = []
    line: Line = []
    begun_s = time.thread_time()
    for _, token, value in lexer.get_tokens_unprocessed("\n".join([*shown, ""])):
        if time.thread_time() - begun_s > _MOST_S:
            break  # the other lines get no colours
        first, *others = value.split("\n")
        _add(line, _colour(token), first)
        for part in others:
            coloured_lines.append(line)
            line = []
            _add(line, _colour(token), part)
    return [*coloured_lines, *([[("", text)] for text in shown[len(coloured_lines) :]])]


def marked(line: Line, begin: int, end: int) -> Line:
    """Mark the characters from *begin* to *end* by an asterisk after their colour."""
    parts: Line = []
    at = 0
    for colour, text in line:
        for low, high, mark in ((0, begin, ""), (begin, end, "*"), (end, at + len(text), "")):
            _add(parts, colour + mark, text[max(0, low - at) : max(0, high - at)])
        at += len(text)
    return parts


def text_of(line: Line) -> str:
    """Return the text of a line without its colours."""
    return "".join(text for _, text in line)


def _add(line: Line, colour: str, text: str) -> None:
    if not text:
        return
    if line and line[-1][0] == colour:
        line[-1] = (colour, line[-1][1] + text)
    else:
        line.append((colour, text))


def _short(line: str) -> str:
    left = len(line) - MAX_LINE_CHARACTERS
    return line if left <= 0 else f"{line[:MAX_LINE_CHARACTERS]} \u2026 ({left:,} more characters)"


def _colour(token: _TokenType) -> str:
    return next((colour for kind, colour in _COLOURS if token in kind), "")


def _lexer(path: str) -> Lexer | None:
    found = _language(visible(path.rpartition("/")[2]))
    return found() if found is not None else None


@lru_cache(maxsize=1024)
def _language(name: str) -> type[Lexer] | None:
    """Find the language by the name of a file. That takes a millisecond, and a page may ask for each of some thousand pieces."""
    found: type[Lexer] | None = find_lexer_class_for_filename(name)
    return found
