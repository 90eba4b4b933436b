"""The command `bindings`, which lists the processes that are in a branch."""

import click

from agentfs_client.facts import IN_DOUBT
from agentfsd.cli.command_base import client, json_option, mount_option, plain
from agentfsd.cli.output import printing


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
    if any(b.branch == IN_DOUBT for b in bound):
        printing.note(
            "(in doubt): perhaps from a branch, started while no daemon watched, and refused;"
            " `agentfsd bind PID BRANCH` or `agentfsd unbind PID` settles it"
        )
