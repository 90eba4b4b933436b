"""The command `worktree`: branches that git and agent harnesses know as linked worktrees."""

import os

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Group, json_option, mount_option
from agentfsd.cli.output import printing
from agentfsd.cli.worktrees import branch_worktrees
from agentfsd.cli.worktrees.branch_worktrees import Wish

_HEADERS = ("worktree", "git branch", "changes", "path")


@click.group(cls=Group)
def worktree() -> None:
    """Make branches that git knows as linked worktrees.

    For programs that insist on a git worktree, and for working in a branch by its path. Unlike one of git's, it has the
    ignored files, dependencies and builds of the workspace, and is there at once.

    \b
    Example:
      cd "$(agentfsd worktree add fix-1)"
      agentfsd worktree list
    """


@worktree.command()
@click.argument("name")
@click.option(
    "--from",
    "source",
    metavar="REF",
    shell_complete=shell_completion.refs,
    help="The branch or snapshot to start from; by default what the current directory shows.",
)
@click.option("--at", "commit", metavar="COMMIT", default="", help="Check this commit out; ignored and untracked files stay.")
@click.option("--git-branch", metavar="BRANCH", default="", help="The branch of git; by default NAME. A new one is created.")
@click.option("--frozen", is_flag=True, help="Keep unmodified files as they are now, whatever happens in the real directory.")
@mount_option
@json_option
def add(
    name: str, source: str | None, commit: str, git_branch: str, frozen: bool, named: str | None, as_json: bool
) -> None:  # fmt: skip
    """Make a worktree and print its path.

    It starts with the files as they are, with changes that are not committed; --at leaves those of tracked files out. Commits
    made in it are in the repository at once, in the git branch NAME. Outside any mount, a hidden one is made for the
    repository. In a directory without git, it is only a branch.

    \b
    Example:
      cd "$(agentfsd worktree add fix-1)"
      agentfsd worktree add feature/login --at origin/main
      agentfsd worktree add fix-2 --frozen
    """
    made = branch_worktrees.add(os.getcwd(), named, Wish(name, git_branch, source, commit, frozen=frozen))
    if as_json:
        printing.as_json(_plain(made))
    else:
        printing.say(made.path)


@worktree.command("list")
@mount_option
@json_option
def list_(named: str | None, as_json: bool) -> None:
    """List the worktrees of a mount.

    \b
    Example:
      agentfsd worktree list --json
    """
    found = branch_worktrees.listed(named)
    if as_json:
        printing.as_json([_plain(each) for each in found])
    else:
        printing.table(_HEADERS, [
            (each.name, each.git_branch or "(unknown to git)", str(each.changed) if each.changed >= 0 else "many", each.path)
            for each in found
        ])  # fmt: skip


@worktree.command()
@click.argument("which", metavar="NAME_OR_PATH", shell_complete=shell_completion.branches)
@click.option("--force", is_flag=True, help="Also if files are not committed.")
@click.option("--keep-branch", is_flag=True, help="Keep the branch of git, even if all its commits are in another one.")
@mount_option
def remove(which: str, force: bool, keep_branch: bool, named: str | None) -> None:
    """Remove a worktree with its files.

    Commits stay: the git branch is deleted only if the checked-out one has all its commits. `agentfsd undo` brings the files
    back, in a branch that is no worktree.

    \b
    Example:
      agentfsd worktree remove fix-1
    """
    place = branch_worktrees.named_by(os.path.abspath(which)) if "/" in which else None
    mount, name = place if place is not None else (named, which)
    removed = branch_worktrees.remove(mount, name, force=force, keep_branch=keep_branch, is_path=place is not None)
    printing.say(removed)


def _plain(made: branch_worktrees.Worktree) -> dict[str, object]:
    return {
        "name": made.name, "path": made.path, "git_branch": made.git_branch, "git_dir": made.directory, "changed": made.changed,
    }  # fmt: skip
