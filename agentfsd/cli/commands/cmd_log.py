"""The command `log`, which draws the history of all branches, or of one."""

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
    """Show the history of branches and snapshots as a graph.

    The newest state comes first. With REF, it shows only the snapshots that led to REF. For a branch, it shows the number of
    changes as `branch list` does, or no number if counting by path takes long. For a snapshot, it shows what was stored since the
    previous snapshot.

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
    shown = [branch for branch in branches if branch.name == ref or (ref is None and _is_worth_a_line(branch, known))]
    for line in history_graph.draw(_nodes(snapshots, shown)):
        printing.say(line)


def _is_worth_a_line(branch: wire.Branch, known: set[str]) -> bool:
    return bool(branch.changed or branch.repositories) or branch.last in known


def _nodes(snapshots: list[wire.BranchSnapshot], branches: list[wire.Branch]) -> list[history_graph.GraphNode]:
    """Order the states for the graph: the newest first, each before its parents, each branch above its snapshots."""
    newest_branches = sorted(branches, key=lambda branch: branch.id, reverse=True)
    nodes = [history_graph.GraphNode(branch.id, [branch.last], _branch_text(branch), "o") for branch in newest_branches]
    waiting = {snapshot.id: snapshot for snapshot in snapshots}
    children: dict[str, int] = {}
    for snapshot in snapshots:
        for parent in _parents(snapshot):
            children[parent] = children.get(parent, 0) + 1
    while waiting:
        free = [snapshot for snapshot in waiting.values() if not children.get(snapshot.id)] or list(waiting.values())
        newest = max(free, key=lambda snapshot: snapshot.created_ns)
        del waiting[newest.id]
        for parent in _parents(newest):
            children[parent] = children.get(parent, 0) - 1
        nodes.append(history_graph.GraphNode(newest.id, _parents(newest), _snapshot_text(newest)))
    return nodes


def _parents(snapshot: wire.BranchSnapshot) -> list[str]:
    """Return the ids of the previous snapshot and of the merged ones, each once."""
    return list(dict.fromkeys((snapshot.parent, *snapshot.merged)))


def _branch_text(branch: wire.Branch) -> str:
    changes = printing.plural(branch.changed, "change") if branch.counted else "changes"
    git = "".join(f"; {status_text.in_repository(one.path_bytes, one.sentence)}" for one in branch.repositories)
    return f"branch {branch.name}: {changes} since {branch.base or 'the lower'}{git}"


def _snapshot_text(snapshot: wire.BranchSnapshot) -> str:
    by = f" by {snapshot.author} ({snapshot.author_pid})" if snapshot.author else ""
    tag = f" [{printing.printable(snapshot.tag)}]" if snapshot.tag else ""
    amount = (
        f"{printing.plural(snapshot.file_count, 'file')}, {status_text.size(snapshot.bytes_changed)}"
        if snapshot.file_count >= 0
        else ""
    )
    return f"{snapshot.name}{tag}  {printing.when(snapshot.created_ns)}  {amount}{printing.printable(by)}"
