"""snapshot create, list, show, delete; and how a list of snapshots looks."""

import click

from agentfs_client import wire
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Group, client, json_option, mount_option, plain
from agentfsd.cli.output import printing
from agentfsd.control import status_text


@click.group(cls=Group)
def snapshot() -> None:
    """Fix the state of a branch, list and remove such states.

    \b
    Example:
      agentfsd snapshot create before-refactoring
      agentfsd restore before-refactoring
    """


def show_snapshots(found: list[wire.BranchSnapshot], as_json: bool) -> None:
    if as_json:
        printing.as_json(plain(found))
        return
    rows = [
        (s.name, s.branch, str(s.file_count), status_text.size(s.bytes_changed), printing.when(s.created_ns), s.tag, s.id)
        for s in found
    ]
    printing.table(("snapshot", "branch", "files", "bytes", "created", "tag", "id"), rows)


@snapshot.command()
@click.argument("name", required=False)
@click.option(
    "-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="Of which branch; else the one you are in."
)
@click.option("--tag", default="", help="A word of your own about it; also a ref, for the newest snapshot with it.")
@click.option("--keep", is_flag=True, help="No retention takes it away, only `snapshot delete`.")
@mount_option
def create(name: str | None, branch: str | None, tag: str, keep: bool, named: str | None) -> None:
    """Fix a branch as it is now. Instant, whatever the size.

    What has a NAME is kept; what has none goes when `agentfsd policy` says that there are too many, also with a tag.

    \b
    Example:
      agentfsd snapshot create -b fix-1 good
      agentfsd snapshot create --tag before-tool
      agentfsd restore before-tool
    """
    with client(named) as daemon:
        made = daemon.create_snapshot(branch, name, tag, keep=keep)
    printing.say(f"snapshot {made.name} of {made.branch}")


@snapshot.command("list")
@click.option("-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="Only those of one branch.")
@mount_option
@json_option
def list_(branch: str | None, named: str | None, as_json: bool) -> None:
    """List snapshots, oldest first.

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
        found = daemon.show_snapshot(ref)
    if as_json:
        printing.as_json(plain(found))
    else:
        show_snapshots([found], False)


@snapshot.command()
@click.argument("ref", shell_complete=shell_completion.snapshots)
@mount_option
def delete(ref: str, named: str | None) -> None:
    """Remove a snapshot, and what only it held.

    \b
    Example:
      agentfsd snapshot delete good
    """
    with client(named) as daemon:
        found = daemon.show_snapshot(ref)
        daemon.delete_snapshot(found.id)
    printing.say(f"snapshot {found.name} deleted")
