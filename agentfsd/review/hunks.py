"""The hunks of a changed file, and what the daemon is told about those that were chosen. It never asks anybody anything."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from agentfs_client import wire

WHOLE_FILE = 1_000_000  # lines of context, so that a patch has all of both versions
_CONTEXT = 3  # lines that are shown before and after what has changed
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_HEADING = re.compile(rb"[A-Za-z_$]")
_HEADING_WITHIN = 2_000  # lines above a hunk
_NO_END = b"\\ No newline at end of file\n"
_SYMLINK = 0o120000

Kind = Literal["whole", "rename", "mode", "lines"]


class Run(NamedTuple):
    """Neighbouring lines that differ. Lines count from 0."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int


class Hunk(NamedTuple):
    """What can be chosen or not: a whole file, its new name, its new mode, or some of its lines.

    Attributes:
        runs: The lines that differ, in order.
        edited: What a person has made of the old lines of the only run, in the place of the new ones.
    """

    kind: Kind
    runs: tuple[Run, ...] = ()
    edited: bytes | None = None


class Picks(NamedTuple):
    """What was chosen: paths, and of some of them only some lines."""

    paths: list[bytes]
    files: list[wire.PickedFile]

    def reversed(self) -> "Picks":
        """Return the same lines, where the new versions are the old ones. No hunk may have been edited."""
        return Picks(self.paths, [_reversed(file) for file in self.files])


class BadEditError(ValueError):
    """An edited hunk does not fit the file. The text says why."""


