"""top: what the daemon is busy with, by operation, branch and process."""

import contextlib
import queue
import sys
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import click

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.cli.command_base import client, mount_option, plain
from agentfsd.cli.output import printing, terminal_keys
from agentfsd.control import status_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_ORDERS = ("busy", "requests", "read", "written", "name")
_LINES = 20  # processes without a terminal
_HEADERS, _SHARE, _LEAST = 6, 3, 3  # lines that are no rows; of the rest the first two tables take a third at most
_FIRST_S, _LOOK_S = 0.3, 0.1


@click.command()
@mount_option
@click.option("--interval", metavar="SECONDS", type=click.FloatRange(0.1, 60), default=2.0, show_default=True,
              help="How long each picture is looked at.")  # fmt: skip
@click.option("--once", is_flag=True, help="One picture, then end; so it is where the output is no terminal.")
@click.option("--sort", "order", type=click.Choice(_ORDERS), default="busy", show_default=True, help="Of the processes.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object on a line, for each picture.")
def top(named: str | None, interval: float, once: bool, order: str, as_json: bool) -> None:
    """Show what the daemon is doing: requests by kind, branch and process, how long they take, bytes.

    Keys: q ends this, s sorts by something else. busy is the share of the time in which requests were waited for: those of
    several processes add up, so that it can exceed 100%. A process without a number is the kernel, or has ended. What the
    kernel answers from its caches, and what programs read and write past the daemon, is not seen here. --json goes on until it
    is ended, unless --once is given.

    \b
    Example:
      agentfsd top
      agentfsd top --once --interval 5
      agentfsd top --json | jq .operations
    """
    with client(named) as daemon:
        if as_json:
            _print_json(daemon, interval, once)
        elif once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            _say(daemon.top(interval), order)
        else:
            _live(daemon, interval, order)


def _print_json(daemon: ControlClient, interval: float, once: bool) -> None:
    while True:
        printing.as_json_line(plain(daemon.top(interval)))
        sys.stdout.flush()
        if once:
            return


def _say(found: wire.TopReply, order: str) -> None:
    printing.say(_headline(found))
    printing.say()
    printing.table(_OPERATIONS, _operations(found))
    printing.say()
    printing.table(_BRANCHES, _branches(found))
    printing.say()
    printing.table(_PROCESSES, _processes(found, order)[:_LINES])


def _live(daemon: ControlClient, interval: float, order: str) -> None:
    """Until q; Ctrl-C as ever. Another thread asks, so that a key is heard at once."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    pictures: queue.SimpleQueue[wire.TopReply | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            pictures.put(daemon.top(min(interval, _FIRST_S)))  # the first comes soon
            while True:
                pictures.put(daemon.top(interval))
        except Exception as exc:  # noqa: BLE001 - raised in the other thread
            pictures.put(exc)

    threading.Thread(target=ask, daemon=True).start()
    found: wire.TopReply | None = None
    with terminal_keys.unbuffered() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while (key := pressed(_LOOK_S)) != "q":
            with contextlib.suppress(queue.Empty):
                came = pictures.get_nowait()
                if isinstance(came, Exception):
                    raise came
                found, key = came, key or "new"
            if key == "s":
                order = _ORDERS[(_ORDERS.index(order) + 1) % len(_ORDERS)]
            if key and found is not None:
                live.update(_picture(found, order, console.width, console.height), refresh=True)


def _picture(found: wire.TopReply, order: str, width: int, height: int) -> "RenderableType":
    """No higher than the screen: of each table the first rows."""
    from rich.console import Group
    from rich.text import Text

    headline = Text(_headline(found), style="bold")
    operations, branches = _operations(found), _busiest(_branches(found))
    room = height - _HEADERS - 1 - len(headline.plain) // width
    above = max(_LEAST, room // _SHARE)
    shown = min(len(operations), above) + min(len(branches), above)

    def table(headers: tuple[str, ...], rows: list[list[str]], most: int, spare: tuple[str, ...]) -> "RenderableType":
        if len(rows) > most:
            rest = len(rows) - most + 1
            rows = [*rows[: most - 1], [f"+{rest}", *[""] * (len(headers) - 1)]]
        fitted = status_text.fitting([list(headers), *rows], width, spare)
        return printing.grid(fitted[0], fitted[1:], cut=True)

    return Group(
        headline,
        table(_OPERATIONS, operations, above, ("p50", "longest")), Text(),
        table(_BRANCHES, branches, above, ("read", "written")), Text(),
        table(_PROCESSES, _processes(found, order), max(_LEAST, room - shown), ("read", "written", "requests/s", "pid")),
        Text(f"q ends this, s sorts (by {order}); {found.span_ns / 1e9:.1f} s", style="dim", no_wrap=True),
    )  # fmt: skip


def _headline(found: wire.TopReply) -> str:
    seconds = found.span_ns / 1e9
    count = sum(one.count for one in found.operations)
    busy = sum(one.busy_ns for one in found.processes) / found.span_ns
    return (
        f"{count / seconds:.0f} requests/s, {_rate(found.read_bytes, seconds)} read, "
        f"{_rate(found.written_bytes, seconds)} written, busy {busy:.0%}, late {found.lag_ns / 1e6:.1f} ms"
    )


_OPERATIONS = ("operation", "requests/s", "p50", "p99", "longest")
_BRANCHES = ("branch", "requests/s", "read", "written", "busy")
_PROCESSES = ("pid", "command", "branch", "requests/s", "read", "written", "busy")


def _operations(found: wire.TopReply) -> list[list[str]]:
    seconds = found.span_ns / 1e9
    return [
        [one.name, f"{one.count / seconds:.0f}", _time(one.p50_ns), _time(one.p99_ns), _time(one.longest_ns)]
        for one in found.operations
    ]


def _branches(found: wire.TopReply) -> list[list[str]]:
    together: dict[str, list[wire.ProcessLoad]] = defaultdict(list)
    for one in found.processes:
        together[one.branch].append(one)
    rows = [[branch or "-", *_load(those, found.span_ns)] for branch, those in together.items()]
    return sorted(rows, key=lambda row: row[0])


def _busiest(branches: list[list[str]]) -> list[list[str]]:
    return sorted(branches, key=lambda row: -float(row[-1].rstrip("%")))


def _processes(found: wire.TopReply, order: str) -> list[list[str]]:
    rank = {
        "busy": lambda one: -one.busy_ns, "requests": lambda one: -one.requests, "read": lambda one: -one.read_bytes,
        "written": lambda one: -one.written_bytes, "name": lambda one: one.command,
    }[order]  # fmt: skip
    return [
        [
            str(one.pid) if one.pid else "-",
            printing.printable(one.command) or "-",
            one.branch or "-",
            *_load([one], found.span_ns),
        ]
        for one in sorted(found.processes, key=rank)
    ]


def _load(those: list[wire.ProcessLoad], span_ns: int) -> list[str]:
    seconds = span_ns / 1e9
    return [
        f"{sum(one.requests for one in those) / seconds:.0f}",
        _rate(sum(one.read_bytes for one in those), seconds),
        _rate(sum(one.written_bytes for one in those), seconds),
        f"{sum(one.busy_ns for one in those) / span_ns:.1%}",
    ]


def _rate(count: int, seconds: float) -> str:
    return f"{status_text.size(int(count / seconds))}/s"


def _time(ns: int) -> str:
    return f"{ns / 1e3:.0f} us" if ns < 10_000_000 else f"{ns / 1e6:.0f} ms"
