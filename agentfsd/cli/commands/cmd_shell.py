"""The command `shell`, which opens the user's shell in a branch."""

import os

import click

from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import mount_option
from agentfsd.cli.commands.cmd_run import run_command


@click.command()
@click.argument("branch", required=False, shell_complete=shell_completion.branches)
@click.option("--new", is_flag=True, help="Create the branch; fail if it exists.")
@mount_option
@click.pass_context
def shell(ctx: click.Context, branch: str | None, new: bool, named: str | None) -> None:
    """Open $SHELL in a branch.

    Without BRANCH, the shell gets a new branch with a generated name. The prompts of bash, fish and sh begin with the branch;
    AGENTFS_BRANCH holds its name for the prompt of another shell.

    \b
    Example:
      agentfsd shell fix-1
      agentfsd shell --new fix-2
    """
    program = os.environ.get("SHELL") or "/bin/sh"
    ctx.exit(run_command(branch, new, None, "auto", named, (program,), is_shell=True))
