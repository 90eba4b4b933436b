"""Marks the words in which two versions of a line differ. It knows lines, not files."""

import re
from difflib import SequenceMatcher

from agentfsd.web.highlighting import Line, marked, text_of

_WORDS = re.compile(r"\w+|\s+|.")
_MOST_WORDS = 200  # of a line; in a longer one, all between its first and last difference is marked
_LEAST_SHARED = 0.3  # of the words: lines that share less are not versions of each other word by word


def marked_words(was: Line, now: Line) -> tuple[Line, Line]:
    """Mark what differs in two versions of a line."""
    before, after = text_of(was), text_of(now)
    one, other = _WORDS.findall(before), _WORDS.findall(after)
    if max(len(one), len(other)) > _MOST_WORDS:
        return _between(was, now, before, after)
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    if matcher.ratio() < _LEAST_SHARED:
        return _between(was, now, before, after)
    left, right = _starts(one), _starts(other)
    for kind, low, high, begin, end in matcher.get_opcodes():
        if kind != "equal":
            was, now = marked(was, left[low], left[high]), marked(now, right[begin], right[end])
    return was, now


def _between(was: Line, now: Line, before: str, after: str) -> tuple[Line, Line]:
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return marked(was, head, len(before) - tail), marked(now, head, len(after) - tail)


def _starts(words: list[str]) -> list[int]:
    """Return where each word begins, and the end of the last one."""
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word))
    return starts
