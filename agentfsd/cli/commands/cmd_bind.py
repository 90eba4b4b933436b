"""The commands `bind`, `unbind` and `bindings`, which put running processes into branches."""

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, json_option, mount_option, plain
from agentfsd.cli.output import printing


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
    printing.say(f"process {pid} sees {branch} from now on")


@click.command()
@click.argument("pid", type=int)
@mount_option
def unbind(pid: int, named: str | None) -> None:
    """Remove a process's binding: it sees main again.

    \b
    Example:
      agentfsd unbind 4711
    """
    with client(named) as daemon:
        daemon.unbind(pid)
    printing.say(f"process {pid} is no longer bound")


@click.command()
@mount_option
@json_option
def bindings(named: str | None, as_json: bool) -> None:
    """List the processes that are in a branch.

    The list includes processes that have inherited the branch from their parent.

    \b
    Example:
      agentfsd bindings
    """
    with client(named) as daemon:
        bound = daemon.bindings()
    if as_json:
        printing.as_json(plain(bound))
        return
    rows = [
        (str(b.pid), b.branch, "itself" if b.explicit else "inherited", printing.when(b.since_ns), printing.printable(b.command))
        for b in bound
    ]
    printing.table(("pid", "branch", "bound", "since", "command"), rows)
