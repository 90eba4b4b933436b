"""The rows of the first page: what a person who chooses between branches has to know of each. It asks the daemon once for all.

How many lines each branch changed takes longer, and is not part of it: see LiveOverlay.changed().
"""

import signal
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.review import branch_runs
from agentfsd.web.display_text import command_line, in_repository, visible

_PATIENCE_S = 0.1  # with comparisons under way: the page follows what they find
_SIGNALLED = 128
_SLACK_NS = 2_000_000_000  # what a command wrote may be counted as changed a little after its end
_NAMED_COMMANDS = 4

Result = Literal["passed", "failed", ""]


@dataclass(frozen=True)
class LastRun:
    """The command that was run last in a branch, or its last run of tests if there was one.

    ``how``: its end in words. ``is_stale``: the branch has changed since. ``later``: the last command if that is another one, and
    how it ended; "" for none.
    """

    command: str
    how: str
    result: Result
    ended_ns: int
    is_stale: bool
    later: str = ""


@dataclass(frozen=True)
class SharedWith:
    """Another branch that has changed the same paths, and at how many of them a merge of the two would conflict."""

    branch: str
    paths: int
    conflicts: int


@dataclass(frozen=True)
class BranchOnBoard:
    """A branch.

    Attributes:
        branch: What the daemon says of it.
        since: The state to compare it with, "" for the real directory.
        workers: The commands of the processes in it; "" for none.
        run: The command that was run last; None for none.
        shared: The other branches that changed the same paths, those with the most conflicts first.
        git: What was done with git, a sentence for each repository.
        is_partial: What takes time is left out: changes, the other branches.
    """

    branch: wire.Branch
    since: str
    workers: str
    run: LastRun | None
    shared: list[SharedWith]
    git: list[str]
    is_partial: bool = False


def board(client: ControlClient, *, quickly: bool = False) -> list[BranchOnBoard]:
    """Describe all branches: first those in which processes work, then those that changed last, main at the end.

    *quickly*: leave out what may take seconds after the daemon has started. A branch that is the only one is described in full.
    """
    is_partial = quickly and len(client.list_branches(count=False)) > 1
    shared = _shared(() if is_partial else client.overlaps(patience_s=_PATIENCE_S).overlaps)
    branches = client.list_branches(count=not is_partial)
    refs = {branch.name for branch in branches} | {snapshot.name for snapshot in client.list_snapshots()}
    workers = defaultdict[str, Counter[str]](Counter)
    for binding in client.bindings():
        workers[binding.branch][binding.command] += 1
    runs = defaultdict[str, list[wire.RecordedRun]](list)
    for run in client.list_runs(each_command=True):
        runs[run.branch_id].append(run)
    rows = [
        BranchOnBoard(
            branch, branch.base if branch.base in refs else "", _workers(branch, workers[branch.name]),
            last_run(runs[branch.id], branch),
            shared.get(branch.name, []), [in_repository(one.path_bytes, one.sentence) for one in branch.repositories],
            is_partial,
        )
        for branch in branches
    ]  # fmt: skip
    return sorted(rows, key=_rank)


def pulse(client: ControlClient) -> str:
    """Return another text as soon as other processes work in branches, another run has ended, or other overlaps are known: no
    event tells of the first two, nor of overlaps that were there when the daemon started.
    """
    bound = sorted((binding.branch, binding.pid) for binding in client.bindings())
    ended = tuple(run.id for run in client.list_runs(last_only=True))
    shared = tuple((branch.name, branch.overlaps, branch.conflicts) for branch in client.list_branches(count=False))
    return f"{hash((tuple(bound), ended, shared)):x}"


def _rank(row: BranchOnBoard) -> tuple[bool, bool, int]:
    branch = row.branch
    return branch.processes == 0, branch.name == "main", -max(branch.changed_ns, branch.created_ns)


def last_run(runs: Sequence[wire.RecordedRun], branch: wire.Branch) -> LastRun | None:
    """Describe the run that tells most of a branch, see branch_runs.telling(). *runs*: those of the branch, oldest first."""
    if not runs:
        return None
    (run,) = branch_runs.telling(runs).values()
    is_stale = branch.changed_ns > run.ended_ns + _SLACK_NS
    later = f"{_command(runs[-1])}: {_how(runs[-1])}" if runs[-1].id != run.id else ""
    return LastRun(_command(run), _how(run), "failed" if run.exit_code else "passed", run.ended_ns, is_stale, later)


def _command(run: wire.RecordedRun) -> str:
    return command_line(branch_runs.inner_command(run.command))


def _how(run: wire.RecordedRun) -> str:
    if run.exit_code > _SIGNALLED:
        try:
            return f"killed by {signal.Signals(run.exit_code - _SIGNALLED).name}"
        except ValueError:
            pass
    if not branch_runs.is_test(run.command):
        return f"failed, exit code {run.exit_code}" if run.exit_code else "ended, exit code 0"
    return f"tests failed, exit code {run.exit_code}" if run.exit_code else "tests passed"


def _shared(overlaps: Iterable[wire.PathOverlap]) -> dict[str, list[SharedWith]]:
    """Count the paths that each branch shares with each other one."""
    paths, conflicts = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
    for overlap in overlaps:
        for branch in overlap.branches:
            paths[branch].update(other for other in overlap.branches if other != branch)
        if overlap.conflict:
            for branch in overlap.between:
                conflicts[branch].update(other for other in overlap.between if other != branch)
    return {
        branch: sorted(
            (SharedWith(other, count, conflicts[branch][other]) for other, count in others.items()),
            key=lambda one: (-one.conflicts, -one.paths, one.branch),
        )
        for branch, others in paths.items()
    }


def _workers(branch: wire.Branch, commands: Counter[str]) -> str:
    if not commands:
        return {0: "", 1: "1 process"}.get(branch.processes, f"{branch.processes} processes")
    named = [
        visible(command) + (f" \u00d7{count}" if count > 1 else "") for command, count in commands.most_common(_NAMED_COMMANDS)
    ]
    return ", ".join([*named, *(["\u2026"] if len(commands) > _NAMED_COMMANDS else [])])
