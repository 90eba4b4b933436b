"""What differs between two states, as a page shows it: the list of changes, and one file side by side. It must never compare
anything itself: the daemon's patches say it all."""

import re
from collections.abc import Iterator

import msgspec

from agentfs_client import wire
from agentfsd.web.code import Line, coloured, marked, text_of
from agentfsd.web.names import key, plural, size, visible

WHOLE_FILE = 1_000_000  # lines of context

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
    return FileDiff(
        status=patch.status, key=key(path), path=visible(path) or ".", was=visible(was), added=max(0, patch.added),
        removed=max(0, patch.removed), hunks=hunks, notes=_notes(patch, has_lines=bool(hunks)),
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
    at = 0
    while at < len(lines):
        found = _HUNK.match(lines[at])
        at += 1
        if found is None:
            continue
        old, olds, new, news = (1 if number is None else int(number) for number in found.groups()[:4])
        body: list[tuple[str, str]] = []
        while (olds > 0 or news > 0) and at < len(lines):
            sign, text = lines[at][:1], lines[at][1:]
            olds, news = olds - (sign in " -"), news - (sign in " +")
            body.append((sign, text.removesuffix("\r")))
            at += 1
        while at < len(lines) and lines[at].startswith("\\"):
            at += 1  # no newline at the end
        yield Hunk(head=visible(found[5]), rows=_rows(path, [line for line in body if line[0] != "\\"], old, new))


def _rows(path: str, body: list[tuple[str, str]], old: int, new: int) -> list[Row]:
    was = iter(coloured(path, [_decoded(text) for sign, text in body if sign in " -"]))
    now = iter(coloured(path, [_decoded(text) for sign, text in body if sign in " +"]))
    rows: list[Row] = []
    gone: list[Row] = []
    for sign, _ in body:
        if sign == " ":
            gone = []
            rows.append(Row(old=old, new=new, was=next(was), now=next(now), same=True))
        elif sign == "-":
            rows.append(Row(old=old, was=next(was)))
            gone.append(rows[-1])
        elif gone:
            _pair(gone.pop(0), new, next(now))
        else:
            rows.append(Row(new=new, now=next(now)))
        old, new = old + (sign in " -"), new + (sign in " +")
    return rows


def _decoded(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _pair(row: Row, number: int, now: Line) -> None:
    """A removed line and the one that came in its place; what differs within is marked."""
    assert row.was is not None
    old, new = text_of(row.was), text_of(now)
    before = _common(old, new)
    after = _common(old[before:][::-1], new[before:][::-1])
    if before + after > min(len(old), len(new)) / 3:  # else they have nothing to do with each other
        row.was, now = marked(row.was, before, len(old) - after), marked(now, before, len(new) - after)
    row.new, row.now = number, now


def _common(one: str, other: str) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


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
