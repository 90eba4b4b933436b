"""bind, unbind and bindings: put running processes into branches."""

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, json_option, mount_option, plain
from agentfsd.cli.output import printing


@click.command()
@click.argument("pid", type=int)
@click.argument("branch", shell_complete=shell_completion.branches)
@mount_option
def bind(pid: int, branch: str, named: str | None) -> None:
    """Show a branch to a running process, and to its children from now on.

    \b
    Example:
      agentfsd bind 4711 fix-1
    """
    with client(named) as daemon:
        daemon.bind(pid, branch)
    printing.say(f"process {pid} sees {branch} from now on")


@click.command()
@click.argument("pid", type=int)
@mount_option
def unbind(pid: int, named: str | None) -> None:
    """Take a binding away: the process sees main again.

    \b
    Example:
      agentfsd unbind 4711
    """
    with client(named) as daemon:
        daemon.unbind(pid)
    printing.say(f"process {pid} is bound no more")


@click.command()
@mount_option
@json_option
def bindings(named: str | None, as_json: bool) -> None:
    """List the processes that are in a branch, also by inheritance.

    \b
    Example:
      agentfsd bindings
    """
    with client(named) as daemon:
        found = daemon.bindings()
    if as_json:
        printing.as_json(plain(found))
        return
    rows = [
        (str(b.pid), b.branch, "itself" if b.explicit else "inherited", printing.when(b.since_ns), printing.printable(b.command))
        for b in found
    ]
    printing.table(("pid", "branch", "bound", "since", "command"), rows)
