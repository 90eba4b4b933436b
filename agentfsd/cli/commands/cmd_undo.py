"""The command `undo`, which takes back the last restore, merge, commit or discard."""

import click

from agentfsd.cli.command_base import client, json_option, mount_option, plain
from agentfsd.cli.output import printing


@click.command()
@click.option("--list", "listing", is_flag=True, help="Only show what can be undone, the newest first.")
@mount_option
@json_option
def undo(listing: bool, named: str | None, as_json: bool) -> None:
    """Undo the last restore, merge, commit or discard.

    Each further `undo` goes one step back. The state before the undo is kept in a snapshot. A commit into the real directory
    cannot be undone.

    \b
    Example:
      agentfsd undo
      agentfsd undo --list
    """
    with client(named) as daemon:
        entries = daemon.undoable() if listing else [daemon.undo()]
    if as_json:
        printing.as_json(plain(entries))
    elif listing:
        printing.table(("what", "branch", "before it"), [(entry.kind, entry.branch, entry.snapshot) for entry in entries])
    else:
        printing.say(f"undone: {entries[0].kind} of {entries[0].branch}")
        if entries[0].committed:
            printing.note(f"{entries[0].committed} was committed into the real directory after it: that stays as it is")
