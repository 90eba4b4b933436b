"""What differs between two states, as a page shows it: the list of changes, and one file side by side. It must never compare
anything itself: the daemon's patches say it all."""

import re
from collections.abc import Iterator
from itertools import groupby

import msgspec

from agentfs_client import wire
from agentfsd.web.display_text import key, plural, size, visible
from agentfsd.web.highlighting import Line, coloured, marked, text_of

WHOLE_FILE = 1_000_000  # lines of context
MAX_LINES = 5_000  # of a difference that are shown
MAX_PAIRS_TRIED = 10_000  # of removed and added lines in one place

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)")


class ChangeRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``status`` as in wire.Change. ``key`` is the path for addresses, ``path`` for people; ``was``: where it was before."""

    status: str
    key: str
    path: str
    was: str = ""
    was_key: str = ""
    note: str = ""


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line on each side, or on one; the numbers count from 1, 0 for no line. ``same``: nothing changed here."""

    old: int = 0
    new: int = 0
    was: Line | None = None
    now: Line | None = None
    same: bool = False


class Hunk(msgspec.Struct, kw_only=True):
    head: str
    rows: list[Row]


class FileDiff(msgspec.Struct, kw_only=True):
    """One file side by side; ``notes``: what lines cannot say, in sentences."""

    status: str
    key: str
    path: str
    was: str
    added: int
    removed: int
    hunks: list[Hunk]
    notes: list[str]


def change_rows(found: list[wire.Change]) -> list[ChangeRow]:
    return [_change_row(change) for change in found]


def _change_row(change: wire.Change) -> ChangeRow:
    path, was = (each.decode("utf-8", "surrogateescape") for each in (change.path_bytes, change.old_path_bytes))
    notes = ["the real file changed since"] if change.lower_moved else []
    if change.status == "D" or set(change.what) - {"content"}:
        notes += [what for what in change.what if what != "content"]
    return ChangeRow(
        status=change.status, key=key(path), path=visible(path) or ".", was=visible(was), was_key=key(was), note=", ".join(notes)
    )


def file_diff(patch: wire.FilePatch) -> FileDiff:
    path, was = (each.decode("utf-8", "surrogateescape") for each in (patch.path_bytes, patch.old_path_bytes))
    hunks = list(_hunks(path, patch.patch)) if not patch.is_binary else []
    notes = _notes(patch, has_lines=bool(hunks))
    if sum(len(hunk.rows) for hunk in hunks) >= MAX_LINES:
        notes.append(f"The difference is long; shown are its first {MAX_LINES:,} lines.")
    return FileDiff(
        status=patch.status, key=key(path), path=visible(path) or ".", was=visible(was), added=max(0, patch.added),
        removed=max(0, patch.removed), hunks=hunks, notes=notes,
    )  # fmt: skip


def _notes(patch: wire.FilePatch, *, has_lines: bool) -> list[str]:
    notes = []
    if patch.is_binary:
        before, after = (size(count) if count >= 0 else "nothing" for count in (patch.old_size, patch.new_size))
        notes.append(f"Its content is no text, or too large to be compared by lines: {before} before, {after} now.")
    if patch.old_mode and patch.new_mode and patch.old_mode != patch.new_mode:
        notes.append(f"Its mode was {patch.old_mode:o} and is {patch.new_mode:o} now.")
    if patch.note:
        notes.append(f"Beyond its lines: {patch.note}.")
    if patch.lower_moved:
        notes.append("The real file has changed since this branch changed its own.")
    if not notes and not has_lines:
        notes.append("An empty file." if patch.status in "AD" else "The content is the same on both sides.")
    return notes


def _hunks(path: str, patch: bytes) -> Iterator[Hunk]:
    lines = patch.decode("utf-8", "surrogateescape").split("\n")
    at = shown = 0
    while at < len(lines) and shown < MAX_LINES:
        found = _HUNK.match(lines[at])
        at += 1
        if found is None:
            continue
        old, olds, new, news = (1 if number is None else int(number) for number in found.groups()[:4])
        body: list[tuple[str, str]] = []
        while (olds > 0 or news > 0) and at < len(lines):
            sign, text = lines[at][:1], lines[at][1:]
            at += 1
            olds, news = olds - (sign in " -"), news - (sign in " +")
            if sign != "\\" and shown < MAX_LINES:  # that is: no newline at the end
                body.append((sign, text.removesuffix("\r")))
                shown += 1
        yield Hunk(head=visible(found[5]), rows=_rows(path, body, old, new))


