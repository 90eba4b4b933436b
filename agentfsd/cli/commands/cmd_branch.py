"""The command `branch`, which creates, lists, renames and deletes branches."""

import click

from agentfs_client import wire
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Group, client, json_option, mount_option, plain
from agentfsd.cli.output import plain_lines, printing, progress_bar
from agentfsd.control import status_text


@click.group(cls=Group)
def branch() -> None:
    """Create, list, rename and delete branches.

    \b
    Example:
      agentfsd branch create fix-1 --from main-3
      agentfsd branch list
    """


def _show(branches: list[wire.Branch], as_json: bool) -> None:
    if as_json:
        printing.as_json(plain(branches))
        return
    printing.table(*plain_lines.branch_table(branches), spare=("id", "created"))
    for line in status_text.remarks(branches):
        printing.say(line)


@branch.command()
@click.argument("name")
@click.option(
    "--from",
    "source",
    metavar="REF",
    shell_complete=shell_completion.refs,
    help="The branch or snapshot to start from; by default main.",
)
@click.option("--frozen", is_flag=True, help="Keep unmodified files as they are now, whatever happens in the real directory.")
@mount_option
def create(name: str, source: str | None, frozen: bool, named: str | None) -> None:
    """Create a branch.

    This takes no time, however large the workspace is.

    A branch follows the real directory in all files that it has not changed. With --frozen it does not: agentfsd keeps a base,
    the real directory as it is now. That is a snapshot or reflinks where the file system of the state directory offers them, and
    a copy elsewhere; bases share the files that did not change between them. `agentfsd rebase` brings the branch up to date.

    \b
    Example:
      agentfsd branch create fix-1
      agentfsd branch create fix-2 --from fix-1
      agentfsd branch create fix-3 --frozen
    """
    with client(named) as daemon, progress_bar.of_daemon() as on_progress:
        made = daemon.create_branch(name, source, frozen=frozen, on_progress=on_progress if frozen else None)
    printing.say(plain_lines.made_branch(made, source))


@branch.command("list")
@mount_option
@json_option
def list_(named: str | None, as_json: bool) -> None:
    """List all branches.

    \b
    Example:
      agentfsd branch list --json
    """
    with client(named) as daemon:
        _show(daemon.list_branches(), as_json)


@branch.command()
@click.argument("ref", required=False, shell_complete=shell_completion.branches)
@mount_option
@json_option
def show(ref: str | None, named: str | None, as_json: bool) -> None:
    """Show one branch.

    Without REF, it shows the branch that you are in.

    \b
    Example:
      agentfsd branch show fix-1
    """
    with client(named) as daemon:
        info = daemon.show_branch(ref)
    if as_json:
        printing.as_json(plain(info))
    else:
        _show([info], False)


@branch.command()
@click.argument("ref", shell_complete=shell_completion.branches)
@click.argument("new_name")
@mount_option
def rename(ref: str, new_name: str, named: str | None) -> None:
    """Give a branch another name.

    Processes in the branch stay in it.

    \b
    Example:
      agentfsd branch rename fix-1 winner
    """
    with client(named) as daemon:
        daemon.rename_branch(ref, new_name)
    printing.say(f"branch {ref} is now {new_name}")


@branch.command()
@click.argument("ref", shell_complete=shell_completion.branches)
@mount_option
def delete(ref: str, named: str | None) -> None:
    """Delete a branch that holds no changes.

    `agentfsd discard` deletes a branch with its changes.

    \b
    Example:
      agentfsd branch delete fix-1
    """
    with client(named) as daemon:
        daemon.delete_branch(ref)
    printing.say(f"branch {ref} deleted")
