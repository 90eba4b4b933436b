"""The `agentfsd` command: all its commands, in the groups that its help shows."""

import click

from agentfsd import __version__
from agentfsd.cli.command_base import Group, HelpSection

_SECTIONS = (  # as `agentfsd --help` shows them; each command is in the module commands/cmd_NAME.py, which its first use imports
    HelpSection("Start", ("run", "shell", "mount", "umount", "doctor")),
    HelpSection(
        "Branches",
        (
            "branch",
            "worktree",
            "bind",
            "unbind",
            "bindings",
            "merge",
            "rebase",
            "conflicts",
            "resolve",
            "commit",
            "export",
            "import",
        ),
    ),
    HelpSection("Agents", ("agent", "hook", "mcp", "rewind")),
    HelpSection("History", ("snapshot", "log", "restore", "undo", "discard", "prune", "gc")),
    HelpSection("Looking", ("status", "diff", "compare", "review", "notes", "watch", "top", "audit", "ui")),
    HelpSection("Service", ("restart", "rules", "asks", "policy", "interpose", "backstore", "fsck", "completion")),
)


@click.group(cls=Group, sections=_SECTIONS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="agentfsd")
def main() -> None:
    """Run several agents on one workspace, each in its own branch.

    Every agent sees its branch at the workspace's own path. The real files stay as they are until you commit.

    \b
    Start here:
      cd project && agentfsd run -- make      one command in a new branch; the real files stay as they are
      agentfsd mount project work             a lasting overlay; then: run, branch, snapshot, diff, restore
      agentfsd doctor                         what this machine can do
    """


if __name__ == "__main__":
    main()
