"""top, audit."""

import contextlib
import queue
import sys
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import click

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.cli import keys, output
from agentfsd.cli.common import Failure, client, json_option, mount_option, plain
from agentfsd.control import text
from agentfsd.core.settings import parse_age
from agentfsd.telemetry.trail import LOST

if TYPE_CHECKING:
    from rich.console import RenderableType

_ORDERS = ("busy", "requests", "read", "written", "name")
_LINES = 20  # processes without a terminal
_OVERHEAD_LINES = 8
_FOLLOW_EVERY_S = 0.5
_FIRST_S, _LOOK_S = 0.3, 0.1
_MOST_ENTRIES = 10_000


@click.command()
@mount_option
@click.option("--interval", metavar="SECONDS", type=click.FloatRange(0.1, 60), default=2.0, show_default=True,
              help="How long each picture is looked at.")  # fmt: skip
@click.option("--once", is_flag=True, help="One picture, then end; so it is where the output is no terminal.")
@click.option("--sort", "order", type=click.Choice(_ORDERS), default="busy", show_default=True, help="Of the processes.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object on a line, for each picture.")
def top(named: str | None, interval: float, once: bool, order: str, as_json: bool) -> None:
    """Show what the daemon is doing: requests by kind, branch and process, how long they take, bytes.

    Keys: q ends this, s sorts by something else. What the kernel answers from its caches, and what programs read and write
    past the daemon, is not seen here. --json goes on until it is ended, unless --once is given.

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
        output.as_json_line(plain(daemon.top(interval)))
        sys.stdout.flush()
        if once:
            return


def _say(found: wire.TopReply, order: str) -> None:
    output.say(_headline(found))
    output.say()
    output.table(_OPERATIONS, _operations(found))
    output.say()
    output.table(_BRANCHES, _branches(found))
    output.say()
    output.table(_PROCESSES, _processes(found, order)[:_LINES])


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
    with keys.unbuffered() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while (key := pressed(_LOOK_S)) != "q":
            with contextlib.suppress(queue.Empty):
                came = pictures.get_nowait()
                if isinstance(came, Exception):
                    raise came
                found, key = came, key or "new"
            if key == "s":
                order = _ORDERS[(_ORDERS.index(order) + 1) % len(_ORDERS)]
            if key and found is not None:
                live.update(_picture(found, order, console.height), refresh=True)


def _picture(found: wire.TopReply, order: str, height: int) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    operations, branches = _operations(found), _branches(found)
    room = max(3, height - len(operations) - len(branches) - _OVERHEAD_LINES)
    return Group(
        Text(_headline(found), style="bold"),
        output.grid(_OPERATIONS, operations), Text(),
        output.grid(_BRANCHES, branches), Text(),
        output.grid(_PROCESSES, _processes(found, order)[:room]),
        Text(f"q ends this, s sorts (by {order})", style="dim"),
    )  # fmt: skip


def _headline(found: wire.TopReply) -> str:
    seconds = found.span_ns / 1e9
    count = sum(one.count for one in found.operations)
    busy = sum(one.busy_ns for one in found.processes) / found.span_ns
    return (
        f"{count / seconds:.0f} requests/s, {_rate(found.read_bytes, seconds)} read, "
        f"{_rate(found.written_bytes, seconds)} written, busy {busy:.0%}, "
        f"waiting for the loop {found.lag_ns / 1e6:.1f} ms; {seconds:.1f} s looked at"
    )


_OPERATIONS = ("operation", "per second", "p50", "p99", "longest")
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


def _processes(found: wire.TopReply, order: str) -> list[list[str]]:
    rank = {
        "busy": lambda one: -one.busy_ns, "requests": lambda one: -one.requests, "read": lambda one: -one.read_bytes,
        "written": lambda one: -one.written_bytes, "name": lambda one: one.command,
    }[order]  # fmt: skip
    return [
        [str(one.pid) if one.pid else "-", output.printable(one.command) or "-", one.branch or "-", *_load([one], found.span_ns)]
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
    return f"{text.size(int(count / seconds))}/s"


def _time(ns: int) -> str:
    return f"{ns / 1e3:.0f} us" if ns < 10_000_000 else f"{ns / 1e6:.0f} ms"


@click.command()
@click.argument("branch", required=False)
@mount_option
@click.option("--since", metavar="AGE", help="Not older than this: 90 (seconds), 15m, 1h, 2d.")
@click.option("--pid", type=click.IntRange(min=1), help="Of that process.")
@click.option("--path", "pattern", metavar="GLOB", help="Of paths that match; a pattern without a slash is about base names.")
@click.option("--op", "kind", metavar="KIND", help="Of one kind: created, modified, deleted, renamed, snapshot, merge, ...")
@click.option("-n", "--limit", type=click.IntRange(1, _MOST_ENTRIES), default=1000, show_default=True,
              help="At most the last so many.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now on; Ctrl-C ends this.")
@json_option
def audit(
    branch: str | None, named: str | None, since: str | None, pid: int | None, pattern: str | None, kind: str | None, limit: int,
    follow: bool, as_json: bool,
) -> None:  # fmt: skip
    """Who changed what, in one branch or in all: when, which user and process, what, where.

    Entries are kept with the state, up to 16 MiB (`agentfsd policy set audit.max_bytes 64M`, `audit.enabled no`), across
    restarts; after `kill -9` of the daemon the last second may be missing. A file that is written all the time is one entry
    a second for each process. --json is one document; with --follow one object on a line.

    \b
    Example:
      agentfsd audit fix-1 --since 1h
      agentfsd audit --path 'src/**/*.c' --op deleted
      agentfsd audit fix-1 --follow --json
    """
    since_ns = time.time_ns() - int(parse_age(since) * 1e9) if since else 0
    with client(named) as daemon:

        def ask(after: int, most: int) -> list[wire.AuditEntry]:
            found = daemon.audit(
                branch, since_ns=since_ns, pid=pid or 0, path=pattern or "", kind=kind or "", after=after, limit=most
            )  # fmt: skip
            if not found.enabled:
                raise Failure("no audit trail is written", "`agentfsd policy set audit.enabled yes` begins one")
            return found.entries

        found = ask(0, limit)
        if as_json and not follow:
            output.as_json([plain(entry) for entry in found])
            return
        _show(found, as_json)
        last = found[-1].id if found else 0
        while follow:
            sys.stdout.flush()
            time.sleep(_FOLLOW_EVERY_S)
            found = ask(last, _MOST_ENTRIES if last else limit)
            _show(found, as_json)
            last = found[-1].id if found else last


def _show(entries: list[wire.AuditEntry], as_json: bool) -> None:
    for entry in entries:
        if as_json:
            output.as_json_line(plain(entry))
        else:
            output.say(_line(entry))


def _line(entry: wire.AuditEntry) -> str:
    from agentfsd.telemetry.audit import LOST  # here, or every command would load the daemon's event loop

    if entry.kind == LOST:
        return f"{output.when(entry.time_ns)}  ({entry.name} entries could not be kept)"
    process = f"{entry.pid} {output.printable(entry.command)}".rstrip() if entry.pid else "-"
    user = str(entry.uid) if entry.uid >= 0 else "-"
    path = output.printable(entry.path)
    subject = f"{output.printable(entry.old_path)} -> {path}" if entry.old_path else path or entry.name
    return f"{output.when(entry.time_ns)}  {user:<5} {process:<20} {entry.kind:<16} {entry.branch:<16} {subject}".rstrip()
