"""Notes as rows of a terminal: who said what about which place, wrapped. It asks nobody."""

import textwrap
from typing import NamedTuple

from agentfs_client import wire
from agentfsd.cli.output import note_lines, printing
from agentfsd.cli.output.patch_colours import visible
from agentfsd.escape import printable

_LEAST, _MOST = 16, 100  # columns of a note
_INDENT = 9  # that the diff puts before it


class NotedRow(NamedTuple):
    """A row of a note. ``is_head`` says who wrote what follows, and when."""

    text: str
    is_head: bool
    is_open: bool


def note_rows(note: wire.BranchNote, width: int) -> list[NotedRow]:
    """Return the rows of a note and its answers. *width*: columns of the screen."""
    within = min(_MOST, max(_LEAST, width - _INDENT))
    rows = [(head(note), True), *((line, False) for line in wrapped(note.text, within))]
    for answer in note.answers:
        rows.append((f"  {_said(answer.author, answer.created_ns)}", True))
        rows += [(f"  {line}", False) for line in wrapped(answer.text, within - 2)]
    return [NotedRow(text, is_head, not note.resolved_ns) for text, is_head in rows]


def head(note: wire.BranchNote) -> str:
    """Say the number of a note, who wrote it, and what became of it and its place."""
    lines = f"lines {note.now_line}-{note.now_last_line}" if note.now_last_line > note.now_line else ""
    about = [part for part in (lines, note_lines.state(note)) if part]
    return f"note {note.id}  {_said(note.author, note.created_ns)}{'  ' if about else ''}{', '.join(map(printable, about))}"


def _said(author: str, time_ns: int) -> str:
    return f"{printable(author)}, {printing.when(time_ns)}"


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text within some columns. What a terminal would obey is escaped."""
    lines = (visible(line.expandtabs(4)) for line in text.split("\n"))
    return [part for line in lines for part in textwrap.wrap(line, width, drop_whitespace=False) or [""]]
