"""The command `compare`, which puts branches side by side in a table to choose from."""

import click
import msgspec

from agentfsd.cli import compared_branches, shell_completion
from agentfsd.cli.command_base import client, json_option, mount_option
from agentfsd.cli.output import plain_lines, printing


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
    at how many paths merging it into main would conflict: ? while one of the two has a merge to finish. Without BRANCH, it
    compares all branches that have changes.

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
        rows = compared_branches.compared(daemon, chosen, target)
    if as_json:
        printing.as_json(msgspec.to_builtins(rows))
    elif not rows:
        printing.say("no branch has changes")
    else:
        cells = [compared_branches.cells(row) for row in rows]
        table = plain_lines.with_notes(compared_branches.HEADERS, cells, [row.notes for row in rows], at=2)
        printing.table(*table, spare=("took", "removed", "added"))
