"""completion: print the script by which a shell completes the commands."""

import click

from agentfsd.cli.output import printing
from agentfsd.cli.shell_completion import SCRIPTS, script


@click.command()
@click.argument("shell", type=click.Choice(sorted(SCRIPTS)))
def completion(shell: str) -> None:
    """Print the script that completes commands, branches and snapshots in SHELL. Packages have it installed already.

    \b
    Example:
      eval "$(agentfsd completion bash)"       # in ~/.bashrc
      eval "$(agentfsd completion zsh)"        # in ~/.zshrc, after compinit
      agentfsd completion fish > ~/.config/fish/completions/agentfsd.fish
    """
    printing.say_ready(script(shell).rstrip("\n"))
