"""The command `discard`, which deletes branches with their changes."""

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, mount_option
from agentfsd.cli.output import printing


@click.command()
@click.argument("branches", metavar="BRANCH...", nargs=-1, required=True, shell_complete=shell_completion.branches)
@click.option("--forget", is_flag=True, help="Free the space at once; undo is then impossible.")
@mount_option
def discard(branches: tuple[str, ...], forget: bool, named: str | None) -> None:
    """Delete branches with all their changes.

    `discard main` resets main to the real directory. `agentfsd undo` brings a branch back. If one of the branches does not
    exist, none is deleted.

    \b
    Example:
      agentfsd discard fix-1
      agentfsd discard fix-2 fix-3
    """
    with client(named) as daemon:
        for name in dict.fromkeys(daemon.show_branch(branch).name for branch in branches):
            daemon.discard(name, keep=not forget)
            printing.say(f"discarded {name}")
