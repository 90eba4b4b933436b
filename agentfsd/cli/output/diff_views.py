"""Shows a diff as a patch, or as a bar for each file. It never asks the daemon for anything."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence

import click

from agentfs_client import wire
from agentfsd.cli.output import pager, plain_lines, printing

_LETTERS = {"A": "green", "D": "red", "R": "cyan"}  # yellow for the others
_BAR_SHARE = 3 / 8  # of the width, at least, where names are long
_PIPE_COLUMNS = 80
_MOVED = "the lower changed since"


def wants_colour(choice: str) -> bool:
    """Decide about colour. *choice*: always, never, or auto (on a terminal with colours, unless NO_COLOR is set)."""
    if choice != "auto":
        return choice == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def changed(change: wire.Change, colour: bool) -> str:
    """Return the line of a change."""
    line = plain_lines.changed(change)
    return click.style(line[:1], fg=_LETTERS.get(change.status, "yellow")) + line[1:] if colour else line


def show_patches(patches: Sequence[wire.FilePatch], *, colour: bool, paged: bool) -> None:
    """Print patches: byte for byte to a program, as for `git apply`; through a pager to a terminal."""
    if colour or sys.stdout.isatty():
        pager.show(_patch_lines(patches, colour), wanted=paged)
        return
    for note in _notes(patches):
        sys.stdout.buffer.write(note.encode() + b"\n")
    for patch in patches:
        sys.stdout.buffer.write(patch.patch)
    sys.stdout.buffer.flush()


def show_words(patches: Sequence[wire.FilePatch], *, colour: bool, paged: bool) -> None:
    """Print patches by words, for people."""
    pager.show(_word_lines(patches, colour), wanted=paged)


def _word_lines(patches: Sequence[wire.FilePatch], colour: bool) -> Iterator[str]:
    from agentfsd.cli.output import patch_colours as paint
    from agentfsd.cli.output import word_diff  # imported here, as this loads libgit2

    yield from map(paint.note, _notes(patches)) if colour else _notes(patches)
    for patch in patches:
        yield from word_diff.lines(_without_binary(patch), paint.styled if colour else lambda _, text: paint.styled("", text))


def _notes(patches: Sequence[wire.FilePatch]) -> Iterator[str]:
    """Describe changes that a patch cannot hold, in lines that `git apply` skips."""
    for patch in patches:
        if patch.note:
            yield f"# not in this patch: {printing.quoted(patch.path_bytes) or '.'}: {printing.printable(patch.note)}"


def _patch_lines(patches: Sequence[wire.FilePatch], colour: bool) -> Iterator[str]:
    from agentfsd.cli.output import patch_colours as paint  # imported here, as loading pygments takes longer than the rest

    yield from map(paint.note, _notes(patches)) if colour else _notes(patches)
    for patch in patches:
        shown = _without_binary(patch) if sys.stdout.isatty() else patch.patch
        yield from paint.coloured(shown, patch.path_bytes) if colour else paint.plain(shown)


def _without_binary(patch: wire.FilePatch) -> bytes:
    """Return a patch for people: it says how large a binary file was and is, in the place of its encoded content."""
    head, found, _ = patch.patch.partition(b"GIT binary patch\n")
    return head + f"Binary file, {_bytes(patch)}\n".encode() if found and patch.is_binary else patch.patch


def show_stat(patches: Sequence[wire.FilePatch], *, colour: bool, paged: bool) -> None:
    """Print a line for each file, as wide as the terminal, and a sum."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_COLUMNS
    pager.show(_stat_lines(patches, columns, colour), wanted=paged)


def _stat_lines(patches: Sequence[wire.FilePatch], columns: int, colour: bool) -> Iterator[str]:
    if not patches:
        return
    names, counts = [_name(patch) for patch in patches], [_count(patch) for patch in patches]
    most = max(max(0, patch.added) + max(0, patch.removed) for patch in patches)
    count_width = max(map(len, counts))
    remarks = [_remark(patch) for patch in patches]
    sizes = [_bytes(patch) if patch.is_binary else "" for patch in patches]
    room = columns - count_width - len("  |  ")
    bars = min(most, int(columns * _BAR_SHARE))
    needed = max(len(remark) + (len(size) or bars) for size, remark in zip(sizes, remarks, strict=True))
    name_width = min(max(map(len, names)), max(10, room - needed))
    bar_width = max(2, min(most, room - name_width - max(map(len, remarks))))
    for patch, name, count, size, remark in zip(patches, names, counts, sizes, remarks, strict=True):
        bar = size or _bar(patch, most, bar_width, colour)
        yield f" {_cut(name, name_width):<{name_width}} | {count:>{count_width}} {bar}".rstrip() + remark
    yield _sum(patches)


def _name(patch: wire.FilePatch) -> str:
    name = printing.quoted(patch.path_bytes) or "."
    return f"{printing.quoted(patch.old_path_bytes)} => {name}" if patch.old_path_bytes else name


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else "..." + name[len(name) - width + 3 :]


def _count(patch: wire.FilePatch) -> str:
    return "Bin" if patch.is_binary else str(patch.added + patch.removed)


def _bytes(patch: wire.FilePatch) -> str:
    return f"{max(0, patch.old_size)} -> {max(0, patch.new_size)} bytes"


def _bar(patch: wire.FilePatch, most: int, width: int, colour: bool) -> str:
    added, removed = max(0, patch.added), max(0, patch.removed)
    if most > width:
        added, removed = (1 + count * (width - 2) // most if count else 0 for count in (added, removed))
    plus, minus = "+" * added, "-" * removed
    if not colour:
        return plus + minus
    from agentfsd.cli.output import patch_colours as paint

    return paint.added(plus) + paint.removed(minus)


def _remark(patch: wire.FilePatch) -> str:
    """Describe changes of mode and the like, which counts of lines do not show."""
    parts = [printing.printable(patch.note)] if patch.note else []
    if patch.old_mode and patch.new_mode and patch.old_mode != patch.new_mode:
        parts.append(f"mode {patch.old_mode:o} -> {patch.new_mode:o}")
    elif patch.new_mode and not patch.old_mode:
        parts.append("new")
    elif patch.old_mode and not patch.new_mode:
        parts.append("gone")
    if patch.lower_moved:
        parts.append(_MOVED)
    return f" ({', '.join(parts)})" if parts else ""


def _sum(patches: Sequence[wire.FilePatch]) -> str:
    added, removed = (
        sum(max(0, count) for count in counts) for counts in zip(*((p.added, p.removed) for p in patches), strict=True)
    )
    parts = [f" {printing.plural(len(patches), 'file')} changed"]
    if added or not removed:
        parts.append(f"{printing.plural(added, 'insertion')}(+)")
    if removed or not added:
        parts.append(f"{printing.plural(removed, 'deletion')}(-)")
    return ", ".join(parts)
