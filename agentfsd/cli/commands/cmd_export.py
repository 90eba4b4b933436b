"""The command `export`, which writes a branch or snapshot as a directory, a ZIP archive or git commits.

The command does all of it itself, not the daemon, so that it has the caller's own rights.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

import click

from agentfs_client import locate
from agentfs_client.control import ControlClient
from agentfs_files.trees.directory_tree import Directory, count
from agentfs_files.trees.equal_trees import make_equal
from agentfs_files.trees.tree_source import TreeSource
from agentfs_host.mount_table import is_within
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Failure, converse, mount_option
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
@click.option(
    "--git",
    "repository",
    metavar="REPO",
    help="Export to git: the path of a bare repository (created if it is missing), or a URL.",
)
@click.option("--push", "url", metavar="URL", help="With --git PATH: also push to this remote.")
@click.option("--full", is_flag=True, help="With --git: read every file, not only those that a snapshot changed.")
@click.option("--force", is_flag=True, help="Replace TARGET, or branches of REPO that hold other commits.")
@mount_option
def export(
    arguments: tuple[str, ...], repository: str | None, url: str | None, full: bool, force: bool, named: str | None
) -> None:
    """Write a branch or snapshot to a directory, a ZIP or git.

    TARGET is a new or empty directory, or a file that ends in .zip. The export keeps modes, owners, times, extended attributes,
    links and holes; a ZIP has them in additional fields, which other programs ignore. A branch is exported in the state that it
    has at the beginning.

    With --git, each snapshot becomes a commit with its author, time and tag. Branches become git branches, and names of
    snapshots become git tags. Without REF, all branches and snapshots are exported. Commits that REPO already has are not
    written again. Attributes that git cannot hold go into refs/notes/agentfs. Directories named .git are left out. Use --full
    if files changed in the real directory since an earlier export.

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
    with daemon, _untouched(arguments if repository is None else ()), interruptible(), _denials():
        if repository is not None:
            from agentfsd.cli.transfer import git_export

            git_export.export(mount, daemon, git_export.ExportOrder(repository, url, arguments, full, force))
        else:
            _export(mount, daemon, arguments[0], arguments[1], force)


@contextlib.contextmanager
def _untouched(arguments: tuple[str, ...]) -> Iterator[None]:
    """When the user interrupts an export to a file or directory, say that nothing of it is left."""
    try:
        yield
    except KeyboardInterrupt:
        if arguments:
            end_of_line = "\n" if sys.stderr.isatty() else ""  # after the terminal's ^C
            printing.note(f"{end_of_line}interrupted: nothing was written to {arguments[-1]}; the same command begins again")
        raise


@contextlib.contextmanager
def _denials() -> Iterator[None]:
    """Say where a denied file may come from: an export inside a branch has the caller's rights, and rules by path hold."""
    try:
        yield
    except PermissionError as exc:
        if isinstance(exc, Refusal) or not exc.filename:
            raise
        path = printing.quoted(os.fsencode(exc.filename))
        hint = f"rules by path hold in a branch (agentfsd rules test {path}); outside of all branches, the export includes it"
        raise Failure(f"{path}: {exc.strerror}; nothing was exported", hint) from exc


def _export(mount: locate.Mount, daemon: ControlClient, ref: str, target: str, force: bool) -> None:
    from agentfs_files.backends.branch_tree import BranchTree  # imported here, as programs that fail early need neither
    from agentfs_files.remote_files import RemoteFiles

    state = resolve(daemon, ref)
    is_archive = target.lower().endswith(".zip")
    if not is_archive:
        _check_target(mount, target)
    with progress(f"exporting {state.name}") as step, fixed(mount, state) as snapshot:
        path = snapshot_path(mount, snapshot.name)
        with Directory(path) as source_directory:
            source = BranchTree(RemoteFiles(daemon, snapshot.id), source_directory)
            write = _write_archive if is_archive else _write_directory
            lacking = write(source, target, force, step, count(path) if is_shown() else 0)
    report_lost(lacking)  # after the progress bar, with which it would share a line
    printing.say(f"{state.name} exported to {target}")


def _write_archive(source: TreeSource, target: str, force: bool, step: Step, total: int) -> list[str]:
    from agentfs_files.archive.pack import write_archive  # imported here, as it loads slowly

    with new_file(target, replace=force) as file:
        write_archive(source, file, step, total)
    return []


def _write_directory(source: TreeSource, target: str, force: bool, step: Step, total: int) -> list[str]:
    with new_directory(target, replace=force) as directory:
        return make_equal(directory, source, step, total)


def _check_target(mount: locate.Mount, target: str) -> None:
    """Refuse a target that holds the mount, the lower or the state, as the export moves an old target away."""
    resolved = os.path.realpath(target)
    state = mount.record.state if mount.record is not None else ""
    for path, described in ((mount.mountpoint, "the mount"), (mount.lower, "the lower"), (state, "the state directory")):
        if path and is_within(path, resolved):
            raise Refusal(errno.EBUSY, "in-use", f"{target} holds {described} of this overlay", "name a new directory")
