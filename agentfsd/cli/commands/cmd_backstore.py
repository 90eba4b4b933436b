"""backstore status: where contents are kept."""

import click

from agentfs_client import wire
from agentfsd.cli.command_base import Group, client, json_option, mount_option, plain
from agentfsd.cli.output import printing
from agentfsd.control import status_text


@click.group(cls=Group)
def backstore() -> None:
    """Where the contents of changed files are kept.

    \b
    Example:
      agentfsd backstore status
    """


@backstore.command()
@mount_option
@json_option
def status(named: str | None, as_json: bool) -> None:
    """What kind of backstore a mount has, what it holds, and how much room is left.

    Blocks that files share (reflinks) count for each of them.

    \b
    Example:
      agentfsd backstore status
      agentfsd backstore status --json -m ~/work
    """
    with client(named) as daemon:
        found = daemon.backstore_status()
    if as_json:
        printing.as_json(plain(found))
    else:
        printing.table(["backstore", "what it is"], _rows(found))


def _rows(found: wire.BackstoreReply) -> list[tuple[str, str]]:
    rows = [
        ("kind", found.kind),
        ("place", found.place),
        ("file system", found.filesystem),
        ("native snapshots", found.native_snapshots),
        ("contents", _amount(found.objects, found.size_bytes)),
        ("spilled to disk", _amount(found.spilled_objects, found.spilled_bytes)),
        ("to be freed", _amount(found.garbage_objects, found.garbage_bytes)),
        ("reserve", status_text.size(found.reserve_bytes)),
        ("free", f"{status_text.size(found.free_bytes)} of {status_text.size(found.total_bytes)}"),
    ]
    if found.why:
        rows.insert(1, ("why", found.why))
    return [row for row in rows if row[0] != "spilled to disk" or found.kind == "memory"]


def _amount(files: int, size_bytes: int) -> str:
    return f"{printing.plural(files, 'file')}, {status_text.size(size_bytes)}"
