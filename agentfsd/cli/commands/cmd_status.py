"""The command `status`, which shows mounts, their branches and the space they take."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import click

from agentfs_client import locate, registry, wire
from agentfsd.cli.command_base import (
    EXIT_REFUSED,
    PATIENCE_S,
    answering,
    client,
    converse,
    json_option,
    mount_option,
    plain,
    refusals,
)
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing
from agentfsd.control import status_text


@click.command()
@mount_option
@json_option
@click.option("--overlaps", is_flag=True, help="Show only which paths several branches have changed.")
def status(named: str | None, as_json: bool, overlaps: bool) -> None:
    """Show mounts, their branches and the processes in them.

    With --overlaps, it lists each path that more than one branch has changed, and whether merging them would conflict there. A
    rename counts as a removal. Files that git ignores are left out.

    \b
    Example:
      agentfsd status
      agentfsd status --json -m ~/work
      agentfsd status --overlaps
    """
    if overlaps:
        _show_overlaps(named, as_json)
        return
    if named is None and not os.environ.get("AGENTFS_MOUNT"):
        live = registry.live_daemons()
        if len(live) > 1 and mount_finder.around(os.getcwd(), live, revive=False) is None:
            _show_all(live, as_json)
            return
    reply = _status_of(lambda: mount_finder.find(named, revive=True))
    if as_json:
        printing.as_json(plain(reply))
    else:
        printing.say_ready(status_text.status(reply, printing.width()).rstrip("\n"))


def _show_overlaps(named: str | None, as_json: bool) -> None:
    with client(named) as daemon:
        reply = daemon.overlaps()
    if as_json:
        printing.as_json(plain(reply))
        return
    if reply.overlaps:
        printing.table(("conflict", "branches", "path"), [
            (_conflict(each), ", ".join(each.branches), printing.quoted(each.path_bytes)) for each in reply.overlaps
        ])  # fmt: skip
    else:
        printing.say("no path was changed in more than one branch")
    if not reply.complete:
        printing.note("some changes are yet to be compared: ask again")


def _conflict(overlap: wire.PathOverlap) -> str:
    if not overlap.conflict:
        return "-"
    between = f" ({', '.join(overlap.between)})" if len(overlap.branches) > len(overlap.between) else ""
    return f"{overlap.conflict}{between}"


def _status_of(find: Callable[[], locate.Mount]) -> wire.StatusReply:
    with answering(find().record):
        _, daemon = converse(find, PATIENCE_S)
        with daemon:
            return daemon.status()


def _show_all(live: list[registry.DaemonRecord], as_json: bool) -> None:
    """Show the status of each daemon that answers, then an error for each that does not, which makes the exit code 1."""
    with ThreadPoolExecutor(max_workers=len(live)) as threads:
        answers = list(threads.map(_answer_of, live))
    replies = [answer for answer in answers if not isinstance(answer, click.ClickException)]
    if as_json:
        printing.as_json([plain(reply) for reply in replies])
    elif replies:
        printing.say_ready("\n\n".join(status_text.status(reply, printing.width()).rstrip("\n") for reply in replies))
    silent = [answer for answer in answers if isinstance(answer, click.ClickException)]
    for failure in silent:
        failure.show()
    if silent:
        click.get_current_context().exit(EXIT_REFUSED)


def _answer_of(record: registry.DaemonRecord) -> wire.StatusReply | click.ClickException:
    try:
        with refusals():
            return _status_of(lambda: locate.Mount(record.mountpoint, record))
    except click.ClickException as exc:
        return exc
