"""The command `top`, which shows what each agent does, and the daemon's work for each process or by operation."""

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
from agentfsd.cli.command_base import client, mount_option, plain
from agentfsd.cli.output import printing, terminal_keys
from agentfsd.control import status_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_ORDERS = ("busy", "requests", "read", "written", "name")
_COMMANDS = 3  # that are shown of a branch
_LINES = 20  # processes shown where the output is no terminal
_HEADERS, _SHARE, _LEAST = 6, 3, 3  # lines of headers; the share of the rest for each of the first two tables; their least rows
_FIRST_S, _LOOK_S = 0.3, 0.1


@click.command()
@mount_option
@click.option("--interval", metavar="SECONDS", type=click.FloatRange(0.1, 60), default=2.0, show_default=True,
              help="How long each measurement takes.")  # fmt: skip
@click.option("--once", is_flag=True, help="Measure once, then end (the default where the output is no terminal).")
@click.option(
    "--sort", "order", type=click.Choice(_ORDERS), default="busy", show_default=True, help="The order of the processes."
)
@click.option("--operations", is_flag=True, help="Show the daemon's work by operation and by branch instead of the agents.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object on a line for each measurement.")
def top(named: str | None, interval: float, once: bool, order: str, operations: bool, as_json: bool) -> None:
    """Show what each agent is doing, and the load of each process.

    The first table shows each branch, the one that changed last first: the commands in it, how many changes it has, which file
    was changed last, and how long ago. "shared" counts the paths that other branches have changed, too, and after a "!" those
    at which a merge would conflict; `agentfsd status --overlaps` lists them. The second table shows requests and bytes of each
    process. Keys: q quits, s changes the
    order, o shows the daemon's work by operation and by branch, and the agents again.

    "busy" is the share of the time in which a process waits for requests; over several processes it can exceed 100%. A process
    without a number is the kernel, or has ended. Requests that the kernel answers from its caches, and data that programs read
    and write past the daemon, are not counted. --json prints measurements until you end it, unless you give --once.

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
            _say(daemon.top(interval), order, operations)
        else:
            _live(daemon, interval, order, operations)


def _print_json(daemon: ControlClient, interval: float, once: bool) -> None:
    while True:
        printing.as_json_line(plain(daemon.top(interval)))
        sys.stdout.flush()
        if once:
            return


def _say(reply: wire.TopReply, order: str, operations: bool) -> None:
    printing.say(_headline(reply))
    printing.say()
    if operations:
        printing.table(_OPERATIONS, _operations(reply))
        printing.say()
        printing.table(_BRANCHES, _branches(reply))
    else:
        printing.table(_AGENTS, _agents(reply))
    printing.say()
    printing.table(_PROCESSES, _processes(reply, order)[:_LINES])


def _live(daemon: ControlClient, interval: float, order: str, operations: bool) -> None:
    """Show measurements until q or Ctrl-C. Another thread asks the daemon, so that keys work at once."""
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
    shown: wire.TopReply | None = None
    with terminal_keys.unbuffered() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while (key := pressed(_LOOK_S)) != "q":
            with contextlib.suppress(queue.Empty):
                came = pictures.get_nowait()
                if isinstance(came, Exception):
                    raise came
                shown, key = came, key or "new"
            if key == "s":
                order = _ORDERS[(_ORDERS.index(order) + 1) % len(_ORDERS)]
            operations ^= key == "o"
            if key and shown is not None:
                live.update(_picture(shown, order, operations, console.width, console.height), refresh=True)


def _picture(reply: wire.TopReply, order: str, by_operation: bool, width: int, height: int) -> "RenderableType":
    """Render the first rows of each table, as many as fit on the screen."""
    from rich.console import Group
    from rich.text import Text

    headline = Text(_headline(reply), style="bold")
    room = height - _HEADERS - 1 - len(headline.plain) // width
    above = max(_LEAST, room // _SHARE)

    def table(headers: tuple[str, ...], rows: list[list[str]], most: int, spare: tuple[str, ...]) -> "RenderableType":
        if len(rows) > most:
            rest = len(rows) - most + 1
            rows = [*rows[: most - 1], [f"+{rest}", *[""] * (len(headers) - 1)]]
        fitted = status_text.fitting([list(headers), *rows], width, spare)
        return printing.grid(fitted[0], fitted[1:], cut=True)

    if by_operation:
        operations, branches = _operations(reply), _busiest(_branches(reply))
        shown = min(len(operations), above) + min(len(branches), above)
        tables = [table(_OPERATIONS, operations, above, ("p50", "longest")), Text()]
        tables += [table(_BRANCHES, branches, above, ("read", "written")), Text()]
    else:
        agents = _agents(reply)
        shown = min(len(agents), 2 * above)
        tables = [table(_AGENTS, agents, 2 * above, ("commands", "processes", "shared", "changes")), Text()]
    other = "agents" if by_operation else "operations"
    return Group(
        headline, *tables,
        table(_PROCESSES, _processes(reply, order), max(_LEAST, room - shown), ("read", "written", "requests/s", "pid")),
        Text(f"q ends this, s sorts (by {order}), o shows {other}; {reply.span_ns / 1e9:.1f} s", style="dim", no_wrap=True),
    )  # fmt: skip


def _headline(reply: wire.TopReply) -> str:
    seconds = reply.span_ns / 1e9
    count = sum(load.count for load in reply.operations)
    busy = sum(load.busy_ns for load in reply.processes) / reply.span_ns
    return (
        f"{count / seconds:.0f} requests/s, {_rate(reply.read_bytes, seconds)} read, "
        f"{_rate(reply.written_bytes, seconds)} written, busy {busy:.0%}, late {reply.lag_ns / 1e6:.1f} ms"
    )


_AGENTS = ("branch", "commands", "processes", "changes", "shared", "last file", "idle")
_OPERATIONS = ("operation", "requests/s", "p50", "p99", "longest")
_BRANCHES = ("branch", "requests/s", "read", "written", "busy")
_PROCESSES = ("pid", "command", "branch", "requests/s", "read", "written", "busy")


def _agents(reply: wire.TopReply) -> list[list[str]]:
    now_ns = time.time_ns()
    return [
        [
            agent.branch,
            _listed(agent.commands) or "-",
            str(agent.processes) if agent.processes else "-",
            f"{'' if agent.counted else '~'}{agent.changed}",
            status_text.overlaps(agent.overlaps, agent.conflicts) or "-",
            agent.last_path or "-",
            status_text.span(now_ns - agent.changed_ns) if agent.changed_ns else "-",
        ]
        for agent in reply.agents
    ]


def _listed(commands: list[str]) -> str:
    more = ["..."] if len(commands) > _COMMANDS else []
    return printing.printable(", ".join([*commands[:_COMMANDS], *more]))


def _operations(reply: wire.TopReply) -> list[list[str]]:
    seconds = reply.span_ns / 1e9
    return [
        [load.name, f"{load.count / seconds:.0f}", _time(load.p50_ns), _time(load.p99_ns), _time(load.longest_ns)]
        for load in reply.operations
    ]


def _branches(reply: wire.TopReply) -> list[list[str]]:
    by_branch: dict[str, list[wire.ProcessLoad]] = defaultdict(list)
    for process in reply.processes:
        by_branch[process.branch].append(process)
    rows = [[branch or "-", *_load(loads, reply.span_ns)] for branch, loads in by_branch.items()]
    return sorted(rows, key=lambda row: row[0])


def _busiest(branches: list[list[str]]) -> list[list[str]]:
    return sorted(branches, key=lambda row: -float(row[-1].rstrip("%")))


def _processes(reply: wire.TopReply, order: str) -> list[list[str]]:
    rank = {
        "busy": lambda process: -process.busy_ns, "requests": lambda process: -process.requests,
        "read": lambda process: -process.read_bytes, "written": lambda process: -process.written_bytes,
        "name": lambda process: process.command,
    }[order]  # fmt: skip
    return [
        [
            str(process.pid) if process.pid else "-",
            printing.printable(process.command) or "-",
            process.branch or "-",
            *_load([process], reply.span_ns),
        ]
        for process in sorted(reply.processes, key=rank)
    ]


def _load(loads: list[wire.ProcessLoad], span_ns: int) -> list[str]:
    seconds = span_ns / 1e9
    return [
        f"{sum(load.requests for load in loads) / seconds:.0f}",
        _rate(sum(load.read_bytes for load in loads), seconds),
        _rate(sum(load.written_bytes for load in loads), seconds),
        f"{sum(load.busy_ns for load in loads) / span_ns:.1%}",
    ]


def _rate(count: int, seconds: float) -> str:
    return f"{status_text.size(int(count / seconds))}/s"


def _time(ns: int) -> str:
    return f"{ns / 1e3:.0f} us" if ns < 10_000_000 else f"{ns / 1e6:.0f} ms"
