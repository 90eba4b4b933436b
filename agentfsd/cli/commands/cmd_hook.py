"""The command `hook`, which answers the hooks of agent harnesses: JSON on standard input, the answer on standard output."""

import click

from agentfsd.cli.command_base import Group
from agentfsd.cli.commands import hook_worktrees


@click.group(cls=Group)
def hook() -> None:
    """Answer the hooks of an agent harness.

    \b
    Example:
      echo '{"name": "fix-1", "cwd": "'"$PWD"'"}' | agentfsd hook worktree-create
    """


hook.add_command(hook_worktrees.worktree_create)
hook.add_command(hook_worktrees.worktree_remove)
