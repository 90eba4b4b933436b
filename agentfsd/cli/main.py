"""The `agentfsd` command: its groups, and nothing else."""

import click

from agentfsd import __version__
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Group
from agentfsd.cli.commands import (
    cmd_backstore,
    cmd_bind,
    cmd_branch,
    cmd_diff,
    cmd_doctor,
    cmd_export,
    cmd_interpose,
    cmd_log,
    cmd_mcp,
    cmd_merge,
    cmd_mount,
    cmd_run,
    cmd_snapshot,
    cmd_top,
    cmd_ui,
    cmd_watch,
)


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
    cmd_mount.mount, cmd_mount.umount, cmd_mount.status, cmd_backstore.backstore, cmd_doctor.doctor, cmd_doctor.fsck,
    cmd_run.run, cmd_run.shell,
    cmd_branch.branch, cmd_snapshot.snapshot, cmd_bind.bind, cmd_bind.unbind, cmd_bind.bindings,
    cmd_diff.diff, cmd_log.log, cmd_log.restore, cmd_log.undo, cmd_log.discard, cmd_log.prune, cmd_log.gc, cmd_log.policy,
    cmd_merge.merge, cmd_merge.commit, cmd_watch.watch, cmd_top.top, cmd_top.audit,
    cmd_export.export, cmd_export.import_, cmd_mcp.mcp, cmd_interpose.interpose, shell_completion.completion, cmd_ui.ui,
):  # fmt: skip
    main.add_command(_command)


if __name__ == "__main__":
    main()
