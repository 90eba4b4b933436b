"""export: a branch or snapshot as a directory, a ZIP archive or git commits. The client does all of it, with the caller's own
rights."""

import errno
import os

import click

from agentfs_client import locate
from agentfs_client.control import ControlClient
from agentfs_files.trees.directory_tree import Directory, count
from agentfs_files.trees.equal_trees import make_equal
from agentfs_files.trees.tree_source import TreeSource
from agentfs_host.mount_table import is_within
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import converse, mount_option
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing
from agentfsd.cli.output.progress_bar import Step, is_shown, progress
from agentfsd.cli.transfer.command_refs import fixed, interruptible, resolve, snapshot_path
from agentfsd.cli.transfer.lost_attributes import report_lost
from agentfsd.domain_errors import Refusal
from agentfsd.exchange.place import new_directory, new_file


@click.command()
@click.argument(
    "arguments", nargs=-1, metavar="[REF TARGET | --git REPO [REF...]]", shell_complete=shell_completion.refs_or_files
)
@click.option("--git", "repository", metavar="REPO", help="To git: a bare repository (made when missing), or any URL.")
@click.option("--push", "url", metavar="URL", help="With --git PATH: then push to that remote as well.")
@click.option("--full", is_flag=True, help="With --git: look at every file, not only at what a snapshot changed.")
@click.option("--force", is_flag=True, help="Replace what is there: TARGET, or branches of REPO with other commits.")
@mount_option
def export(
    arguments: tuple[str, ...], repository: str | None, url: str | None, full: bool, force: bool, named: str | None
) -> None:
    """Write a branch or snapshot as a directory, as a ZIP, or as git history.

    TARGET is a new or empty directory, or a file that ends in .zip. Modes, owners, times, extended attributes, links and holes
    are kept, in a ZIP beside what every reader of ZIPs knows. A branch is exported as it is at the beginning.

    With --git each snapshot becomes a commit with its author, time and tag; the branches become git's branches, and each
    snapshot's name a tag. Without REF all of them. What is in REPO already is not written again. What git cannot hold goes
    into refs/notes/agentfs beside; directories named .git are left out. Files that changed in the lower since an earlier
    export are found with --full.

    \b
    Example:
      agentfsd export fix-1 /tmp/fix-1
      agentfsd export before-refactoring state.zip
      agentfsd export --git ../history.git
      agentfsd export --git ssh://host/srv/history.git fix-1
    """
    if repository is None and (len(arguments) != 2 or url or full):
        raise click.UsageError("name a REF and a TARGET, or --git REPO")
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon, interruptible():
        if repository is not None:
            from agentfsd.cli.transfer import git_export

            git_export.export(mount, daemon, git_export.ExportOrder(repository, url, arguments, full, force))
        else:
            _export(mount, daemon, arguments[0], arguments[1], force)


def _export(mount: locate.Mount, daemon: ControlClient, ref: str, target: str, force: bool) -> None:
    found = resolve(daemon, ref)
    is_archive = target.lower().endswith(".zip")
    if not is_archive:
        _check_target(mount, target)
    with progress(f"exporting {found.name}") as step, fixed(mount, found) as snapshot:
        path = snapshot_path(mount, snapshot.name)
        with Directory(path) as source:
            write = _write_archive if is_archive else _write_directory
            report_lost(write(source, target, force, step, count(path) if is_shown() else 0))
    printing.say(f"{found.name} exported to {target}")


def _write_archive(source: TreeSource, target: str, force: bool, step: Step, total: int) -> list[str]:
    from agentfs_files.archive.pack import write_archive  # what loads slowly is loaded by those who need it

    with new_file(target, replace=force) as file:
        write_archive(source, file, step, total)
    return []


def _write_directory(source: TreeSource, target: str, force: bool, step: Step, total: int) -> list[str]:
    with new_directory(target, replace=force) as directory:
        return make_equal(directory, source, step, total)


def _check_target(mount: locate.Mount, target: str) -> None:
    """What the overlay rests upon must not be moved away."""
    resolved = os.path.realpath(target)
    state = mount.record.state if mount.record is not None else ""
    for path, what in ((mount.mountpoint, "the mount"), (mount.lower, "the lower"), (state, "the state directory")):
        if path and is_within(path, resolved):
            raise Refusal(errno.EBUSY, "in-use", f"{target} holds {what} of this overlay", "name a new directory")
