"""The command `commit`, which applies a branch to the branch that it was made from, or to the real directory."""

import click

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.question import OnProgress
from agentfsd.cli import merge_report, shell_completion
from agentfsd.cli.command_base import EXIT_REFUSED, WithPaths, converse, json_option, mount_option
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import diff_views, printing, progress_bar
from agentfsd.cli.picking.hunks import Picks


@click.command(cls=WithPaths)
@click.argument("branch", required=False, shell_complete=shell_completion.branches)
@click.option("--dry-run", is_flag=True, help="Change nothing; list what would be written, and every conflict.")
@click.option("--stat", "form", flag_value="stat", help="With --dry-run, show how many lines each file would gain and lose.")
@click.option(
    "-p", "--patch", "form", flag_value="patch", help="Ask about each hunk; with --dry-run, show the changes as patches."
)
@click.option("--all", "everything", is_flag=True, help="With --dry-run and --json, list git's own files, too.")
@click.option("--merge", "merging", is_flag=True, help="Merge three-way where the target changed, too.")
@click.option("--force", is_flag=True, help="Overwrite what changed in the target.")
@click.option("--hooks", is_flag=True, help="Also write files that your own programs would execute, such as git hooks.")
@click.option(
    "--as-branches", is_flag=True, help="Only add its git branches, as agentfsd/BRANCH/NAME; files and index stay as they are."
)
@click.option("--resume", is_flag=True, help="Finish a commit that was interrupted.")
@click.option("--abort", is_flag=True, help="Take back a commit that was interrupted.")
@mount_option
@json_option
@click.pass_context
def commit(
    ctx: click.Context, branch: str | None, dry_run: bool, form: str | None, everything: bool, merging: bool, force: bool,
    as_branches: bool, hooks: bool, resume: bool, abort: bool, named: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Apply a branch's changes to what it was made from.

    The target is the branch that BRANCH was made from. If that branch held no changes (as main does at first), or if BRANCH is
    main, the target is the real directory. Without BRANCH, it commits the branch that you are in. With PATHs, it commits only
    these files, and directories with everything below them.

    A conflict is a path that also changed in the target, or a file that your own programs would execute: git hooks and
    configuration, settings of editors and agents, setuid programs. If there is a conflict, nothing is written, the conflicts are
    listed, and the exit code is 1.

    In the real directory, each file is replaced atomically. If a commit is interrupted, finish it with --resume or take it back
    with --abort.

    With -p, it asks about each hunk of what the branch has changed, with the keys of `git add -p`. The rest stays in the branch.
    Commits that were made with git stay in the branch, too.

    \b
    Example:
      agentfsd commit fix-1 --dry-run
      agentfsd commit fix-1 --dry-run --stat
      agentfsd commit fix-1
      agentfsd commit fix-1 -- src docs/index.md
      agentfsd commit fix-1 -p
    """
    _check_options(resume=resume, abort=abort, merging=merging, force=force, form=form, dry_run=dry_run)
    if form and not dry_run and (as_json or as_branches or resume or abort):
        raise click.UsageError("-p asks about files, and prints no JSON: leave out the other options")
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon, progress_bar.of_daemon() as on_progress:
        if resume or abort:
            result = daemon.end_commit(abort=abort, on_progress=on_progress)
        else:
            wanted = [mount_finder.in_workspace(mount, path) for path in ctx.obj]
            picks = Picks(wanted, [])
            if form and not dry_run:
                picks = _picked(daemon, branch or daemon.hello.branch, wanted, on_progress)
                if not picks.paths:
                    return
            result = daemon.commit(
                branch,
                picks.paths,
                picked=picks.files,
                force=force,
                merge=merging,
                dry_run=dry_run,
                as_branches=as_branches,
                hooks=hooks,
                internal=everything,
                on_progress=on_progress,
            )
            if form and dry_run and not result.conflicts:
                target = None if result.into.startswith("/") else result.into
                patches = daemon.patches(branch, target, wanted, stat_only=form == "stat", internal=everything)
    if resume or abort:
        merge_report.show_end(result, abort=abort, as_json=as_json)
        ctx.exit(EXIT_REFUSED if result.conflicts else 0)
    if form and dry_run and not (result.conflicts or as_json):
        show = diff_views.show_stat if form == "stat" else diff_views.show_patches
        show(patches, colour=diff_views.wants_colour("auto"), paged=True)
        return
    merge_report.show(result, f"committed {branch or daemon.hello.branch}", dry_run=dry_run, as_json=as_json)
    if result.conflicts:
        if not as_json:
            _advise(result, branch or daemon.hello.branch, merging=merging)
        ctx.exit(EXIT_REFUSED)


def _check_options(*, resume: bool, abort: bool, merging: bool, force: bool, form: str | None, dry_run: bool) -> None:
    if resume and abort:
        raise click.UsageError("--resume and --abort exclude each other")
    if merging and force:
        raise click.UsageError("--merge and --force exclude each other")
    if form == "stat" and not dry_run:
        raise click.UsageError("--stat is for --dry-run: see `agentfsd diff --stat` for what is in a branch")


def _picked(daemon: ControlClient, branch: str, wanted: list[bytes], on_progress: OnProgress | None) -> Picks:
    from agentfsd.cli.picking import pick_changes  # here, as other commits do not need it

    into = daemon.commit(branch, wanted, dry_run=True, on_progress=on_progress).into
    return pick_changes.from_branch(daemon, branch, None if into.startswith("/") else into, wanted, "commit")


def _advise(result: wire.MergeReply, branch: str, *, merging: bool) -> None:
    """Print the commands that settle the conflicts."""
    merge_report.advise_executed(result, branch)
    if merge_report.advise_in_git(result):
        merges = "" if merging else "--merge merges them, "
        printing.note(f"{merges}--force overwrites them; or edit them in the branch")
    if any(conflict.kind == "history" for conflict in result.conflicts):
        settled = f"agentfsd commit {branch}"
        printing.note(f"`{settled} --merge` merges both histories, `{settled} --as-branches` keeps them side by side")
