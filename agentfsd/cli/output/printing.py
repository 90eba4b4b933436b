"""How results and errors reach the user: tables on a terminal, aligned text elsewhere, JSON when asked.

It must never know where the results come from.
"""

import json
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from agentfsd.escape import printable as printable
from agentfsd.escape import quoted as quoted

if TYPE_CHECKING:
    from rich.table import Table

SHOWN_PATHS = 10


def say(text: str = "") -> None:
    """One line on standard output, whoever chose the words in it: what is not printable is escaped."""
    click.echo(printable(text).encode())


def say_ready(text: str) -> None:
    """Lines on standard output as they are: for text with colours or several lines, of which each part was escaped before."""
    click.echo(text.encode("utf-8", "surrogateescape"))


def note(text: str) -> None:
    """One line for the person at the keyboard, on standard error."""
    click.echo(f"agentfsd: {printable(text)}".encode(), err=True)


def detail(text: str) -> None:
    """A line below a note."""
    click.echo(f"  {printable(text)}".encode(), err=True)


def in_repository(path: bytes, sentence: str) -> str:
    """What was done with git, after the path of the repository unless that is the root."""
    return f"{quoted(path)}: {sentence}" if path else sentence


def fail(message: str, hint: str = "") -> None:
    """An error: one sentence, and what would be right."""
    note(message)
    if hint:
        detail(f"hint: {hint}")


def as_json(value: Any) -> None:
    """For programs: one JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=True))


def as_json_line(value: Any) -> None:
    """For programs that read on: one object on a line."""
    click.echo(json.dumps(value, ensure_ascii=True))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A rich table on a terminal, aligned columns under upper-case headers elsewhere."""
    if sys.stdout.isatty():
        _rich_table(headers, rows)
        return
    lines = [tuple(header.upper() for header in headers), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console

    Console().print(grid(headers, rows))


def grid(headers: Sequence[str], rows: Sequence[Sequence[str]], *, cut: bool = False) -> "Table":
    """The table for a terminal. *cut*: a row is one line, whatever is too long for that."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        made.add_column(header, overflow="ellipsis" if cut else "fold", no_wrap=cut)
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


def width() -> int:
    """Columns of the terminal; 0 where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def when(time_ns: int) -> str:
    """A point in time, local, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ns / 1e9))


def clock(time_ns: int) -> str:
    """The time of day, local, to the millisecond."""
    return f"{time.strftime('%H:%M:%S', time.localtime(time_ns // 10**9))}.{time_ns // 10**6 % 1000:03d}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"
