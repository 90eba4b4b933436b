"""The command `log`, which draws the history of all branches, or of one."""

from collections import Counter

import click

from agentfs_client import wire
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, json_option, mount_option, plain
from agentfsd.cli.output import history_graph, history_list, printing, run_lines

_LATEST_NS = 1 << 63


@click.command()
@click.argument("ref", required=False, shell_complete=shell_completion.refs)
@click.option("--graph", is_flag=True, help="Draw which state came from which: each above those that it came from.")
@mount_option
@json_option
def log(ref: str | None, graph: bool, named: str | None, as_json: bool) -> None:
    """Show what happened in each branch, the newest first.

    Of each branch it lists snapshots, merges, its last commit into the real directory, and, with $, the commands that
    `agentfsd run` ran and how they ended. With REF, it shows that branch alone, or the snapshots that led to a snapshot.

    For a branch, it shows the number of changes as `branch list` does, or no number if counting by path takes long.
    For a snapshot, it shows what was stored since the previous snapshot.

    \b
    Example:
      agentfsd log
      agentfsd log fix-1
      agentfsd log --graph
    """
    with client(named) as daemon:
        snapshots = daemon.log(ref) if ref or daemon.hello.bound else daemon.list_snapshots()[::-1]
        branches = [] if as_json else [daemon.show_branch()] if daemon.hello.bound else daemon.list_branches()
        shown = [branch for branch in branches if ref in (None, branch.name)]
        runs = daemon.list_runs() if shown else []
    if as_json:
        printing.as_json(plain(snapshots))
        return
    others = ", which is gone" if ref is None else ", from which it came" if shown else ""
    listed = history_list.lines(shown, snapshots, runs, others)
    for line in history_graph.draw(_nodes(snapshots, shown, runs)) if graph else listed:
        printing.say(line)


def _nodes(
    snapshots: list[wire.BranchSnapshot], branches: list[wire.Branch], runs: list[wire.RecordedRun]
) -> list[history_graph.GraphNode]:
    """Order the states for the graph: each before its parents, and right below it those that only it came from."""
    nodes = {one.id: history_graph.GraphNode(one.id, _parents(one), _snapshot_text(one)) for one in snapshots}
    nodes |= {one.id: history_graph.GraphNode(one.id, [one.last], history_list.branch_line(one), "o") for one in branches}
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


def _snapshot_text(snapshot: wire.BranchSnapshot) -> str:
    by = f" by {snapshot.author} ({snapshot.author_pid})" if snapshot.author else ""
    stored, taken = history_list.stored(snapshot), printing.when(snapshot.created_ns)
    return f"{history_list.tagged(snapshot)}  {taken}  {stored}{printing.printable(by)}"