def _rows(path: str, body: list[tuple[str, str]], old: int, new: int) -> list[Row]:
    """*body*: signs and texts of a hunk; *old* and *new*: the numbers of its first lines."""
    was = iter(coloured(path, [_decoded(text) for sign, text in body if sign in " -"]))
    now = iter(coloured(path, [_decoded(text) for sign, text in body if sign in " +"]))
    rows: list[Row] = []
    for is_same, group in groupby(body, key=lambda line: line[0] == " "):
        signs = [sign for sign, _ in group]
        if is_same:
            rows += [Row(old=old + at, new=new + at, was=next(was), now=next(now), same=True) for at in range(len(signs))]
            old, new = old + len(signs), new + len(signs)
            continue
        gone = [next(was) for _ in range(signs.count("-"))]
        came = [next(now) for _ in range(signs.count("+"))]
        rows += [
            _row(gone, came, left, right, old, new) for left, right in align(list(map(text_of, gone)), list(map(text_of, came)))
        ]
        old, new = old + len(gone), new + len(came)
    return rows


def _row(gone: list[Line], came: list[Line], left: int | None, right: int | None, old: int, new: int) -> Row:
    if left is None or right is None:
        row = Row() if left is None else Row(old=old + left, was=gone[left])
        return row if right is None else msgspec.structs.replace(row, new=new + right, now=came[right])
    was, now = gone[left], came[right]
    before, after = _shared(text_of(was), text_of(now))
    if _is_similar(text_of(was), text_of(now)):
        was = marked(was, before, len(text_of(was)) - after)
        now = marked(now, before, len(text_of(now)) - after)
    return Row(old=old + left, new=new + right, was=was, now=now)


def _decoded(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def align(gone: list[str], came: list[str]) -> Iterator[tuple[int | None, int | None]]:
    """Which removed and which added line stand side by side, by index: similar ones, and between those whatever comes next."""
    left = right = 0
    for low, high in [*_anchors(gone, came), (len(gone), len(came))]:
        while left < low or right < high:
            yield left if left < low else None, right if right < high else None
            left, right = left + (left < low), right + (right < high)
        if low < len(gone) and high < len(came):
            yield low, high
            left, right = low + 1, high + 1


def _anchors(gone: list[str], came: list[str]) -> list[tuple[int, int]]:
    """As many pairs of similar lines as can be had in order."""
    if len(gone) * len(came) > MAX_PAIRS_TRIED:
        return []
    best = [[0] * (len(came) + 1) for _ in range(len(gone) + 1)]
    similar = [[_is_similar(was, now) for now in came] for was in gone]
    for left in reversed(range(len(gone))):
        for right in reversed(range(len(came))):
            skipped = max(best[left + 1][right], best[left][right + 1])
            best[left][right] = max(skipped, best[left + 1][right + 1] + 1) if similar[left][right] else skipped
    found, left, right = [], 0, 0
    while left < len(gone) and right < len(came):
        if similar[left][right] and best[left][right] == best[left + 1][right + 1] + 1:
            found.append((left, right))
            left, right = left + 1, right + 1
        elif best[left + 1][right] >= best[left][right + 1]:
            left += 1
        else:
            right += 1
    return found


def _is_similar(was: str, now: str) -> bool:
    """Whether one was made from the other, as far as a person sees: leading blanks do not count."""
    was, now = was.strip(), now.strip()
    return 2 * sum(_shared(was, now)) > max(len(was), len(now)) > 0


def _shared(was: str, now: str) -> tuple[int, int]:
    """How many characters both begin with, and how many of the rest both end with."""
    before = _common(was, now)
    return before, _common(was[before:][::-1], now[before:][::-1])


def _common(one: str, other: str) -> int:
    return next(
        (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), min(len(one), len(other))
    )


def summary(found: list[wire.Change]) -> dict[str, int]:
    """How many were added, modified (in any way, renamed too) and deleted."""
    counts = {"added": 0, "modified": 0, "deleted": 0}
    for change in found:
        counts[{"A": "added", "D": "deleted"}.get(change.status, "modified")] += 1
    return counts


def in_words(found: list[wire.Change]) -> str:
    """Such as "2 files added, 1 changed"."""
    counts = summary(found)
    parts = [f"{plural(count, 'path')} {word}" for word, count in counts.items() if count]
    return ", ".join(parts) or "nothing"
