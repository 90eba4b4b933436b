"""Prepares differences for a page: the list of changes, and one file side by side.

It never compares anything itself; it reads the daemon's patches.
"""

import re
from collections.abc import Iterator
from itertools import groupby

import msgspec

from agentfs_client import wire
from agentfsd.web.display_text import key, plural, size, visible
from agentfsd.web.highlighting import Line, coloured, marked, text_of
from agentfsd.web.word_marks import marked_words

WHOLE_FILE = 1_000_000  # lines of context
MAX_LINES = 5_000  # lines of a difference that a page shows
MAX_PAIRS_TRIED = 10_000  # pairs of a removed and an added line that are compared in one place

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)")


class ChangeRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One change in the list.

    Attributes:
        status: See wire.Change.
        key: The path, encoded for addresses.
        path: The path, for people.
        was: The path before a rename, for people.
        executed: Why a program of the user would run the file.
    """

    status: str
    key: str
    path: str
    was: str = ""
    was_key: str = ""
    note: str = ""
    executed: str = ""


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line on each side, or on one side only. Numbers count from 1; 0: there is no line. ``same``: both are equal."""

    old: int = 0
    new: int = 0
    was: Line | None = None
    now: Line | None = None
    same: bool = False


class HunkRows(msgspec.Struct, kw_only=True):
    """A group of changed lines with the lines around them."""

    head: str
    rows: list[Row]


class FileDiff(msgspec.Struct, kw_only=True):
    """One file side by side. ``notes``: sentences about changes that lines cannot show."""

    status: str
    key: str
    path: str
    was: str
    added: int
    removed: int
    hunks: list[HunkRows]
    notes: list[str]


def change_rows(changes: list[wire.Change]) -> list[ChangeRow]:
    """Prepare the list of changes."""
    return [_change_row(change) for change in changes]


def _change_row(change: wire.Change) -> ChangeRow:
    path, was = (each.decode("utf-8", "surrogateescape") for each in (change.path_bytes, change.old_path_bytes))
    notes = ["the real file changed since"] if change.lower_moved else []
    if change.status == "D" or set(change.what) - {"content"}:
        notes += [aspect for aspect in change.what if aspect != "content"]
    return ChangeRow(
        status=change.status,
        key=key(path),
        path=visible(path) or ".",
        was=visible(was),
        was_key=key(was),
        note=", ".join(notes),
        executed=change.executed,
    )


def file_diff(patch: wire.FilePatch) -> FileDiff:
    """Prepare one file side by side."""
    path, was = (each.decode("utf-8", "surrogateescape") for each in (patch.path_bytes, patch.old_path_bytes))
    hunks = list(hunks_of(path, patch.patch)) if not patch.is_binary else []
    notes = notes_of(patch, has_lines=bool(hunks))
    if sum(len(hunk.rows) for hunk in hunks) >= MAX_LINES:
        notes.append(f"The difference is long; shown are its first {MAX_LINES:,} lines.")
    return FileDiff(
        status=patch.status, key=key(path), path=visible(path) or ".", was=visible(was), added=max(0, patch.added),
        removed=max(0, patch.removed), hunks=hunks, notes=notes,
    )  # fmt: skip


def notes_of(patch: wire.FilePatch, *, has_lines: bool) -> list[str]:
    """Say what the lines of a patch cannot, in sentences. *has_lines*: it has some."""
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


def hunks_of(path: str, patch: bytes) -> Iterator[HunkRows]:
    """Prepare the hunks of one file's *patch*, MAX_LINES lines at most. The name in *path* says which language they are in."""
    lines = patch.decode("utf-8", "surrogateescape").split("\n")
    at = shown = 0
    while at < len(lines) and shown < MAX_LINES:
        head = _HUNK.match(lines[at])
        at += 1
        if head is None:
            continue
        old, olds, new, news = (1 if number is None else int(number) for number in head.groups()[:4])
        body: list[tuple[str, str]] = []
        while (olds > 0 or news > 0) and at < len(lines):
            sign, text = lines[at][:1], lines[at][1:]
            at += 1
            olds, news = olds - (sign in " -"), news - (sign in " +")
            if sign != "\\" and shown < MAX_LINES:  # a backslash begins "No newline at end of file"
                body.append((sign, text.removesuffix("\r")))
                shown += 1
        yield HunkRows(head=heading(head[5]), rows=_rows(path, body, old, new))


