"""The command `completion`, which prints the script for completion in a shell."""

import click

from agentfsd.cli.output import printing
from agentfsd.cli.shell_completion import SCRIPTS, script


@click.command()
@click.argument("shell", type=click.Choice(sorted(SCRIPTS)))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    With it, SHELL completes commands, branches, snapshots and mounts. Packages install the script.

    \b
    Example:
      eval "$(agentfsd completion bash)"       # in ~/.bashrc
      eval "$(agentfsd completion zsh)"        # in ~/.zshrc, after compinit
      agentfsd completion fish > ~/.config/fish/completions/agentfsd.fish
    """
    printing.say_ready(script(shell).rstrip("\n"))
