"""diff."""

import click

from agentfs_client import wire
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Failure, WithPaths, converse, json_option, mount_option, plain, refusals
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.connect.home_layer import HomeLayer, wire_changes
from agentfsd.cli.output import diff_views, pager, printing, progress_bar
from agentfsd.history.home_changes import HomeChange

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
@click.option("--home", is_flag=True, help="The branch's changes to the home directory instead: see `run --home overlay`.")
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
    home: bool,
    everything: bool,
    colour: str,
    no_pager: bool,
    named: str | None,
    as_json: bool,
) -> None:
    """What a branch or snapshot changed in the lower; with two refs, what leads from A to B. PATHs are files, or directories
    with all below them.

    Of a git repository it says which commits are new, and how many changed files are in none.

    A added, M modified, D deleted, R renamed, T another type, m only mode or owner, x only extended attributes.

    \b
    Example:
      agentfsd diff fix-1
      agentfsd diff fix-1 fix-2 --stat
      agentfsd diff --patch fix-1 -- src docs/index.md
      agentfsd diff --patch fix-1 | git apply
      agentfsd diff --home fix-1
    """
    form = form or ("patch" if context_lines is not None else "name-status")
    old, new = (a, b) if b is not None else (None, a)
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    if home:
        if b is not None:
            raise Failure("--home compares one branch with the home directory", "name one branch")
        with refusals(), daemon:
            layer = HomeLayer(mount, daemon.show_branch(a))
        _show_home(layer, layer.changes(paths), form, context_lines, as_json, colour, paged=not no_pager)
        return
    with daemon:
        wanted = [mount_finder.in_workspace(mount, path) for path in paths]
        if form == "name-status":
            _show_changes(daemon.changes(new, old, wanted, internal=everything), as_json, paged=not no_pager)
            return
        lines = context_lines if context_lines is not None else _CONTEXT_LINES
        with progress_bar.of_daemon() as told:
            found = daemon.patches(
                new, old, wanted, stat_only=form == "stat", context_lines=lines, internal=everything, on_progress=told
            )
    if as_json:
        printing.as_json(plain(found))
        return
    show = diff_views.show_stat if form == "stat" else diff_views.show_patches
    show(found, colour=diff_views.wants_colour(colour), paged=not no_pager)


def _show_home(
    layer: HomeLayer, changes: list[HomeChange], form: str, context_lines: int | None, as_json: bool, colour: str, *, paged: bool
) -> None:
    if form == "name-status":
        _show_changes(wire.ChangesReply(changes=wire_changes(changes)), as_json, paged=paged)
        return
    lines = context_lines if context_lines is not None else _CONTEXT_LINES
    found = layer.patches(changes, stat_only=form == "stat", context_lines=lines)
    if as_json:
        printing.as_json(plain(found))
        return
    show = diff_views.show_stat if form == "stat" else diff_views.show_patches
    show(found, colour=diff_views.wants_colour(colour), paged=paged)


def _show_changes(found: wire.ChangesReply, as_json: bool, *, paged: bool) -> None:
    if as_json:
        printing.as_json(plain(found.changes))
    else:
        for repository in found.repositories:
            printing.note(printing.in_repository(repository.path_bytes, repository.sentence))
        lines = (f"{change.status}\t{_shown_path(change)}{_moved(change)}" for change in found.changes)
        pager.show(lines, wanted=paged)


def _shown_path(change: wire.Change) -> str:
    path = printing.quoted(change.path_bytes) or "."
    return f"{printing.quoted(change.old_path_bytes)} -> {path}" if change.old_path_bytes else path


def _moved(change: wire.Change) -> str:
    return "\t(the lower changed since)" if change.lower_moved else ""
