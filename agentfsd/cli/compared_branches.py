"""What branches changed, how their last command ended, and where they conflict with a target: to choose one of them."""

from collections.abc import Sequence

import msgspec

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfsd.cli.output import run_lines
from agentfsd.review import branch_runs, branch_words

_IS_TARGET, _UNKNOWN = -1, -2
HEADERS = ("branch", "changes", "added", "removed", "last command", "status", "took", "conflicts")


class ComparedBranch(msgspec.Struct, frozen=True):
    """A branch in the table.

    Attributes:
        changed: Its changes since it was made.
        added: Lines added by those; likewise ``removed``.
        conflicts: The paths at which merging it into the target would conflict; -1: it is the target; -2: not known, as one of
            the two has a merge to finish.
        run: The last run of tests in it, or else the command that was run last.
        notes: Its open notes.
        kept: Where it was merged or committed, in words; "" for nowhere.
    """

    branch: str
    changed: int
    added: int
    removed: int
    conflicts: int
    run: wire.RecordedRun | None
    notes: int = 0
    kept: str = ""


def compared(daemon: ControlClient, branches: Sequence[wire.Branch], target: wire.Branch) -> list[ComparedBranch]:
    """Compare branches with the target that one of them may be merged into."""
    return [_compared(daemon, branch, target) for branch in branches]


def cells(row: ComparedBranch) -> tuple[str, ...]:
    """Return a row of the table, as HEADERS names its columns."""
    run = row.run
    ended = (run_lines.shortened(run.command), run_lines.status(run), run_lines.took(run)) if run is not None else ("", "", "")
    conflicts = {_IS_TARGET: "", _UNKNOWN: "?", 0: "none"}.get(row.conflicts, str(row.conflicts))
    conflicts = ", ".join(part for part in (conflicts, row.kept) if part)
    return (row.branch, str(row.changed), f"+{row.added}", f"-{row.removed}", *ended, conflicts)


def lines_of(daemon: ControlClient, branch: str) -> tuple[int, int]:
    """Count the lines that a branch added and removed since it was made."""
    patches = daemon.patches(branch, own=True, internal=False, stat_only=True)
    return sum(max(0, patch.added) for patch in patches), sum(max(0, patch.removed) for patch in patches)


def _compared(daemon: ControlClient, branch: wire.Branch, target: wire.Branch) -> ComparedBranch:
    added, removed = lines_of(daemon, branch.id)
    conflicts = _IS_TARGET
    if branch.id != target.id:
        try:
            conflicts = len(daemon.merge([branch.id], target.id, dry_run=True, hooks=True).conflicts)
        except AgentFSError as exc:
            if exc.code != "merge-unfinished":
                raise
            conflicts = _UNKNOWN
    run = branch_runs.telling(daemon.list_runs(branch.id, each_command=True)).get(branch.id)
    return ComparedBranch(branch.name, branch.changed, added, removed, conflicts, run, branch.notes, branch_words.kept(branch))
