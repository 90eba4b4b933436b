"""The command `resolve`, which decides conflicts that a merge has left in a branch."""

from typing import Literal

import click

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.cli import conflict_report, shell_completion
from agentfsd.cli.command_base import converse, json_option, mount_option
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.picking import conflict_versions

How = Literal["ours", "theirs", "edit", "tool", "marked"]


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=bytes))
@click.option("--ours", "how", flag_value="ours", help="Take the branch's version; in a text, for the lines that clash.")
@click.option("--theirs", "how", flag_value="theirs", help="Take the merged branch's version, likewise.")
@click.option("--edit", "how", flag_value="edit", help="Open the file in $VISUAL or $EDITOR; no markers may be left.")
@click.option("--tool", "how", flag_value="tool", help="Open the file in the merge tool of your git configuration.")
@click.option("--mark", "how", flag_value="marked", help="Take the file as it is now, or that it is gone.")
@click.option(
    "-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches,
    help="The branch with the conflicts; by default the one you are in.",
)  # fmt: skip
@mount_option
@json_option
def resolve(paths: tuple[bytes, ...], how: How | None, branch: str | None, named: str | None, as_json: bool) -> None:
    """Decide conflicts that a merge has left in a branch.

    PATHs are files, or directories with all conflicts below them. In a git repository, the file is staged as well, as `git add`
    does. `agentfsd undo` takes a decision back. When nothing is undecided, `agentfsd merge --continue BRANCH` finishes the merge.

    \b
    Example:
      agentfsd resolve -b main src/main.py --edit
      agentfsd resolve -b main logo.png --theirs
      agentfsd resolve -b main . --ours
    """
    if how is None:
        raise click.UsageError("say how: --ours, --theirs, --edit, --tool or --mark")
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon:
        reply = _decide(daemon, [mount_finder.in_workspace(mount, path) for path in paths], how, branch)
    conflict_report.show(reply, named, as_json=as_json)


def _decide(daemon: ControlClient, paths: list[bytes], how: How, branch: str | None) -> wire.ConflictsReply:
    if how == "ours" or how == "theirs" or how == "marked":
        return daemon.resolve(paths, how, branch)
    for path in paths:
        if how == "edit":
            conflict_versions.edit(daemon, path, branch)
        else:
            conflict_versions.use_tool(daemon, path, branch)
    return daemon.conflicts(branch)
