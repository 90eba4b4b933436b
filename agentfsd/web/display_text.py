"""Format names, times and sizes for pages, and encode paths for addresses. This module looks at no file.

A path is text in which surrogates stand for bytes that are not UTF-8, as in Python. In an address it is percent-encoded byte by
byte, because a browser cannot hold such bytes.
"""

import re
import time
import unicodedata
from urllib.parse import parse_qsl, quote, unquote

_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)  # they turn the direction of writing
_IN_TEXT = (
    {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)}
    | {127: "\u2421"}
    | {code: f"\u27e8U+{code:04X}\u27e9" for code in (*range(0x80, 0xA0), *_BIDI)}
)
_IN_NAMES = _IN_TEXT | {9: "\\t", 10: "\\n", 0x2028: "\u27e8U+2028\u27e9", 0x2029: "\u27e8U+2029\u27e9"}

_STRAY_SPACES = re.compile(r"(?:^|(?<=/)) +| +(?=/|$)| {2,}")  # that a browser leaves out
_UNSEEN = ("Cf", "Co", "Cn", "Zl", "Zp")  # such as a space without width, or none that a font knows

_PLAIN = re.compile(r"[A-Za-z0-9_.~/-]*")  # what is not encoded anyway; most names are that, and directories are large
_AGES = ((60, "second"), (60, "minute"), (24, "hour"), (365, "day"))


def visible(name: str) -> str:
    """Return a name or path on one line, with characters escaped that a browser would interpret or that people cannot see."""
    return _escaped(_STRAY_SPACES.sub(lambda match: "\u2423" * len(match[0]), name))


def command_line(command: str) -> str:
    """Return a command on one line, escaped likewise; its blanks and line ends are single blanks."""
    return _escaped(" ".join(command.split()))


def _escaped(shown: str) -> str:
    if shown.isascii() and shown.isprintable():
        return shown
    shown = shown.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").translate(_IN_NAMES)
    return "".join(f"\u27e8U+{ord(char):04X}\u27e9" if unicodedata.category(char) in _UNSEEN else char for char in shown)


def readable(text: str) -> str:
    """Return the content of a file, escaped likewise. Lines and tabs stay."""
    return text.translate(_IN_TEXT)


def key(path: str) -> str:
    """Encode a path for an address."""
    if _PLAIN.fullmatch(path):
        return path
    return quote(path, safe="/", errors="surrogateescape")


def path_of(text: str) -> str:
    """Decode a path from an address."""
    return unquote(text, errors="surrogateescape")


def query(text: bytes) -> list[tuple[str, str]]:
    """Return the parameters of an address, with bytes that are not UTF-8 as surrogates."""
    return parse_qsl(text.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")


def size(count: int) -> str:
    """Format a number of bytes, such as "21.1 KiB"."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if round(amount, 1) < 1024:
            return f"{count} byte{'' if count == 1 else 's'}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def in_repository(path: bytes, sentence: str) -> str:
    """A sentence about a git repository, after the repository's path unless that is the root."""
    return visible(f"{path.decode('utf-8', 'surrogateescape')}: {sentence}" if path else sentence)


def plural(count: int, noun: str) -> str:
    """Format a number with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def clock(time_ns: int) -> str:
    """Format a time as local date and time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ns / 1e9))


def ago(time_ns: int) -> str:
    """Format how long ago a time was, in words."""
    amount = max(0, int(time.time() - time_ns / 1e9))
    if amount < 10:
        return "just now"
    for step, noun in _AGES:
        if amount < step:
            return f"{plural(amount, noun)} ago"
        amount //= step
    return f"{plural(amount, 'year')} ago"
