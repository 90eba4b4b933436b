"""log: the history of all branches, or of one."""

import click

from agentfs_client import wire
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, json_option, mount_option, plain
from agentfsd.cli.output import history_graph, printing
from agentfsd.control import status_text


@click.command()
@click.argument("ref", required=False, shell_complete=shell_completion.refs)
@mount_option
@json_option
def log(ref: str | None, named: str | None, as_json: bool) -> None:
    """The history: every snapshot and branch as a graph, newest first; with REF, what led to that.

    \b
    Example:
      agentfsd log
      agentfsd log fix-1
    """
    with client(named) as daemon:
        snapshots = daemon.log(ref) if ref or daemon.hello.bound else daemon.list_snapshots()[::-1]
        branches = [] if as_json else [daemon.show_branch()] if daemon.hello.bound else daemon.list_branches()
    if as_json:
        printing.as_json(plain(snapshots))
        return
    known = {snapshot.id for snapshot in snapshots}
    shown = [found for found in branches if found.name == ref or (ref is None and (found.changed or found.last in known))]
    for line in history_graph.draw(_nodes(snapshots, shown)):
        printing.say(line)


def _nodes(snapshots: list[wire.BranchSnapshot], branches: list[wire.Branch]) -> list[history_graph.GraphNode]:
    """Newest first, each before its parents; a branch's state now stands at the top of its history."""
    newest_branches = sorted(branches, key=lambda found: found.id, reverse=True)
    nodes = [history_graph.GraphNode(found.id, [found.last], _branch_text(found), "o") for found in newest_branches]
    waiting = {found.id: found for found in snapshots}
    children: dict[str, int] = {}
    for found in snapshots:
        for parent in _parents(found):
            children[parent] = children.get(parent, 0) + 1
    while waiting:
        free = [found for found in waiting.values() if not children.get(found.id)] or list(waiting.values())
        newest = max(free, key=lambda found: found.created_ns)
        del waiting[newest.id]
        for parent in _parents(newest):
            children[parent] = children.get(parent, 0) - 1
        nodes.append(history_graph.GraphNode(newest.id, _parents(newest), _snapshot_text(newest)))
    return nodes


def _parents(found: wire.BranchSnapshot) -> list[str]:
    """The one before it, and those that were merged; each once."""
    return list(dict.fromkeys((found.parent, *found.merged)))


def _branch_text(found: wire.Branch) -> str:
    return f"branch {found.name}: {printing.plural(found.changed, 'change')} since {found.base or 'the lower'}"


def _snapshot_text(found: wire.BranchSnapshot) -> str:
    by = f" by {found.author} ({found.author_pid})" if found.author else ""
    tag = f" [{printing.printable(found.tag)}]" if found.tag else ""
    amount = (
        f"{printing.plural(found.file_count, 'file')}, {status_text.size(found.bytes_changed)}" if found.file_count >= 0 else ""
    )
    return f"{found.name}{tag}  {printing.when(found.created_ns)}  {amount}{printing.printable(by)}"
