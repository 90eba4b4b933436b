"""Which words differ between two texts: found with libgit2, as git finds them."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pygit2

_WORD = re.compile(r"[^ \t\n\r\f\v]+")
_Span = tuple[int, int]


class WordChange(NamedTuple):
    """Words that differ, as places in both texts, in characters. A place without words is empty."""

    old: _Span
    new: _Span


def word_changes(old: str, new: str) -> Iterator[WordChange]:
    """Yield the changes that lead from one text to another, in order. White space separates words, and does not count itself."""
    before, after = ([match.span() for match in _WORD.finditer(text)] for text in (old, new))
    compared = pygit2.Patch.create_from(_one_a_line(old, before), _one_a_line(new, after), context_lines=0)
    for hunk in compared.hunks:
        yield WordChange(
            _place(before, hunk.old_start, hunk.old_lines), _place(after, hunk.new_start, hunk.new_lines)
        )  # fmt: skip


def _one_a_line(text: str, words: list[_Span]) -> bytes:
    return "".join(text[begin:end] + "\n" for begin, end in words).encode("utf-8", "surrogateescape")


def _place(words: list[_Span], start: int, count: int) -> _Span:
    """Return where words are, by number from 1 on. If there are none, *start* is the word before the place; 0: the beginning."""
    if count:
        return words[start - 1][0], words[start + count - 2][1]
    end = words[start - 1][1] if start else 0
    return end, end
