"""The command `backstore`, which shows where contents are kept."""

import click

from agentfs_client import wire
from agentfsd.backstore.known_backstores import BACKSTORES
from agentfsd.cli.command_base import Group, client, json_option, mount_option, plain
from agentfsd.cli.output import printing
from agentfsd.control import status_text


@click.group(cls=Group)
def backstore() -> None:
    """Show where the contents of changed files are kept.

    \b
    Example:
      agentfsd backstore status
    """


@backstore.command()
@mount_option
@json_option
def status(named: str | None, as_json: bool) -> None:
    """Show the kind, contents and free space of the backstore.

    Blocks that files share (reflinks) are counted for each file.

    \b
    Example:
      agentfsd backstore status
      agentfsd backstore status --json -m ~/work
    """
    with client(named) as daemon:
        reply = daemon.backstore_status()
    if as_json:
        printing.as_json(plain(reply))
    else:
        printing.table(["backstore", "what it is"], _rows(reply))


def _rows(reply: wire.BackstoreReply) -> list[tuple[str, str]]:
    rows = [
        ("kind", reply.kind),
        ("place", reply.place),
        ("file system", reply.filesystem),
        ("native snapshots", reply.native_snapshots),
        ("contents", _amount(reply.objects, reply.size_bytes)),
        ("spilled to disk", _amount(reply.spilled_objects, reply.spilled_bytes)),
        ("to be freed", _amount(reply.garbage_objects, reply.garbage_bytes)),
        ("reserve", status_text.size(reply.reserve_bytes)),
        ("free", f"{status_text.size(reply.free_bytes)} of {status_text.size(reply.total_bytes)}"),
    ]
    if reply.why:
        rows.insert(1, ("why", reply.why))
    spills = reply.kind in BACKSTORES and BACKSTORES[reply.kind].spills
    return [row for row in rows if row[0] != "spilled to disk" or spills]


def _amount(files: int, size_bytes: int) -> str:
    return f"{printing.plural(files, 'file')}, {status_text.size(size_bytes)}"
