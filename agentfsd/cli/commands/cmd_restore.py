"""restore, undo and discard: go back to an earlier state of a branch."""

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, converse, json_option, mount_option, plain
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing, progress_bar


@click.command()
@click.argument("ref", shell_complete=shell_completion.refs)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=bytes))
@click.option(
    "-b", "--branch", metavar="BRANCH", shell_complete=shell_completion.branches, help="Which branch; else the one you are in."
)
@mount_option
def restore(ref: str, paths: tuple[bytes, ...], branch: str | None, named: str | None) -> None:
    """Put a branch back to a snapshot, also for the processes inside it; or only PATHs (files, or directories with all below).

    The whole is instant. Files that are open keep the content they had; everything looked up from now on is the snapshot's.
    `agentfsd undo` takes it back. A tag means the newest snapshot with it: of BRANCH first.

    \b
    Example:
      agentfsd restore -b fix-1 good
      agentfsd restore -b fix-1 before-tool
      agentfsd restore -b fix-1 good src/main.py docs
    """
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon, progress_bar.of_daemon() as on_progress:
        wanted = [mount_finder.in_workspace(mount, path) for path in paths]
        said = daemon.restore(ref, branch, wanted, on_progress=on_progress)
    printing.say(said)


@click.command()
@click.option("--list", "listing", is_flag=True, help="Only show what could be undone, the last first.")
@mount_option
@json_option
def undo(listing: bool, named: str | None, as_json: bool) -> None:
    """Take back the last restore, merge, commit to a branch, or discard; again, the one before it.

    What a branch held until now is kept in a snapshot. A commit into the real directory is not undone by this.

    \b
    Example:
      agentfsd undo
      agentfsd undo --list
    """
    with client(named) as daemon:
        found = daemon.undoable() if listing else [daemon.undo()]
    if as_json:
        printing.as_json(plain(found))
    elif listing:
        printing.table(("what", "branch", "before it"), [(entry.kind, entry.branch, entry.snapshot) for entry in found])
    else:
        printing.say(f"undone: {found[0].kind} of {found[0].branch}")


@click.command()
@click.argument("branches", metavar="BRANCH...", nargs=-1, required=True, shell_complete=shell_completion.branches)
@click.option("--forget", is_flag=True, help="Free its room at once: no undo.")
@mount_option
def discard(branches: tuple[str, ...], forget: bool, named: str | None) -> None:
    """Throw branches away with everything they changed (main: back to the bare lower). `agentfsd undo` brings one back.

    Nothing is thrown away when one of them is not there.

    \b
    Example:
      agentfsd discard fix-1
      agentfsd discard fix-2 fix-3
    """
    with client(named) as daemon:
        for name in dict.fromkeys(daemon.show_branch(branch).name for branch in branches):
            daemon.discard(name, keep=not forget)
            printing.say(f"discarded {name}")
