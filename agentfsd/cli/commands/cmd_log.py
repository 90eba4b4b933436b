"""The command `log`, which draws the history of all branches, or of one."""

from collections import Counter

import click

from agentfs_client import wire
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, json_option, mount_option, plain
from agentfsd.cli.output import history_graph, printing, run_lines
from agentfsd.control import status_text
from agentfsd.review import branch_words

_LATEST_NS = 1 << 63


@click.command()
@click.argument("ref", required=False, shell_complete=shell_completion.refs)
@mount_option
@json_option
def log(ref: str | None, named: str | None, as_json: bool) -> None:
    """Show the history of branches and snapshots as a graph.

    Each state comes above those that it came from, and the newest branch first. With REF, it shows only the snapshots that led
    to REF. A line with $ is a command that `agentfsd run` ran, and how it ended.

    For a branch, it shows the number of changes as `branch list` does, or no number if counting by path takes long.
    For a snapshot, it shows what was stored since the previous snapshot.

    \b
    Example:
      agentfsd log
      agentfsd log fix-1
    """
    with client(named) as daemon:
        snapshots = daemon.log(ref) if ref or daemon.hello.bound else daemon.list_snapshots()[::-1]
        branches = [] if as_json else [daemon.show_branch()] if daemon.hello.bound else daemon.list_branches()
        shown = [branch for branch in branches if ref in (None, branch.name)]
        runs = daemon.list_runs() if shown else []
    if as_json:
        printing.as_json(plain(snapshots))
        return
    for line in history_graph.draw(_nodes(snapshots, shown, runs)):
        printing.say(line)


def _nodes(
    snapshots: list[wire.BranchSnapshot], branches: list[wire.Branch], runs: list[wire.RecordedRun]
) -> list[history_graph.GraphNode]:
    """Order the states for the graph: each before its parents, and right below it those that only it came from."""
    nodes = {one.id: history_graph.GraphNode(one.id, _parents(one), _snapshot_text(one)) for one in snapshots}
    nodes |= {one.id: history_graph.GraphNode(one.id, [one.last], _branch_text(one), "o") for one in branches}
    for branch in branches:
        taken = sorted((one for one in snapshots if one.branch == branch.name), key=lambda one: one.created_ns)
        line = [*((one.created_ns, one.id) for one in taken), (_LATEST_NS, branch.id)]
        _insert(nodes, line, [run for run in runs if run.branch_id == branch.id])
    awaited = Counter(parent for node in nodes.values() for parent in node.parents)  # by states that have no line yet
    ordered: list[history_graph.GraphNode] = []
    for first in sorted((node for node in nodes.values() if not awaited[node.id]), key=lambda node: node.id, reverse=True):
        pending = [first]
        while pending:
            node = pending.pop()
            ordered.append(node)
            awaited.subtract(node.parents)
            pending += [nodes[parent] for parent in reversed(node.parents) if parent in nodes and not awaited[parent]]
    return ordered


def _insert(nodes: dict[str, history_graph.GraphNode], line: list[tuple[int, str]], runs: list[wire.RecordedRun]) -> None:
    """Put the runs of a branch between its states. *line*: when each state was taken, and its id, oldest first."""
    for run in reversed(runs):
        above = next(state for taken_ns, state in line if taken_ns >= run.ended_ns)
        node, own = nodes[above], f"{above} before {run.id}"
        nodes[own] = history_graph.GraphNode(own, node.parents[:1], run_lines.line(run), "-")
        nodes[above] = node._replace(parents=[own, *node.parents[1:]])
        line.insert(line.index(next(entry for entry in line if entry[1] == above)), (run.ended_ns, own))


def _parents(snapshot: wire.BranchSnapshot) -> list[str]:
    """Return the ids of the previous snapshot and of the merged ones, each once."""
    return list(dict.fromkeys((snapshot.parent, *snapshot.merged)))


def _branch_text(branch: wire.Branch) -> str:
    changes = "changes" if not branch.counted else printing.plural(branch.changed, "change") if branch.changed else "no changes"
    git = "".join(f"; {status_text.in_repository(one.path_bytes, one.sentence)}" for one in branch.repositories)
    merging = f"; {status_text.merging(branch)}" if branch.merging else ""
    notes = f"; {printing.plural(branch.notes, 'open note')}" if branch.notes else ""
    kept = f"; {branch_words.kept(branch)}" if branch_words.kept(branch) else ""
    return f"branch {branch.name}: {changes} since {branch.base or 'the lower'}{kept}{git}{merging}{notes}"


def _snapshot_text(snapshot: wire.BranchSnapshot) -> str:
    by = f" by {snapshot.author} ({snapshot.author_pid})" if snapshot.author else ""
    tag = f" [{printing.printable(snapshot.tag)}]" if snapshot.tag else ""
    amount = (
        f"{printing.plural(snapshot.file_count, 'file')}, {status_text.size(snapshot.bytes_changed)}"
        if snapshot.file_count >= 0
        else ""
    )
    return f"{snapshot.name}{tag}  {printing.when(snapshot.created_ns)}  {amount}{printing.printable(by)}"
