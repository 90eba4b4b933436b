"""The command `merge`, which merges branches and snapshots into a branch."""

from typing import Literal

import click

from agentfs_client import wire
from agentfsd.cli import conflict_report, merge_report, shell_completion
from agentfsd.cli.command_base import EXIT_REFUSED, client, json_option, mount_option
from agentfsd.cli.output import progress_bar
from agentfsd.cli.picking import pick_changes
from agentfsd.review.hunks import Picks

_STRATEGIES: dict[str, tuple[Literal["", "union"], bool]] = {"lines": ("", False), "files": ("", True), "union": ("union", False)}


@click.command()
@click.argument("refs", metavar="SRC... [DST]", shell_complete=shell_completion.refs, nargs=-1)
@click.option(
    "--into",
    metavar="BRANCH",
    shell_complete=shell_completion.branches,
    help="The target branch. All arguments are then merged into it, in order.",
)
@click.option("--ours", "side", flag_value="ours", help="Decide conflicts for DST: its change wins.")
@click.option("--theirs", "side", flag_value="theirs", help="Decide conflicts for SRC: its change wins.")
@click.option(
    "--strategy", type=click.Choice(sorted(_STRATEGIES)), default="lines", show_default=True,
    help="How to merge two changes of one text file. lines: a conflict if they change the same lines; files: always a conflict; "
    "union: keep both versions of the same lines.",
)  # fmt: skip
@click.option("-p", "--patch", "by_hunk", is_flag=True, help="Ask about each hunk of SRC's changes.")
@click.option("--markers", is_flag=True, help="Write both versions of conflicting lines into the file, between conflict markers.")
@click.option(
    "--conflicts", "leave", is_flag=True,
    help="Leave all conflicts in DST, to be settled there: text between markers, other files as they are in DST.",
)  # fmt: skip
@click.option("--continue", "end", flag_value="continue", help="Finish the merge that left conflicts in DST.")
@click.option("--abort", "end", flag_value="abort", help="Take the merge back that left conflicts in DST.")
@click.option("--force", is_flag=True, help="With --abort, also give up what was changed in other files since.")
@click.option("--hooks", is_flag=True, help="Also merge files that your own programs would execute, such as git hooks.")
@click.option("--all-or-nothing", is_flag=True, help="Merge nothing if any SRC has a conflict.")
@click.option("--rebase", "histories", flag_value="rebase", help="Rebase SRC's git commits onto DST's git branch.")
@click.option("--squash", "histories", flag_value="squash", help="Combine SRC's git commits into one.")
@click.option(
    "--as-branches", "histories", flag_value="beside",
    help="Only add SRC's git branches, as agentfsd/SRC/BRANCH; files and index stay as they are.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Change nothing; list what would change, and every conflict.")
@click.option("--all", "everything", is_flag=True, help="With --dry-run and --json, list git's own files, too.")
@mount_option
@json_option
@click.pass_context
def merge(
    ctx: click.Context, refs: tuple[str, ...], into: str | None, side: Literal["ours", "theirs"] | None, strategy: str,
    by_hunk: bool, markers: bool, leave: bool, end: Literal["continue", "abort"] | None, force: bool, all_or_nothing: bool,
    histories: Literal["rebase", "squash", "beside"] | None, hooks: bool, dry_run: bool, everything: bool,
    named: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Merge branches or snapshots into a branch.

    The target is DST, or the branch named by --into. With a single SRC and no DST, it is the branch that you are in.

    A conflict is a path that both sides changed in ways that cannot be combined. A SRC with a conflict is not merged at all; the
    conflicts are listed, and the exit code is 1. The other SRCs are merged. `agentfsd undo` takes a merge back.

    With --conflicts, DST takes all of SRC, and `agentfsd conflicts` lists what is left to be decided. Edit the files, or use
    `agentfsd resolve`; then --continue DST finishes the merge, and --abort DST puts the branch back. The exit code is 1 while
    conflicts are left.

    Git commits that were made in SRC stay commits: DST's git branch is fast-forwarded to them, or gets a merge commit. With -p
    they stay in SRC: only the hunks of files that you choose are merged, with the keys of `git add -p`.

    \b
    Example:
      agentfsd merge fix-1 main
      agentfsd merge fix-1 fix-2 fix-3 --into main
      agentfsd merge fix-1 main --dry-run
      agentfsd merge -p fix-1 main
      agentfsd merge --conflicts fix-1 main
      agentfsd merge --continue main
    """
    if end:
        _end(ctx, refs, into, end, force=force, named=named, as_json=as_json)
        return
    _check_sides(leave=leave, side=side, markers=markers or by_hunk, strategy=strategy, force=force)
    if not refs or (into is None and len(refs) > 2):
        raise click.UsageError(
            "more than two refs: say --into BRANCH where they are to be merged" if refs else "name what to merge"
        )
    sources, target = (refs, into) if into or len(refs) == 1 else (refs[:1], refs[1])
    favor, whole_files = _STRATEGIES[strategy]
    if by_hunk and (len(sources) > 1 or as_json or dry_run or histories):
        raise click.UsageError("-p asks about the files of one SRC: name one, without --json, --dry-run and what is for commits")
    with client(named) as daemon, progress_bar.of_daemon() as on_progress:
        picks = Picks([], [])
        if by_hunk:
            picks = pick_changes.from_branch(daemon, sources[0], target or daemon.hello.branch, (), "merge")
            if not picks.paths:
                return
        result = daemon.merge(
            sources, target, favor=side or favor, whole_files=whole_files, markers=markers, leave_conflicting=not all_or_nothing,
            conflicts=leave, dry_run=dry_run, hooks=hooks, histories=histories or "merge", internal=everything, paths=picks.paths,
            picked=picks.files, on_progress=on_progress,
        )  # fmt: skip
    merge_report.show(result, f"merged {', '.join(result.merged)}", dry_run=dry_run, as_json=as_json)
    if result.conflicts or result.undecided:
        if not as_json:
            _advise(result, named, dry_run=dry_run)
        ctx.exit(EXIT_REFUSED)


def _advise(result: wire.MergeReply, mount: str | None, *, dry_run: bool) -> None:
    if result.conflicts:
        merge_report.advise(result, mount)
    conflict_report.advise_left(result, mount, dry_run=dry_run)


def _check_sides(*, leave: bool, side: str | None, markers: bool, strategy: str, force: bool) -> None:
    if force:
        raise click.UsageError("--force is for --abort")
    if leave and (side or markers):
        raise click.UsageError("--conflicts leaves every conflict: leave out --ours, --theirs, --markers and -p")
    if side and strategy == "union":
        raise click.UsageError("--strategy union takes both sides: leave out --ours and --theirs")


def _end(
    ctx: click.Context, refs: tuple[str, ...], into: str | None, end: Literal["continue", "abort"], *, force: bool,
    named: str | None, as_json: bool,
) -> None:  # fmt: skip
    if len(refs) > 1 or (refs and into):
        raise click.UsageError(f"--{end} takes one branch: the one with the conflicts")
    if force and end == "continue":
        raise click.UsageError("--force is for --abort")
    branch = into or (refs[0] if refs else None)
    with client(named) as daemon, progress_bar.of_daemon() as on_progress:
        reply = daemon.end_merge(branch, abort=end == "abort", force=force, on_progress=on_progress)
    conflict_report.show_end(reply, named, abort=end == "abort", as_json=as_json)
    if reply.state == "unfinished":
        ctx.exit(EXIT_REFUSED)
