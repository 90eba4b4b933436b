"""The commands `restore`, `undo` and `discard`, which bring back an earlier state of a branch."""

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import client, converse, json_option, mount_option, plain
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing, progress_bar


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
@mount_option
def restore(ref: str, paths: tuple[bytes, ...], branch: str | None, named: str | None) -> None:
    """Put a branch, or only PATHs, back to a snapshot.

    PATHs are files, or directories with everything below them. Restoring a whole branch takes no time. Processes inside the
    branch see the snapshot too; only files that are open keep their content. `agentfsd undo` undoes it. A tag as REF means the
    newest snapshot with this tag, first of BRANCH, then of any branch.

    \b
    Example:
      agentfsd restore -b fix-1 good
      agentfsd restore -b fix-1 before-tool
      agentfsd restore -b fix-1 good src/main.py docs
    """
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon, progress_bar.of_daemon() as on_progress:
        wanted = [mount_finder.in_workspace(mount, path) for path in paths]
        message = daemon.restore(ref, branch, wanted, on_progress=on_progress)
    printing.say(message)


@click.command()
@click.option("--list", "listing", is_flag=True, help="Only show what can be undone, the newest first.")
@mount_option
@json_option
def undo(listing: bool, named: str | None, as_json: bool) -> None:
    """Undo the last restore, merge, commit or discard.

    Another `undo` undoes the one before it. The branch's state until now is kept in a snapshot. A commit into the real
    directory cannot be undone.

    \b
    Example:
      agentfsd undo
      agentfsd undo --list
    """
    with client(named) as daemon:
        entries = daemon.undoable() if listing else [daemon.undo()]
    if as_json:
        printing.as_json(plain(entries))
    elif listing:
        printing.table(("what", "branch", "before it"), [(entry.kind, entry.branch, entry.snapshot) for entry in entries])
    else:
        printing.say(f"undone: {entries[0].kind} of {entries[0].branch}")


@click.command()
@click.argument("branches", metavar="BRANCH...", nargs=-1, required=True, shell_complete=shell_completion.branches)
@click.option("--forget", is_flag=True, help="Free the space at once; undo is then impossible.")
@mount_option
def discard(branches: tuple[str, ...], forget: bool, named: str | None) -> None:
    """Throw branches away with all their changes.

    `discard main` puts main back to the real directory. `agentfsd undo` brings a branch back. If one of the branches does not
    exist, nothing is thrown away.

    \b
    Example:
      agentfsd discard fix-1
      agentfsd discard fix-2 fix-3
    """
    with client(named) as daemon:
        for name in dict.fromkeys(daemon.show_branch(branch).name for branch in branches):
            daemon.discard(name, keep=not forget)
            printing.say(f"discarded {name}")
