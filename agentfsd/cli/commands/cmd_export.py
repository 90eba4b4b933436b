"""export and import: a state as a directory, as a ZIP, or in git. All of it is done here, with the caller's own rights."""

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
from agentfsd.cli.transfer.temporary_refs import fixed, interruptible, is_ours, new_branch, resolve, snapshot_path
from agentfsd.errors import Refusal
from agentfsd.exchange.place import new_directory, new_file

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Bytes, or with K, M, G, T."""
    number = value.rstrip("KMGTkmgt")
    unit = value[len(number) :].upper()
    if not number.isdecimal() or unit not in _UNITS:
        raise click.BadParameter(f"{value!r} is no size: a number, and K, M, G or T", ctx, param)
    return int(number) * _UNITS[unit]


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
            _report(write(source, target, force, step, count(path) if is_shown() else 0))
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


@click.command("import")
@click.argument("arguments", nargs=-1, metavar="[SOURCE | --git REPO [REF]]", shell_complete=shell_completion.files)
@click.option("-b", "--branch", metavar="BRANCH", help="The branch to make. With --git and without: all branches.")
@click.option("--git", "repository", metavar="REPO", help="From git: a path or any URL; REF is a branch, tag or commit.")
@click.option(
    "--from",
    "base",
    metavar="REF",
    shell_complete=shell_completion.refs,
    help="What the branch starts from; else main as it is now.",
)
@click.option("--max-size", callback=_size, default="16G", show_default=True, help="How much a ZIP may take.")
@mount_option
def import_(
    arguments: tuple[str, ...], branch: str | None, repository: str | None, base: str | None, max_size: int, named: str | None
) -> None:
    """Make a branch whose content is that of a directory, a ZIP, or a commit.

    Only what differs from what the branch starts from is stored. A ZIP is checked as a whole before anything is written.

    With --git and without REF and BRANCH every branch comes with its history: each commit that was a snapshot is one again.
    Names that are taken get a number; what came earlier does not come again. From other commits, .git is left alone.

    \b
    Example:
      agentfsd import state.zip -b from-mail
      agentfsd import ../other-checkout -b other
      agentfsd import --git ssh://host/srv/history.git
      agentfsd import --git ../history.git v1.0 -b old
    """
    _check_import_usage(arguments, branch, repository)
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon, interruptible():
        if repository is not None:
            from agentfsd.cli.transfer import git_import

            ref = arguments[0] if arguments else None
            lacking = git_import.import_(mount, daemon, git_import.ImportOrder(repository, ref, branch, base))
        else:
            assert branch is not None
            lacking = _import(mount, daemon, arguments[0], branch, base, max_size)
    _report(lacking)


def _check_import_usage(arguments: tuple[str, ...], branch: str | None, repository: str | None) -> None:
    if repository is None and (len(arguments) != 1 or branch is None):
        raise click.UsageError("name a directory or a ZIP, and with -b the branch to make of it; or --git REPO")
    if repository is not None and len(arguments) > 1:
        raise click.UsageError("only one REF can be imported")
    if repository is not None and arguments and branch is None:
        raise click.UsageError("name with -b the branch to make of it")


def _import(mount: locate.Mount, daemon: ControlClient, source: str, branch: str, base: str | None, max_size: int) -> list[str]:
    with progress(f"importing {branch}") as step:
        if os.path.isdir(source):
            with Directory(source) as directory:
                lacking = _make_branch(mount, daemon, branch, base, directory, step, count(source) if is_shown() else 0)
        else:
            from agentfsd.exchange.unarchive import opened_archive

            with opened_archive(source, max_size, step) as archive:
                lacking = _make_branch(mount, daemon, branch, base, archive, step, len(archive))
    printing.say(f"branch {branch} made from {source}")
    return lacking


def _make_branch(
    mount: locate.Mount, daemon: ControlClient, branch: str, base: str | None, source: TreeSource, step: Step, total: int
) -> list[str]:
    with new_branch(mount, daemon, branch, base) as directory:
        return make_equal(directory, source, step, total, is_ours)


def _report(lacking: list[str]) -> None:
    """What could not be kept is said, and no error: an ordinary user can give no file away."""
    if lacking:
        printing.note(f"{printing.plural(len(lacking), 'attribute')} could not be kept:")
    for line in lacking[: printing.SHOWN_PATHS]:
        printing.detail(line)
    if len(lacking) > printing.SHOWN_PATHS:
        click.echo(f"  ... and {len(lacking) - printing.SHOWN_PATHS} more", err=True)
