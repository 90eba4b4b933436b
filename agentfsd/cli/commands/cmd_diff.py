"""diff."""

import click

from agentfs_client import wire
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import WithPaths, converse, json_option, mount_option, plain
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import diff_views, pager, printing, progress_bar
from agentfsd.control import status_text

_CONTEXT_LINES = 3


@click.command(cls=WithPaths)
@click.argument("a", required=False, shell_complete=shell_completion.refs)
@click.argument("b", required=False, shell_complete=shell_completion.refs)
@click.option("--name-status", "form", flag_value="name-status", help="A letter and a path for each change (the default).")
@click.option("--stat", "form", flag_value="stat", help="Lines added and removed in each file, and a sum.")
@click.option("-p", "--patch", "form", flag_value="patch", help="Patches in git's format, for people and for `git apply`.")
@click.option(
    "-U", "--unified", "context_lines", type=click.IntRange(0), metavar="N", help="N lines of context; implies --patch."
)
@click.option("--own", is_flag=True, help="What the branch A changed since it was made, not what its base had changed before.")
@click.option("--all", "everything", is_flag=True, help="Also the files of git's databases (.git/objects and the like).")
@click.option("--color", "colour", type=click.Choice(["auto", "always", "never"]), default="auto", help="auto: on a terminal.")
@click.option("--no-pager", is_flag=True, help="Never through $AGENTFS_PAGER, $PAGER or less.")
@mount_option
@json_option
@click.pass_obj
def diff(
    paths: list[bytes],
    a: str | None,
    b: str | None,
    form: str | None,
    context_lines: int | None,
    own: bool,
    everything: bool,
    colour: str,
    no_pager: bool,
    named: str | None,
    as_json: bool,
) -> None:
    """What a branch or snapshot changed in the lower; with two refs, what leads from A to B. PATHs are files, or directories
    with all below them.

    Of a git repository it says which commits are new, and how many changed files are in none. `agentfsd status` and
    `branch list` show the number of lines of `diff --own`.

    A added, M modified, D deleted, R renamed, T another type, m only mode or owner, x only extended attributes.

    \b
    Example:
      agentfsd diff fix-1
      agentfsd diff fix-1 fix-2 --stat
      agentfsd diff --patch fix-1 -- src docs/index.md
      agentfsd diff --patch fix-1 | git apply
    """
    form = form or ("patch" if context_lines is not None else "name-status")
    if own and b is not None:
        raise click.UsageError("--own compares one branch with what it was made from: leave out B")
    old, new = (a, b) if b is not None else (None, a)
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with daemon:
        wanted = [mount_finder.in_workspace(mount, path) for path in paths]
        if form == "name-status":
            _show_changes(daemon.changes(new, old, wanted, own=own, internal=everything), as_json, paged=not no_pager)
            return
        lines = context_lines if context_lines is not None else _CONTEXT_LINES
        with progress_bar.of_daemon() as told:
            found = daemon.patches(
                new, old, wanted, stat_only=form == "stat", context_lines=lines, own=own,
                internal=everything, on_progress=told,
            )  # fmt: skip
    if as_json:
        printing.as_json(plain(found))
        return
    show = diff_views.show_stat if form == "stat" else diff_views.show_patches
    show(found, colour=diff_views.wants_colour(colour), paged=not no_pager)


def _show_changes(found: wire.ChangesReply, as_json: bool, *, paged: bool) -> None:
    if as_json:
        printing.as_json(plain(found))
    else:
        for repository in found.repositories:
            printing.note(status_text.in_repository(repository.path_bytes, repository.sentence))
        lines = (f"{change.status}\t{_shown_path(change)}{_moved(change)}" for change in found.changes)
        pager.show(lines, wanted=paged)


def _shown_path(change: wire.Change) -> str:
    path = printing.quoted(change.path_bytes) or "."
    return f"{printing.quoted(change.old_path_bytes)} -> {path}" if change.old_path_bytes else path


def _moved(change: wire.Change) -> str:
    return "\t(the lower changed since)" if change.lower_moved else ""
