"""The command `compare`, which puts branches side by side in a table to choose from."""

import click
import msgspec

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, json_option, mount_option
from agentfsd.cli.output import plain_lines, printing, run_lines

_HEADERS = ("branch", "changes", "added", "removed", "last command", "status", "took", "conflicts")


class ComparedBranch(msgspec.Struct, frozen=True):
    """A branch in the table.

    Attributes:
        changed: Its changes since it was made.
        added: Lines added by those; likewise ``removed``.
        conflicts: The paths at which merging it into the target would conflict; -1: it is the target.
        run: The command that was run last in it.
        notes: Its open notes.
    """

    branch: str
    changed: int
    added: int
    removed: int
    conflicts: int
    run: wire.RecordedRun | None
    notes: int = 0


@click.command()
@click.argument("branches", metavar="[BRANCH]...", nargs=-1, shell_complete=shell_completion.branches)
@click.option(
    "--into", metavar="BRANCH", default="main", show_default=True, shell_complete=shell_completion.branches,
    help="The branch for which conflicts are counted.",
)  # fmt: skip
@mount_option
@json_option
def compare(branches: tuple[str, ...], into: str, named: str | None, as_json: bool) -> None:
    """Compare branches: changes, last command, conflicts.

    Each row has what a branch changed since it was made, the command that `agentfsd run` ran last in it and how that ended, and
    at how many paths merging it into main would conflict. Without BRANCH, it compares all branches that have changes.

    \b
    Example:
      agentfsd compare try-1 try-2 try-3
      agentfsd compare --into release
      agentfsd compare --json
    """
    with client(named) as daemon:
        chosen = [daemon.show_branch(branch) for branch in dict.fromkeys(branches)]
        if not branches:
            chosen = [branch for branch in daemon.list_branches() if branch.changed or branch.repositories]
        target = daemon.show_branch(into)
        rows = [_compared(daemon, branch, target) for branch in chosen]
    if as_json:
        printing.as_json(msgspec.to_builtins(rows))
    elif not rows:
        printing.say("no branch has changes")
    else:
        table = plain_lines.with_notes(_HEADERS, [_cells(row) for row in rows], [row.notes for row in rows], at=2)
        printing.table(*table, spare=("took", "removed", "added"))


def _compared(daemon: ControlClient, branch: wire.Branch, target: wire.Branch) -> ComparedBranch:
    patches = daemon.patches(branch.id, own=True, internal=False, stat_only=True)
    conflicts = -1
    if branch.id != target.id:
        conflicts = len(daemon.merge([branch.id], target.id, dry_run=True, hooks=True).conflicts)
    runs = daemon.list_runs(branch.id)
    added, removed = (sum(max(0, count) for count in counts) for counts in zip(*_counts(patches), strict=True))
    return ComparedBranch(branch.name, branch.changed, added, removed, conflicts, runs[-1] if runs else None, branch.notes)


def _counts(patches: list[wire.FilePatch]) -> list[tuple[int, int]]:
    return [(patch.added, patch.removed) for patch in patches] or [(0, 0)]


def _cells(row: ComparedBranch) -> tuple[str, ...]:
    run = row.run
    ended = (run_lines.shortened(run.command), run_lines.status(run), run_lines.took(run)) if run is not None else ("", "", "")
    conflicts = "" if row.conflicts < 0 else str(row.conflicts or "none")
    return (row.branch, str(row.changed), f"+{row.added}", f"-{row.removed}", *ended, conflicts)
