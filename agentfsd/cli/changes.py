"""diff, log, restore, discard."""

import click

from agentfs_client import wire
from agentfsd.cli import output
from agentfsd.cli.common import client, json_option, mount_option, plain
from agentfsd.cli.snapshots import show_snapshots
from agentfsd.control import text

_WORDS = {
    "A": "added", "M": "modified", "D": "deleted", "R": "renamed", "T": "type", "m": "mode", "x": "xattrs",
}  # fmt: skip


@click.command()
@click.argument("a", required=False)
@click.argument("b", required=False)
@click.option("--name-status", "form", flag_value="name-status", default=True, help="A letter and a path for each change.")
@click.option("--stat", "form", flag_value="stat", help="Sizes before and after, and a sum.")
@mount_option
@json_option
def diff(a: str | None, b: str | None, form: str, named: str | None, as_json: bool) -> None:
    """What a branch or snapshot changed in the lower; with two refs, what leads from A to B.

    A added, M modified, D deleted, R renamed, T another type, m only mode or owner, x only extended attributes.

    \b
    Example:
      agentfsd diff fix-1
      agentfsd diff fix-1 fix-2 --stat
    """
    with client(named) as daemon:
        found = daemon.diff(b=b, a=a) if b is not None else daemon.diff(b=a)
    if as_json:
        output.as_json(plain(found))
    elif form == "stat":
        _show_stat(found)
    else:
        for change in found:
            output.say(f"{change.status}\t{_shown_path(change)}{_moved(change)}")


def _shown_path(change: wire.Change) -> str:
    path = output.printable(change.path) or "."
    return f"{output.printable(change.old_path)} -> {path}" if change.old_path else path


def _moved(change: wire.Change) -> str:
    return "\t(the lower changed since)" if change.lower_moved else ""


def _show_stat(found: list[wire.Change]) -> None:
    rows = [(_WORDS[c.status], _side(c.old_size), _side(c.new_size), _shown_path(c) + _moved(c)) for c in found]
    if rows:
        output.table(("change", "before", "after", "path"), rows)
    grown = sum(max(0, c.new_size) - max(0, c.old_size) for c in found)
    output.say(f"{output.plural(len(found), 'change')}, {'+' if grown >= 0 else ''}{text.size(grown)}")


def _side(size_bytes: int) -> str:
    return "-" if size_bytes < 0 else text.size(size_bytes)


@click.command()
@click.argument("ref", required=False)
@mount_option
@json_option
def log(ref: str | None, named: str | None, as_json: bool) -> None:
    """The snapshots in the history of a branch, newest first.

    \b
    Example:
      agentfsd log fix-1
    """
    with client(named) as daemon:
        show_snapshots(daemon.log(ref), as_json)


@click.command()
@click.argument("ref")
@click.option("-b", "--branch", metavar="BRANCH", help="Which branch; else the one you are in.")
@mount_option
def restore(ref: str, branch: str | None, named: str | None) -> None:
    """Put a branch back to a snapshot, also for the processes inside it. Instant.

    Files that are open keep the content they had; everything looked up from now on is the snapshot's.

    \b
    Example:
      agentfsd restore -b fix-1 good
    """
    with client(named) as daemon:
        target = branch or daemon.hello.branch
        daemon.restore(ref, branch)
    output.say(f"{target} is at {ref} again")


@click.command()
@click.argument("branch")
@mount_option
def discard(branch: str, named: str | None) -> None:
    """Throw a branch away with everything it changed (main: back to the bare lower).

    \b
    Example:
      agentfsd discard fix-1
    """
    with client(named) as daemon:
        daemon.discard(branch)
    output.say(f"discarded {branch}")