def heading(text: str) -> str:
    """Prepare the line that says what a hunk is in. Its indentation is left out, as it is no name with blanks of its own."""
    return visible(" ".join(text.split()))


def _rows(path: str, body: list[tuple[str, str]], old: int, new: int) -> list[Row]:
    """Make the rows of a hunk. *body*: its signs and texts; *old* and *new*: the numbers of its first lines."""
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
    if _is_similar(text_of(was), text_of(now)):
        was, now = marked_words(was, now)
    return Row(old=old + left, new=new + right, was=was, now=now)


def marked_against(base: list[Line], side: list[Line]) -> list[Line]:
    """Mark in the lines of *side* what differs from the lines of *base*."""
    made: list[Line] = []
    texts = list(map(text_of, base))
    for left, right in align(texts, list(map(text_of, side))):
        if right is None:
            continue
        text = text_of(side[right])
        if left is None or not _is_similar(texts[left], text):
            made.append(marked(side[right], 0, len(text)))
        elif texts[left] == text:
            made.append(side[right])
        else:
            made.append(marked_words(base[left], side[right])[1])
    return made


def _decoded(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def align(gone: list[str], came: list[str]) -> Iterator[tuple[int | None, int | None]]:
    """Pair removed with added lines, by index: similar lines first, then those between them in order."""
    left = right = 0
    for low, high in [*_anchors(gone, came), (len(gone), len(came))]:
        while left < low or right < high:
            yield left if left < low else None, right if right < high else None
            left, right = left + (left < low), right + (right < high)
        if low < len(gone) and high < len(came):
            yield low, high
            left, right = low + 1, high + 1


def _anchors(gone: list[str], came: list[str]) -> list[tuple[int, int]]:
    """Return pairs of similar lines, in order, as many as possible."""
    if len(gone) * len(came) > MAX_PAIRS_TRIED:
        return []
    best = [[0] * (len(came) + 1) for _ in range(len(gone) + 1)]
    similar = [[_is_similar(was, now) for now in came] for was in gone]
    for left in reversed(range(len(gone))):
        for right in reversed(range(len(came))):
            skipped = max(best[left + 1][right], best[left][right + 1])
            best[left][right] = max(skipped, best[left + 1][right + 1] + 1) if similar[left][right] else skipped
    anchors, left, right = [], 0, 0
    while left < len(gone) and right < len(came):
        if similar[left][right] and best[left][right] == best[left + 1][right + 1] + 1:
            anchors.append((left, right))
            left, right = left + 1, right + 1
        elif best[left + 1][right] >= best[left][right + 1]:
            left += 1
        else:
            right += 1
    return anchors


def _is_similar(was: str, now: str) -> bool:
    """Say whether two lines look like versions of one line to a person; leading blanks do not count."""
    was, now = was.strip(), now.strip()
    return 2 * sum(_shared(was, now)) > max(len(was), len(now)) > 0


def _shared(was: str, now: str) -> tuple[int, int]:
    """Return the length of the common beginning, and of the common end of the rest."""
    before = _common(was, now)
    return before, _common(was[before:][::-1], now[before:][::-1])


def _common(one: str, other: str) -> int:
    return next(
        (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), min(len(one), len(other))
    )


def summary(changes: list[wire.Change]) -> dict[str, int]:
    """Count the added, modified (in any way, also renamed) and deleted paths."""
    counts = {"added": 0, "modified": 0, "deleted": 0}
    for change in changes:
        counts[{"A": "added", "D": "deleted"}.get(change.status, "modified")] += 1
    return counts


def in_words(changes: list[wire.Change]) -> str:
    """Say it in words, such as "3 changes (2 added, 1 modified)"."""
    parts = [f"{count:,} {word}" for word, count in summary(changes).items() if count]
    return f"{plural(len(changes), 'change')} ({', '.join(parts)})" if parts else "nothing"
