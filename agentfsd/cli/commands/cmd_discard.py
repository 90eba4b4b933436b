"""The command `discard`, which deletes branches with their changes."""

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, mount_option
from agentfsd.cli.output import printing
from agentfsd.cli.picking import pick_changes


@click.command()
@click.argument("branches", metavar="BRANCH...", nargs=-1, required=True, shell_complete=shell_completion.branches)
@click.option("-p", "--patch", "by_hunk", is_flag=True, help="Ask about each hunk, and take back only those; the branch stays.")
@click.option("--forget", is_flag=True, help="Free the space at once; undo is then impossible.")
@mount_option
def discard(branches: tuple[str, ...], by_hunk: bool, forget: bool, named: str | None) -> None:
    """Delete branches with all their changes.

    `discard main` resets main to the real directory. `agentfsd undo` brings a branch back. If one of the branches does not
    exist, none is deleted.

    \b
    Example:
      agentfsd discard fix-1
      agentfsd discard fix-2 fix-3
      agentfsd discard -p fix-1
    """
    if by_hunk and (forget or len(branches) > 1):
        raise click.UsageError("-p is for one branch, and can be undone: leave out the rest")
    with client(named) as daemon:
        if by_hunk:
            picks = pick_changes.to_discard(daemon, branches[0])
            if picks.paths:
                printing.say(daemon.restore(None, branches[0], picks.paths, picked=picks.files))
            return
        for name in dict.fromkeys(daemon.show_branch(branch).name for branch in branches):
            daemon.discard(name, keep=not forget)
            printing.say(f"discarded {name}")
