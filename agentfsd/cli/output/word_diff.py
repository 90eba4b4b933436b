"""Shows a patch by words, as `git diff --word-diff` does: ``[-removed-]`` and ``{+added+}``. Nothing can apply it."""

import re
from collections.abc import Callable, Iterator

from agentfsd.history.word_changes import word_changes

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_HEAD, _HUNK_HEAD, _OLD, _NEW = "1", "36", "31", "32"  # SGR parameters: bold, cyan, red, green
_MARKS = {_OLD: ("[-", "-]"), _NEW: ("{+", "+}")}

Paint = Callable[[str, str], str]  # an SGR parameter or "", and a text


def lines(patch: bytes, paint: Paint) -> Iterator[str]:
    """Return the lines of one file's patch.

    Args:
        patch: The patch, with whole lines.
        paint: Makes a text with a colour what is shown.
    """
    text = patch.decode("utf-8", "surrogateescape")
    rest = iter(text.removesuffix("\n").split("\n")) if text else iter(())
    for line in rest:
        if line.startswith("\\"):  # that the last line has no end, which no word shows
            continue
        hunk = _HUNK.match(line)
        if hunk is None:
            yield paint(_HEAD, line)
            continue
        yield paint(_HUNK_HEAD, hunk[0]) + paint("", line[hunk.end() :])
        yield from _hunk(rest, paint, *(1 if count is None else int(count) for count in hunk.groups()))


def _hunk(rest: Iterator[str], paint: Paint, old: int, new: int) -> Iterator[str]:
    """Return the lines of a hunk, of which the patch has as many as its head says."""
    removed, added = [], []
    while old > 0 or new > 0:
        line = next(rest, None)
        if line is None:
            break
        sign, text = line[:1], line[1:]
        old, new = old - (sign in " -"), new - (sign in " +")
        if sign == "-":
            removed.append(text)
        elif sign == "+":
            added.append(text)
        elif sign == " ":
            yield from _changed(removed, added, paint)
            removed, added = [], []
            yield paint("", text)
    yield from _changed(removed, added, paint)


def _changed(removed: list[str], added: list[str], paint: Paint) -> Iterator[str]:
    """Return changed lines that follow each other, as one text with marks."""
    old, new = ("".join(f"{line}\n" for line in lines) for lines in (removed, added))
    if not new:
        shown, done = _marked(_OLD, old, paint), 0
    else:
        shown, done = "", 0
        for change in word_changes(old, new):
            shown += paint("", new[done : change.new[0]])
            shown += _marked(_OLD, old[slice(*change.old)], paint) + _marked(_NEW, new[slice(*change.new)], paint)
            done = change.new[1]
        shown += paint("", new[done:])
    if shown:
        yield from shown.removesuffix("\n").split("\n")


def _marked(style: str, text: str, paint: Paint) -> str:
    """Mark each line of a text."""
    begin, end = _MARKS[style]
    return "\n".join(paint(style, begin + line + end) if line else "" for line in text.split("\n"))
