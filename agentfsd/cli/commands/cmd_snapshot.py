"""The command `snapshot`, which takes, lists and deletes snapshots."""

import click

from agentfs_client import wire
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Group, client, json_option, mount_option, plain
from agentfsd.cli.output import plain_lines, printing
from agentfsd.control import status_text


@click.group(cls=Group)
def snapshot() -> None:
    """Take, list and delete snapshots of branches.

    \b
    Example:
      agentfsd snapshot create before-refactoring
      agentfsd restore before-refactoring
    """


def show_snapshots(snapshots: list[wire.BranchSnapshot], as_json: bool) -> None:
    """Print a table of snapshots, or a JSON document."""
    if as_json:
        printing.as_json(plain(snapshots))
        return
    rows = [
        (s.name, s.branch, str(s.file_count), status_text.size(s.bytes_changed), printing.when(s.created_ns), s.tag, s.id)
        for s in snapshots
    ]
    headers = ("snapshot", "branch", "new files", "new bytes", "created", "tag", "id")
    printing.table(headers, rows, spare=("id", "new bytes", "new files"))


@snapshot.command()
@click.argument("name", required=False)
@click.option(
    "-b",
    "--branch",
    metavar="BRANCH",
    shell_complete=shell_completion.branches,
    help="The branch; by default the one you are in.",
)
@click.option("--tag", default="", help="A label. As a ref, it means the newest snapshot with this tag.")
@click.option("--keep", is_flag=True, help="Keep it at any age and number: only `snapshot delete` deletes it.")
@mount_option
def create(name: str | None, branch: str | None, tag: str, keep: bool, named: str | None) -> None:
    """Take a snapshot of a branch.

    This takes no time, however large the workspace is. A snapshot with a NAME is kept. A snapshot without a NAME, even with a
    tag, is deleted when the branch has more snapshots than the setting retention.max_count allows (see `agentfsd policy`).

    \b
    Example:
      agentfsd snapshot create -b fix-1 good
      agentfsd snapshot create --tag before-tool
      agentfsd restore before-tool
    """
    with client(named) as daemon:
        made = daemon.create_snapshot(branch, name, tag, keep=keep)
    printing.say(plain_lines.took_snapshot(made))


@snapshot.command("list")
@click.option("-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="Only snapshots of this branch.")
@mount_option
@json_option
def list_(branch: str | None, named: str | None, as_json: bool) -> None:
    """List snapshots, oldest first.

    NEW FILES and NEW BYTES count what the branch stored since the previous snapshot: 0 if nothing changed. `agentfsd diff
    SNAPSHOT` shows all differences between the real directory and a snapshot.

    \b
    Example:
      agentfsd snapshot list -b fix-1
    """
    with client(named) as daemon:
        show_snapshots(daemon.list_snapshots(branch), as_json)


@snapshot.command()
@click.argument("ref", shell_complete=shell_completion.snapshots)
@mount_option
@json_option
def show(ref: str, named: str | None, as_json: bool) -> None:
    """Show one snapshot.

    \b
    Example:
      agentfsd snapshot show good
    """
    with client(named) as daemon:
        info = daemon.show_snapshot(ref)
    if as_json:
        printing.as_json(plain(info))
    else:
        show_snapshots([info], False)


@snapshot.command()
@click.argument("ref", shell_complete=shell_completion.snapshots)
@mount_option
def delete(ref: str, named: str | None) -> None:
    """Delete a snapshot.

    Contents that only this snapshot holds are freed.

    \b
    Example:
      agentfsd snapshot delete good
    """
    with client(named) as daemon:
        info = daemon.show_snapshot(ref)
        daemon.delete_snapshot(info.id)
    printing.say(f"snapshot {info.name} deleted")
