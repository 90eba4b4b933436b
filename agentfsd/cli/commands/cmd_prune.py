"""The commands `prune` and `gc`, which delete snapshots and free unused space."""

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, json_option, mount_option
from agentfsd.cli.commands.cmd_snapshot import show_snapshots
from agentfsd.cli.output import printing, progress_bar
from agentfsd.control import status_text


@click.command()
@click.option("-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="Only snapshots of this branch.")
@click.option("--max-count", type=click.IntRange(0), help="Keep the newest N of each branch; 0: all.")
@click.option("--max-age", metavar="AGE", help="Keep snapshots younger than this, such as 12h or 30d; 0: all.")
@click.option("--keep-tagged/--no-keep-tagged", default=None, help="Keep snapshots with a tag.")
@click.option("--keep-named/--no-keep-named", default=None, help="Keep snapshots that somebody has named.")
@click.option("--dry-run", is_flag=True, help="Only show which snapshots would be deleted.")
@mount_option
@json_option
def prune(
    branch: str | None, max_count: int | None, max_age: str | None, keep_tagged: bool | None, keep_named: bool | None,
    dry_run: bool, named: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Delete snapshots that are too many or too old.

    For options that are not given, the settings of `agentfsd policy` hold. Snapshots that were taken with `snapshot create
    --keep` always stay.

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


@click.command()
@click.option("--forget-undo", is_flag=True, help="Also free what is kept only for `agentfsd undo`.")
@mount_option
@json_option
def gc(forget_undo: bool, named: str | None, as_json: bool) -> None:
    """Free the space of contents that nothing refers to.

    The daemon does this by itself when it is idle. This command does it now.

    \b
    Example:
      agentfsd gc --forget-undo
    """
    with client(named) as daemon, progress_bar.of_daemon() as on_progress:
        freed = daemon.collect_garbage(forget_undo=forget_undo, on_progress=on_progress)
    if as_json:
        printing.as_json({"objects": freed.objects, "freed_bytes": freed.freed_bytes})
    else:
        printing.say(f"freed {status_text.size(freed.freed_bytes)} in {printing.plural(freed.objects, 'object')}")
