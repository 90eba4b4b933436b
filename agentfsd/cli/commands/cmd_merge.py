"""merge and commit: from several branches to one, and from a branch to the real files."""

from typing import Literal

import click

from agentfsd.cli import merge_report, shell_completion
from agentfsd.cli.command_base import EXIT_REFUSED, WithPaths, client, converse, json_option, mount_option
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing, progress_bar

_STRATEGIES: dict[str, tuple[Literal["", "union"], bool]] = {"lines": ("", False), "files": ("", True), "union": ("union", False)}


@click.command()
@click.argument("refs", metavar="SRC... [DST]", shell_complete=shell_completion.refs, nargs=-1, required=True)
@click.option(
    "--into",
    metavar="BRANCH",
    shell_complete=shell_completion.branches,
    help="The branch that gets the result; then every argument is merged, in order.",
)
@click.option("--ours", "side", flag_value="ours", help="Where both changed the same, DST's change wins.")
@click.option("--theirs", "side", flag_value="theirs", help="Where both changed the same, SRC's change wins.")
@click.option(
    "--strategy", type=click.Choice(sorted(_STRATEGIES)), default="lines", show_default=True,
    help="lines: changes to different lines of a file come together; files: they never do; union: both, also of the same lines.",
)  # fmt: skip
@click.option("--markers", is_flag=True, help="Write text conflicts into the files, between markers, instead of refusing.")
@click.option("--hooks", is_flag=True, help="Take along files that run on your side, such as git's hooks.")
@click.option("--all-or-nothing", is_flag=True, help="Merge no branch when one of several has a conflict.")
@click.option(
    "--rebase", "histories", flag_value="rebase", help="Where git histories have parted, make SRC's commits again on DST's."
)
@click.option("--squash", "histories", flag_value="squash", help="Make one commit of what SRC committed.")
@click.option(
    "--as-branches", "histories", flag_value="beside",
    help="Bring SRC's git branches alone, as agentfsd/SRC/BRANCH; files and index stay as they are.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Change nothing; list every conflict.")
@mount_option
@json_option
@click.pass_context
def merge(
    ctx: click.Context, refs: tuple[str, ...], into: str | None, side: Literal["ours", "theirs"] | None, strategy: str,
    markers: bool, all_or_nothing: bool, histories: Literal["rebase", "squash", "beside"] | None, hooks: bool, dry_run: bool,
    named: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Merge branches or snapshots into a branch (DST, --into, or else the one you are in). One with a conflict is left out as a
    whole, and its conflicts are listed; the others are merged. `agentfsd undo` takes a merge back. Commits that were made in SRC
    with git are merged as commits: DST's git branch goes forward to them, or gets a merge commit.

    \b
    Example:
      agentfsd merge fix-1 main
      agentfsd merge fix-1 fix-2 fix-3 --into main
      agentfsd merge fix-1 main --dry-run
    """
    if into is None and len(refs) > 2:
        raise click.UsageError("more than two refs: say --into BRANCH where they are to be merged")
    if side and strategy == "union":
        raise click.UsageError("--strategy union takes both sides: leave out --ours and --theirs")
    sources, target = (refs, into) if into or len(refs) == 1 else (refs[:1], refs[1])
    favor, whole_files = _STRATEGIES[strategy]
    with client(named) as daemon, progress_bar.of_daemon() as on_progress:
        result = daemon.merge(
            sources, target, favor=side or favor, whole_files=whole_files, markers=markers, leave_conflicting=not all_or_nothing,
            dry_run=dry_run, hooks=hooks, histories=histories or "merge", on_progress=on_progress,
        )  # fmt: skip
    merge_report.show(result, f"merged {', '.join(result.merged)}", dry_run=dry_run, as_json=as_json)
    if result.conflicts:
        if not as_json:
            merge_report.advise(result, named)
        ctx.exit(EXIT_REFUSED)


@click.command(cls=WithPaths)
@click.argument("branch", required=False, shell_complete=shell_completion.branches)
@click.option("--dry-run", is_flag=True, help="Change nothing; show what would be written, and what moved meanwhile.")
@click.option("--merge", "merging", is_flag=True, help="Where the target changed meanwhile, merge three-way.")
@click.option("--force", is_flag=True, help="Where the target changed meanwhile, overwrite that.")
@click.option("--hooks", is_flag=True, help="Take along files that run on your side, such as git's hooks.")
@click.option(
    "--as-branches", is_flag=True, help="Bring its git branches alone, as agentfsd/BRANCH/NAME; files and index stay as they are."
)
@click.option("--resume", is_flag=True, help="Finish a commit that was interrupted.")
@click.option("--abort", is_flag=True, help="Take back a commit that was interrupted.")
@mount_option
@json_option
@click.pass_context
def commit(
    ctx: click.Context, branch: str | None, dry_run: bool, merging: bool, force: bool, as_branches: bool, hooks: bool,
    resume: bool, abort: bool, named: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Apply a branch (or only PATHs of it) to the branch that it was made from; into the real directory when that is what
    it was made from.

    Nothing is written when a path changed there meanwhile, or would run something on your side (git's hooks and configuration,
    settings of editors and agents, setuid bits): such paths are listed. Into the real directory every file is
    replaced at once, and a commit that is killed is finished by --resume or taken back by --abort.

    \b
    Example:
      agentfsd commit fix-1 --dry-run
      agentfsd commit fix-1
      agentfsd commit fix-1 -- src docs/index.md
    """
    if resume and abort:
        raise click.UsageError("--resume and --abort exclude each other")
    if merging and force:
        raise click.UsageError("--merge and --force exclude each other")
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon, progress_bar.of_daemon() as on_progress:
        if resume or abort:
            result, said = daemon.end_commit(abort=abort, on_progress=on_progress), "took back" if abort else "finished"
        else:
            wanted = [mount_finder.in_workspace(mount, path) for path in ctx.obj]
            result = daemon.commit(
                branch,
                wanted,
                force=force,
                merge=merging,
                dry_run=dry_run,
                as_branches=as_branches,
                hooks=hooks,
                on_progress=on_progress,
            )
            said = f"committed {branch or daemon.hello.branch}"
    merge_report.show(result, said, dry_run=dry_run, as_json=as_json)
    if result.conflicts:
        if not as_json:
            merge_report.advise_executed(result)
            printing.note("--merge merges them, --force overwrites them; or edit them in the branch")
            if any(conflict.kind == "history" for conflict in result.conflicts):
                settled = f"agentfsd commit {branch or daemon.hello.branch}"
                printing.note(f"`{settled} --merge` merges both histories, `{settled} --as-branches` keeps them side by side")
        ctx.exit(EXIT_REFUSED)