class ChangedFile:
    """A changed file with its hunks.

    Args:
        patch: The file's patch, with the whole file as context.

    Attributes:
        hunks: In the order of the file.
    """

    def __init__(self, patch: wire.FilePatch) -> None:
        self.patch = patch
        self.head, body = _parted(patch.patch)
        self._old, self._new, runs = _versions(body)
        self._runs = runs or []
        self.hunks = self._found(runs)

    @property
    def path(self) -> bytes:
        return self.patch.path_bytes

    @property
    def version(self) -> str:
        """A short text that is another one as soon as anything about the change is."""
        patch = self.patch
        seen = (patch.status, patch.old_path_bytes, patch.old_mode, patch.new_mode, patch.old_size, patch.new_size, patch.note)
        return hashlib.sha256(repr(seen).encode() + patch.patch).hexdigest()[:16]

    def heading(self, hunk: Hunk) -> bytes:
        """Return the line above a hunk that says what it is in, such as the first line of a function; empty if there is none.

        The rule is git's for files of no known language: the line begins with a letter, _ or $.
        """
        start = hunk.runs[0].old_start - _CONTEXT if hunk.runs else 0
        above = self._old[max(0, start - _HEADING_WITHIN) : max(0, start)]
        return next((line.strip() for line in reversed(above) if _HEADING.match(line)), b"")

    def _found(self, runs: list[Run] | None) -> list[Hunk]:
        patch = self.patch
        is_special = _SYMLINK in (patch.old_mode, patch.new_mode) or patch.patch.count(b"\ndiff --git ") > 0
        if patch.status not in ("M", "R") or patch.is_binary or is_special or runs is None:
            return [Hunk("whole")]
        hunks = [Hunk("rename")] if patch.status == "R" else []
        if patch.old_mode != patch.new_mode:
            hunks.append(Hunk("mode"))
        hunks += [Hunk("lines", tuple(group)) for group in _grouped(runs)]
        return hunks or [Hunk("whole")]

    def leave_out(self, target: "ChangedFile") -> None:
        """Leave out lines that a target has already. *target*: how this file differs from the target's."""
        if [hunk.kind for hunk in target.hunks] == ["whole"]:
            return
        there = [run for hunk in target.hunks for run in hunk.runs]
        left = [run for hunk in self.hunks for run in hunk.runs if any(_meet(run, other) for other in there)]
        self.hunks = [hunk for hunk in self.hunks if hunk.kind != "lines"]
        self.hunks += [Hunk("lines", tuple(group)) for group in _grouped(left)]

    def shown(self, hunk: Hunk) -> bytes:
        """Return a hunk as a patch shows it."""
        if hunk.kind == "whole":
            return self.patch.patch[len(self.head) :] if not self.patch.is_binary else b""
        if hunk.kind == "rename":
            return b"rename from %b\nrename to %b\n" % (self.patch.old_path_bytes, self.path)
        if hunk.kind == "mode":
            return b"old mode %o\nnew mode %o\n" % (self.patch.old_mode, self.patch.new_mode)
        first, last = hunk.runs[0], hunk.runs[-1]
        before = min(_CONTEXT, first.old_start)
        end = last.old_start + last.old_count
        after = min(_CONTEXT, len(self._old) - end)
        lines, at = list[bytes](), first.old_start - before
        for run in hunk.runs:
            lines += [b" " + line for line in self._old[at : run.old_start]]
            at = run.old_start + run.old_count
            lines += [b"-" + line for line in self._old[run.old_start : at]]
            lines += [b"+" + line for line in self._new[run.new_start : run.new_start + run.new_count]]
        lines += [b" " + line for line in self._old[end : end + after]]
        old_count = end + after - first.old_start + before
        new_count = last.new_start + last.new_count + after - first.new_start + before
        head = b"@@ -%d,%d +%d,%d @@\n" % (first.old_start - before + 1, old_count, first.new_start - before + 1, new_count)
        return head + b"".join(line if line.endswith(b"\n") else line + b"\n" + _NO_END for line in lines)

    @staticmethod
    def split(hunk: Hunk) -> list[Hunk]:
        """Return a hunk's parts: one for each place where lines differ."""
        return [Hunk("lines", (run,)) for run in hunk.runs]

    def edited(self, hunk: Hunk, text: bytes) -> Hunk:
        """Return a hunk as a person has edited it.

        Args:
            hunk: The hunk, which has lines.
            text: What shown() returned, edited. Lines that begin with # are left out.

        Raises:
            BadEditError: The old lines are not those of the file any more, or a line has no sign.
        """
        before, made = _edited_sides(text)
        first, last = hunk.runs[0], hunk.runs[-1]
        start = first.old_start - min(_CONTEXT, first.old_start)
        stop = min(last.old_start + last.old_count + _CONTEXT, len(self._old))
        old = self._old[start:stop]
        if [line.rstrip(b"\n") for line in before] != [line.rstrip(b"\n") for line in old]:
            raise BadEditError("the lines with a space or - are not those of the file any more")
        if stop == len(self._old) and old and not old[-1].endswith(b"\n") and made and before and made[-1] == before[-1]:
            made[-1] = old[-1]
        while old and made and old[0] == made[0]:
            old, made, start = old[1:], made[1:], start + 1
        while old and made and old[-1] == made[-1]:
            old, made = old[:-1], made[:-1]
        return Hunk("lines", (Run(start, len(old), first.new_start, 0),), b"".join(made))

    def pick(self, chosen: Sequence[Hunk], *, is_all: bool) -> Picks:
        """Return what to ask the daemon for. *is_all*: nothing of the file was left out."""
        kinds = {hunk.kind for hunk in chosen}
        if not chosen or (self.patch.status == "R" and "rename" not in kinds):
            return Picks([], [])
        paths = [path for path in (self.path, self.patch.old_path_bytes) if path]
        if "whole" in kinds:
            return Picks(paths, self._whole())
        if is_all and not any(hunk.edited is not None for hunk in chosen):
            chosen = [Hunk("lines", tuple(self._runs))]
        lines = [wire.PickedLines(**run._asdict(), text=hunk.edited) for hunk in chosen for run in hunk.runs]
        seen = (_sha256(self._old), _sha256(self._new)) if self._runs else (None, None)  # else the patch has no content
        file = wire.PickedFile(
            raw_path=self.path, raw_old_path=self.patch.old_path_bytes, lines=sorted(lines, key=lambda each: each.old_start),
            mode="mode" in kinds or is_all, old_sha256=seen[0], new_sha256=seen[1],
        )  # fmt: skip
        return Picks(paths, [file])

    def _whole(self) -> list[wire.PickedFile]:
        """Return which content of a whole file was seen, if that is known: not of binary files, symlinks and special files."""
        status, mode = self.patch.status, self.patch.new_mode
        if status == "D":
            return [wire.PickedFile(raw_path=self.path, whole=True, new_sha256="")]
        if status == "A" and mode and mode != _SYMLINK and self._new and not self.patch.is_binary:
            return [wire.PickedFile(raw_path=self.path, whole=True, new_sha256=_sha256(self._new))]
        return []


