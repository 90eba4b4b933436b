"""The command `hook`, which harnesses call at the steps of a session.

Their calls are answered by cli/agents/quick_hook.py, which loads nothing of this. What comes here is asked by hand, or is an
event that needs no haste: such an event is a command of this group.
"""

import click

from agentfsd.cli.agents import harness_events, quick_hook
from agentfsd.cli.command_base import Failure, Group
from agentfsd.cli.commands import hook_worktrees

_ABOUT = {
    "session-start": "Put the session into a branch.",
    "prompt": "Take a snapshot: a turn begins.",
    "before-tool": "Take a snapshot: a tool is called.",
    "after-tool": "Tell the model what the call changed.",
    "session-end": "Say what the session has changed.",
}


@click.group(cls=Group)
def hook() -> None:
    """Answer a hook of an agent (for harnesses).

    An agent such as Claude Code, Codex, Gemini CLI or opencode calls it at each step, with JSON on standard input, and reads JSON
    from its standard output. `agentfsd agent install` sets that up. A hook that fails exits with 0 and never blocks the agent;
    the file hooks.log beside the state directories says why it failed.

    \b
    Example:
      agentfsd hook before-tool --for gemini < input.json
      echo '{"name": "fix-1", "cwd": "'"$PWD"'"}' | agentfsd hook worktree-create
    """


def _event(name: str) -> click.Command:
    @click.command(name, help=f"{_ABOUT[name]}\n\n\b\nExample:\n  agentfsd hook {name} --for codex < input.json")
    @click.option(
        "--for", "harness", type=click.Choice(harness_events.HARNESSES), help="The harness; by default found by the input."
    )
    def command(harness: str | None) -> None:
        if quick_hook.run([name, *(["--for", harness] if harness else [])]) is None:
            raise Failure("a hook reads JSON from its standard input", f"agentfsd hook {name} < input.json")

    return command


for _name in harness_events.EVENTS:
    hook.add_command(_event(_name))
hook.add_command(hook_worktrees.worktree_create)
hook.add_command(hook_worktrees.worktree_remove)
