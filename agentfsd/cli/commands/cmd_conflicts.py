"""The command `conflicts`, which shows what a merge has left to be decided in a branch."""

import sys
from typing import Literal

import click

from agentfs_client import wire
from agentfsd.cli import conflict_report, shell_completion
from agentfsd.cli.command_base import Failure, converse, json_option, mount_option
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.picking import conflict_versions
from agentfsd.cli.transfer.command_refs import resolve


@click.command()
@click.argument("branch", required=False, shell_complete=shell_completion.refs)
@click.option("--show", "side", type=click.Choice(["base", "ours", "theirs"]), help="Print one version of PATH.")
@click.option("--path", metavar="PATH", type=click.Path(path_type=bytes), help="The path for --show.")
@mount_option
@json_option
def conflicts(
    branch: str | None, side: Literal["base", "ours", "theirs"] | None, path: bytes | None, named: str | None, as_json: bool
) -> None:
    """List the conflicts that a merge has left in a branch.

    Without BRANCH, it is the branch that you are in. It shows which conflicts are decided, and what settles the others: a text is
    decided when its markers are gone, every other path with `agentfsd resolve`.

    With --show and --path, it prints one version of a file: as it was in the common state (base), in BRANCH before the merge
    (ours), or in the branch that was merged (theirs).

    \b
    Example:
      agentfsd conflicts main
      agentfsd conflicts main --json
      agentfsd conflicts main --show theirs --path src/logo.png > logo.png
    """
    if bool(side) != bool(path):
        raise click.UsageError("--show and --path belong together")
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon:
        if side is None or path is None:
            reply = daemon.conflicts(branch)
            is_snapshot = (
                branch is not None and bool(reply.conflicts) and isinstance(resolve(daemon, branch), wire.BranchSnapshot)
            )
            conflict_report.show(reply, named, as_json=as_json, is_snapshot=is_snapshot)
            return
        version = conflict_versions.read(daemon, mount_finder.in_workspace(mount, path), side, branch)
    if version.kind == "none":
        raise Failure("the path does not exist in that version")
    if version.kind not in ("file", "symlink"):
        raise Failure(f"the path is no file in that version: {version.kind}")
    sys.stdout.buffer.write(version.data)
