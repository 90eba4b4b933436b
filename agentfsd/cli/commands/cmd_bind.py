"""The command `bind`, which puts a running process into a branch."""

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, mount_option
from agentfsd.cli.output import plain_lines, printing


@click.command()
@click.argument("pid", type=int)
@click.argument("branch", shell_complete=shell_completion.branches)
@mount_option
def bind(pid: int, branch: str, named: str | None) -> None:
    """Bind a running process to a branch.

    The process PID, and the children that it starts from now on, see BRANCH.

    \b
    Example:
      agentfsd bind 4711 fix-1
    """
    with client(named) as daemon:
        daemon.bind(pid, branch)
    printing.say(plain_lines.bound(pid, branch))