def _reversed(file: wire.PickedFile) -> wire.PickedFile:
    lines = [
        wire.PickedLines(old_start=each.new_start, old_count=each.new_count, new_start=each.old_start, new_count=each.old_count)
        for each in file.lines
    ]
    return wire.PickedFile(
        raw_path=file.raw_old_path or file.raw_path, raw_old_path=file.raw_path if file.raw_old_path else b"", lines=lines,
        mode=file.mode, whole=file.whole, old_sha256=file.new_sha256, new_sha256=file.old_sha256,
    )  # fmt: skip


def _edited_sides(text: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the old lines and the new ones of an edited hunk."""
    before, made = list[bytes](), list[bytes]()
    sign = b""
    for line in _lines_of(text):
        if line.startswith((b"#", b"@@")):
            continue
        if line.startswith(b"\\"):  # the line before has no line feed
            for side in [before] if sign == b"-" else [made] if sign == b"+" else [before, made]:
                side[-1:] = [side[-1].rstrip(b"\n")] if side else []
            continue
        sign = line[:1]
        if sign not in (b" ", b"-", b"+", b"\n"):
            raise BadEditError("each line begins with a space, - or +")
        content = line[1:] if sign != b"\n" else line
        before += [content] if sign != b"+" else []
        made += [content] if sign != b"-" else []
    return before, made


def _lines_of(text: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in text.split(b"\n")]
    return lines[:-1] if lines[-1] == b"\n" else lines


def may_be_directory(patch: wire.FilePatch) -> bool:
    """Tell whether one of the two versions is something that git does not store: its path may mean all that lies below it."""
    return patch.status not in ("A", "D") and not (patch.old_mode and patch.new_mode)


def joined(picks: Iterable[Picks]) -> Picks:
    """Return several picks as one."""
    paths, files = list[bytes](), list[wire.PickedFile]()
    for each in picks:
        paths += each.paths
        files += each.files
    return Picks(paths, files)


def _sha256(lines: list[bytes]) -> str:
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _parted(patch: bytes) -> tuple[bytes, bytes]:
    """Return a file's head and its hunks."""
    at = 0 if patch.startswith(b"@@ ") else patch.find(b"\n@@ ") + 1
    return (patch[:at], patch[at:]) if at or patch.startswith(b"@@ ") else (patch, b"")


def _versions(body: bytes) -> tuple[list[bytes], list[bytes], list[Run] | None]:
    """Return the lines of both versions, and where they differ; None if the patch does not have all lines."""
    lines = body.split(b"\n")
    head = _HUNK.match(lines[0])
    starts_late = head is not None and (int(head[1]) > 1 or int(head[3]) > 1)
    if starts_late or any(line.startswith(b"@") for line in lines[1:]):
        return [], [], None
    found = _Versions()
    for line in lines[1:-1]:
        found.add(line[:1], line[1:] + b"\n")
    return found.old, found.new, found.runs


class _Versions:
    """Both versions of a file, read from a patch that has all lines."""

    def __init__(self) -> None:
        self.old, self.new, self.runs = list[bytes](), list[bytes](), list[Run]()
        self._before = b" "  # the sign of the line before

    def add(self, sign: bytes, text: bytes) -> None:
        sides = {b"-": [self.old], b"+": [self.new]}
        if sign == b"\\":  # the line before has no line feed
            for side in sides.get(self._before, [self.old, self.new]):
                side[-1] = side[-1][:-1]
            return
        if sign != b" " and self._before == b" ":
            self.runs.append(Run(len(self.old), 0, len(self.new), 0))
        for side in sides.get(sign, [self.old, self.new]):
            side.append(text)
        if sign != b" ":
            run = self.runs[-1]
            self.runs[-1] = run._replace(old_count=len(self.old) - run.old_start, new_count=len(self.new) - run.new_start)
        self._before = sign


def _grouped(runs: Sequence[Run]) -> list[list[Run]]:
    """Group runs whose context would meet, as diff does."""
    groups: list[list[Run]] = []
    for run in runs:
        before = groups[-1][-1] if groups else None
        if before is not None and run.old_start - before.old_start - before.old_count <= 2 * _CONTEXT:
            groups[-1].append(run)
        else:
            groups.append([run])
    return groups


def _meet(run: Run, other: Run) -> bool:
    """Tell whether two runs are about the same lines of the new version."""
    return other.new_start <= run.new_start + run.new_count and run.new_start <= other.new_start + other.new_count
