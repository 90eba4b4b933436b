"""The `agentfsd` command: its groups, and nothing else."""

import click

from agentfsd import __version__
from agentfsd.cli import (
    backstore,
    branches,
    changes,
    checks,
    completion,
    exchange,
    interposing,
    mcp,
    merging,
    mounting,
    observing,
    past,
    processes,
    running,
    snapshots,
    ui,
    watching,
)
from agentfsd.cli.common import Group


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="agentfsd")
def main() -> None:
    """Run several agents on one workspace, each in a branch of its own, at the same path.

    \b
    Start here:
      cd project && agentfsd run -- make      one command in a fresh branch; the real files stay as they are
      agentfsd mount project work             an overlay that stays; then: run, branch, snapshot, diff, restore
      agentfsd doctor                         what this machine can do
    """


for _command in (
    mounting.mount, mounting.umount, mounting.status, backstore.backstore, checks.doctor, checks.fsck, running.run, running.shell,
    branches.branch, snapshots.snapshot, processes.bind, processes.unbind, processes.bindings,
    changes.diff, past.log, past.restore, past.undo, past.discard, past.prune, past.gc, past.policy,
    merging.merge, merging.commit, watching.watch, observing.top, observing.audit,
    exchange.export, exchange.import_, mcp.mcp, interposing.interpose, completion.completion, ui.ui,
):  # fmt: skip
    main.add_command(_command)


if __name__ == "__main__":
    main()
