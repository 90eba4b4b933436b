"""The command `rebase`, which brings a branch with a frozen base up to date."""

from typing import Literal

import click

from agentfsd.cli import merge_report, shell_completion
from agentfsd.cli.command_base import EXIT_REFUSED, client, json_option, mount_option
from agentfsd.cli.output import printing, progress_bar


@click.command()
@click.argument("ref", metavar="[BRANCH]", required=False, shell_complete=shell_completion.branches)
@click.option("--ours", "favor", flag_value="branch", help="Decide conflicts for the branch: its change wins.")
@click.option("--theirs", "favor", flag_value="base", help="Decide conflicts for the real directory: its change wins.")
@click.option("--markers", is_flag=True, help="Write both versions of conflicting lines into the file, between conflict markers.")
@click.option("--hooks", is_flag=True, help="Also take files that your own programs would execute, such as git hooks.")
@click.option("--dry-run", is_flag=True, help="Change nothing; list what the branch would still change, and every conflict.")
@click.option("--all", "everything", is_flag=True, help="With --dry-run and --json, list git's own files, too.")
@mount_option
@json_option
@click.pass_context
def rebase(
    ctx: click.Context, ref: str | None, favor: Literal["branch", "base"] | None, markers: bool, hooks: bool, dry_run: bool,
    everything: bool, named: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Bring a branch with a frozen base up to date.

    The real directory as it is now becomes the base of BRANCH. What BRANCH has changed is merged with what has changed in the
    real directory since the last base, as `agentfsd merge` does it. If there is a conflict, nothing changes, the conflicts are
    listed, and the exit code is 1. `agentfsd undo` takes a rebase back. Without BRANCH, it is the branch that you are in.

    \b
    Example:
      agentfsd branch create fix-1 --frozen
      agentfsd rebase fix-1
      agentfsd rebase fix-1 --dry-run
    """
    with client(named) as daemon, progress_bar.of_daemon() as on_progress:
        result = daemon.rebase(
            ref, favor=favor or "", markers=markers, hooks=hooks, dry_run=dry_run, internal=everything, on_progress=on_progress
        )  # fmt: skip
        origin = "" if result.conflicts or dry_run or as_json else daemon.show_branch(result.into).base
    if result.conflicts or dry_run or as_json:
        merge_report.show(result, "rebased", dry_run=dry_run, as_json=as_json)
    else:
        left = printing.plural(len(result.changed), "path")
        printing.say(f"{result.into} is based on the real directory as it is now, and changes {left} of {origin or 'it'}")
    if result.conflicts:
        if not as_json:
            printing.say("nothing has changed; --ours takes the branch's version, --theirs the real directory's")
        ctx.exit(EXIT_REFUSED)
