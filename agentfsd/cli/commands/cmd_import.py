"""The command `import`, which makes branches of a directory, a ZIP archive or git commits.

The command does all of it itself, not the daemon, so that it has the caller's own rights.
"""

import os

import click

from agentfs_client import locate
from agentfs_client.control import ControlClient
from agentfs_files.trees.directory_tree import Directory, count
from agentfs_files.trees.equal_trees import make_equal
from agentfs_files.trees.tree_source import TreeSource
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import converse, mount_option
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing
from agentfsd.cli.output.progress_bar import Step, is_shown, progress
from agentfsd.cli.transfer.command_refs import interruptible, is_ours, new_branch
from agentfsd.cli.transfer.lost_attributes import report_lost

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Parse a number of bytes, with K, M, G or T as units."""
    number = value.rstrip("KMGTkmgt")
    unit = value[len(number) :].upper()
    if not number.isdecimal() or unit not in _UNITS:
        raise click.BadParameter(f"{value!r} is not a size: give a number, and K, M, G or T", ctx, param)
    return int(number) * _UNITS[unit]


@click.command("import")
@click.argument("arguments", nargs=-1, metavar="[SOURCE | --git REPO [REF]]", shell_complete=shell_completion.files)
@click.option("-b", "--branch", metavar="BRANCH", help="The branch to make. With --git, by default all branches are imported.")
@click.option("--git", "repository", metavar="REPO", help="Import from git: a path or a URL; REF is a branch, tag or commit.")
@click.option(
    "--from",
    "base",
    metavar="REF",
    shell_complete=shell_completion.refs,
    help="The branch or snapshot from which the new branch starts; by default main.",
)
@click.option("--max-size", callback=_size, default="16G", show_default=True, help="The most that a ZIP may hold, unpacked.")
@mount_option
def import_(
    arguments: tuple[str, ...], branch: str | None, repository: str | None, base: str | None, max_size: int, named: str | None
) -> None:
    """Make a branch of a directory, a ZIP or a git commit.

    The branch stores only files that differ from the state it starts from. A ZIP is checked as a whole before anything is
    written.

    With --git, without REF and BRANCH, every git branch is imported with its history: each commit that was made of a snapshot
    becomes a snapshot again. A name that is taken gets a number. Commits of earlier imports are skipped. The branch keeps its
    own .git.

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
    report_lost(lacking)


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
