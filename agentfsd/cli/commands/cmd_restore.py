"""The command `restore`, which puts a branch, or some of its paths, back to a snapshot."""

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import converse, mount_option
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing, progress_bar
from agentfsd.cli.picking import pick_changes
from agentfsd.cli.picking.hunks import Picks


@click.command()
@click.argument("ref", shell_complete=shell_completion.refs)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=bytes))
@click.option(
    "-b",
    "--branch",
    metavar="BRANCH",
    shell_complete=shell_completion.branches,
    help="The branch; by default the one you are in.",
)
@click.option("-p", "--patch", "by_hunk", is_flag=True, help="Ask about each hunk that would lead back to the snapshot.")
@mount_option
def restore(ref: str, paths: tuple[bytes, ...], branch: str | None, by_hunk: bool, named: str | None) -> None:
    """Put a branch, or only PATHs, back to a snapshot.

    PATHs are files, or directories with everything below them. Restoring a whole branch takes no time. Processes in the branch
    see the restored files at once; files that they have open keep their content. `agentfsd undo` takes the restore back. If REF
    is a tag, it means the newest snapshot of BRANCH with this tag, else the newest of any branch.

    \b
    Example:
      agentfsd restore -b fix-1 good
      agentfsd restore -b fix-1 before-tool
      agentfsd restore -b fix-1 good src/main.py docs
      agentfsd restore -p -b fix-1 good src/main.py
    """
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon, progress_bar.of_daemon() as on_progress:
        wanted = [mount_finder.in_workspace(mount, path) for path in paths]
        picks = Picks(wanted, [])
        if by_hunk:
            picks = pick_changes.from_state(daemon, branch or daemon.hello.branch, ref, wanted)
            if not picks.paths:
                return
        message = daemon.restore(ref, branch, picks.paths, picked=picks.files, on_progress=on_progress)
    printing.say(message)
