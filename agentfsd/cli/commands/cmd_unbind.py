"""The command `unbind`, which removes a process's binding."""

import click

from agentfsd.cli.command_base import client, mount_option
from agentfsd.cli.output import plain_lines, printing


@click.command()
@click.argument("pid", type=int)
@mount_option
def unbind(pid: int, named: str | None) -> None:
    """Remove a process's binding: it sees main again.

    This also settles that a process in doubt (see `agentfsd bindings`) belongs to no branch.

    \b
    Example:
      agentfsd unbind 4711
    """
    with client(named) as daemon:
        daemon.unbind(pid)
    printing.say(plain_lines.unbound(pid))
