"""Prints results and errors: tables on a terminal, aligned text elsewhere, JSON on request.

It does not know where the results come from.
"""

import json
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from agentfsd.cli.output import plain_lines
from agentfsd.cli.output.plain_lines import renamed as renamed
from agentfsd.cli.output.plain_lines import when as when
from agentfsd.control import status_text
from agentfsd.control.status_text import plural as plural
from agentfsd.escape import printable as printable
from agentfsd.escape import quoted as quoted

if TYPE_CHECKING:
    from rich.table import Table

SHOWN_PATHS = 10


def say(text: str = "") -> None:
    """Print one line on standard output. Unprintable characters are escaped, so names of files may stand in it."""
    click.echo(printable(text).encode())


def say_ready(text: str) -> None:
    """Print text as it is, with colours or several lines. The caller has escaped its parts."""
    click.echo(text.encode("utf-8", "surrogateescape"))


def note(text: str) -> None:
    """Print one line for the user on standard error."""
    click.echo(plain_lines.noted(text).encode(), err=True)


def detail(text: str) -> None:
    """Print a line below a note."""
    click.echo(plain_lines.detailed(text).encode(), err=True)


def fail(message: str, hint: str = "") -> None:
    """Print an error: one sentence, and a hint what to do."""
    note(message)
    if hint:
        detail(f"hint: {hint}")


def as_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=True))


def as_json_line(value: Any) -> None:
    """Print one JSON object on a line, for a program that reads a stream."""
    click.echo(json.dumps(value, ensure_ascii=True))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, spare: Sequence[str] = ()) -> None:
    """Print a table: with rich on a terminal, as aligned columns elsewhere.

    On a terminal that is too narrow, the columns named *spare* are left out, in that order, as far as necessary.
    """
    if sys.stdout.isatty():
        head, *body = status_text.fitting([list(headers), *map(list, rows)], width(), spare)
        _rich_table(head, body)
        return
    for line in plain_lines.aligned(headers, rows):
        say(line)


def _rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console

    Console().print(grid(headers, rows))


def grid(headers: Sequence[str], rows: Sequence[Sequence[str]], *, cut: bool = False) -> "Table":
    """Make a table for a terminal. *cut*: shorten cells so that each row is one line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header.upper(), overflow="ellipsis" if cut else "fold", no_wrap=cut)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def width() -> int:
    """Return the columns of the terminal; 0 if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def clock(time_ns: int) -> str:
    """Format the local time of day, to the millisecond."""
    return f"{time.strftime('%H:%M:%S', time.localtime(time_ns // 10**9))}.{time_ns // 10**6 % 1000:03d}"
