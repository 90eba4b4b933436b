"""The command `prune`, which deletes old snapshots."""

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, json_option, mount_option
from agentfsd.cli.commands.cmd_snapshot import show_snapshots
from agentfsd.cli.output import printing


@click.command()
@click.option("-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="Only snapshots of this branch.")
@click.option("--max-count", type=click.IntRange(0), help="Keep the newest N of each branch; 0: all.")
@click.option("--max-age", metavar="AGE", help="Keep snapshots younger than this, such as 12h or 30d; 0: all.")
@click.option("--keep-tagged/--no-keep-tagged", default=None, help="Keep snapshots with a tag.")
@click.option("--keep-named/--no-keep-named", default=None, help="Keep snapshots with a name.")
@click.option("--dry-run", is_flag=True, help="Only show which snapshots would be deleted.")
@mount_option
@json_option
def prune(
    branch: str | None, max_count: int | None, max_age: str | None, keep_tagged: bool | None, keep_named: bool | None,
    dry_run: bool, named: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Delete snapshots that are too many or too old.

    Each option defaults to its setting retention.* of `agentfsd policy`. Snapshots that were taken with `snapshot create --keep`
    always stay.

    \b
    Example:
      agentfsd prune --max-count 20 --dry-run
      agentfsd policy set retention.max_age 30d && agentfsd prune
    """
    with client(named) as daemon:
        pruned = daemon.prune(
            branch, max_count=max_count, max_age=max_age, keep_tagged=keep_tagged, keep_named=keep_named, dry_run=dry_run
        )
    show_snapshots(pruned, as_json)
    if not as_json:
        printing.say(f"{printing.plural(len(pruned), 'snapshot')} {'would go' if dry_run else 'deleted'}")
