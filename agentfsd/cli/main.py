"""The `agentfsd` command: all its commands, in the groups that its help shows."""

import click

from agentfsd import __version__
from agentfsd.cli.command_base import Group, HelpSection
from agentfsd.cli.commands import (
    cmd_asks,
    cmd_audit,
    cmd_backstore,
    cmd_bind,
    cmd_bindings,
    cmd_branch,
    cmd_commit,
    cmd_completion,
    cmd_diff,
    cmd_discard,
    cmd_doctor,
    cmd_export,
    cmd_fsck,
    cmd_gc,
    cmd_import,
    cmd_interpose,
    cmd_log,
    cmd_mcp,
    cmd_merge,
    cmd_mount,
    cmd_policy,
    cmd_prune,
    cmd_restore,
    cmd_rules,
    cmd_run,
    cmd_shell,
    cmd_snapshot,
    cmd_status,
    cmd_top,
    cmd_ui,
    cmd_umount,
    cmd_unbind,
    cmd_undo,
    cmd_watch,
)

_SECTIONS = (  # as `agentfsd --help` shows them
    HelpSection("Start", (cmd_run.run, cmd_shell.shell, cmd_mount.mount, cmd_umount.umount, cmd_doctor.doctor)),
    HelpSection("Branches", (
        cmd_branch.branch, cmd_bind.bind, cmd_unbind.unbind, cmd_bindings.bindings, cmd_merge.merge, cmd_commit.commit,
        cmd_export.export, cmd_import.import_,
    )),
    HelpSection("History", (
        cmd_snapshot.snapshot, cmd_log.log, cmd_restore.restore, cmd_undo.undo, cmd_discard.discard, cmd_prune.prune,
        cmd_gc.gc,
    )),
    HelpSection("Looking", (cmd_status.status, cmd_diff.diff, cmd_watch.watch, cmd_top.top, cmd_audit.audit, cmd_ui.ui)),
    HelpSection("Service", (
        cmd_rules.rules, cmd_asks.asks, cmd_policy.policy, cmd_interpose.interpose, cmd_backstore.backstore, cmd_fsck.fsck,
        cmd_mcp.mcp,
        cmd_completion.completion,
    )),
)  # fmt: skip


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
