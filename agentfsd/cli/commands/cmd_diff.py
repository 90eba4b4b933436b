"""The command `diff`, which shows what changed between two states."""

import os
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import click
import msgspec

from agentfs_client import wire
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import Failure, WithPaths, converse, json_option, mount_option, plain, refusals
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.connect.home_layer import HomeLayer, wire_changes
from agentfsd.cli.output import diff_views, pager, printing, progress_bar
from agentfsd.control import status_text
from agentfsd.history.home_changes import HomeChange

_CONTEXT_LINES = 3
_Told = TypeVar("_Told", wire.Change, wire.FilePatch)


class _Form(NamedTuple):
    """How to show what changed.

    Attributes:
        name: name-status, stat or patch.
        context_lines: Around each change of a patch.
        ignore_space: Lines that differ in white space only are equal.
        by_words: Show a patch by words.
        excluded: Patterns of paths to leave out, as in .gitignore.
    """

    name: str
    context_lines: int
    ignore_space: bool
    by_words: bool
    excluded: tuple[str, ...]
    as_json: bool
    colour: str
    paged: bool

    def without_excluded(self, changes: Iterable[_Told]) -> list[_Told]:
        """Return the changes whose paths match none of the patterns."""
        if not self.excluded:
            return list(changes)
        import pathspec  # imported late: the import would delay every command

        spec = pathspec.GitIgnoreSpec.from_lines(self.excluded)
        return [change for change in changes if not spec.match_file(os.fsdecode(change.path_bytes))]


@click.command(cls=WithPaths)
@click.argument("a", required=False, shell_complete=shell_completion.refs)
@click.argument("b", required=False, shell_complete=shell_completion.refs)
@click.option("--name-status", "form", flag_value="name-status", help="Show a letter and a path for each change (the default).")
@click.option("--stat", "form", flag_value="stat", help="Show how many lines each file gained and lost.")
@click.option("-p", "--patch", "form", flag_value="patch", help="Show patches in git's format, which `git apply` takes.")
@click.option(
    "-U", "--unified", "context_lines", type=click.IntRange(0), metavar="N", help="Show N lines of context; implies --patch."
)
@click.option("-w", "--ignore-space", is_flag=True, help="Ignore changes in white space; implies --patch.")
@click.option("--word-diff", "by_words", is_flag=True, help="Show the words that changed, as git does; implies --patch.")
@click.option(
    "--exclude", "excluded", multiple=True, metavar="PATTERN", help="Leave out paths that match, as in .gitignore. Repeatable."
)
@click.option("--home", is_flag=True, help="Show the branch's changes to the home directory: see `run --home overlay`.")
@click.option(
    "--own", is_flag=True, help="Show what the branch A changed since it was made, not what its base had changed before."
)
@click.option("--all", "everything", is_flag=True, help="Include git's own files (.git/objects and the like).")
@click.option(
    "--color",
    "colour",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Colour the output; auto: only on a terminal.",
)
@click.option("--no-pager", is_flag=True, help="Do not start a pager ($AGENTFS_PAGER, $PAGER or less).")
@mount_option
@json_option
@click.pass_obj
def diff(
    paths: list[bytes],
    a: str | None,
    b: str | None,
    form: str | None,
    context_lines: int | None,
    ignore_space: bool,
    by_words: bool,
    excluded: tuple[str, ...],
    own: bool,
    home: bool,
    everything: bool,
    colour: str,
    no_pager: bool,
    named: str | None,
    as_json: bool,
) -> None:
    """Show what changed in a branch, or between two refs.

    Without A, it compares the branch that you are in with the real directory; with A, that branch or snapshot. With A and B, it
    shows the changes that lead from A to B. With PATHs, it shows only these files, and directories with everything
    below them.

    The letters mean: A added, M modified, D deleted, R renamed, T type changed, m only mode or owner changed, x only extended
    attributes changed. For each git repository that changed, it also names the new commits and counts uncommitted
    files. `agentfsd status` and `agentfsd branch list` count the lines of `diff --own`.

    \b
    Example:
      agentfsd diff fix-1
      agentfsd diff fix-1 fix-2 --stat
      agentfsd diff --patch fix-1 -- src docs/index.md
      agentfsd diff fix-1 --stat --exclude '*.lock' --exclude build/
      agentfsd diff --word-diff fix-1 -- README.md
      agentfsd diff --patch fix-1 | git apply
      agentfsd diff --home fix-1
    """
    name = form or ("patch" if context_lines is not None or ignore_space or by_words else "name-status")
    lines = context_lines if context_lines is not None else _CONTEXT_LINES
    shown = _Form(name, lines, ignore_space, by_words, excluded, as_json, colour, not no_pager)
    if by_words and (name != "patch" or as_json):
        raise click.UsageError("--word-diff shows a patch to people: leave out --stat, --name-status and --json")
    if own and b is not None:
        raise click.UsageError("--own compares one branch with what it was made from: leave out B")
    if home and b is not None:
        raise Failure("--home compares one branch with the home directory", "name one branch")
    old, new = (a, b) if b is not None else (None, a)
    mount, daemon = converse(lambda: mount_finder.find(named, revive=True))
    with refusals(), daemon:
        if home:
            layer = HomeLayer(mount, daemon.show_branch(a))
            _show_home(layer, layer.changes(paths), shown)
            return
        wanted = [mount_finder.in_workspace(mount, path) for path in paths]
        if name == "name-status":
            _show_changes(daemon.changes(new, old, wanted, own=own, internal=everything), shown)
            return
        with progress_bar.of_daemon() as on_progress:
            patches = daemon.patches(
                new, old, wanted, stat_only=name == "stat", context_lines=lines, ignore_space=ignore_space, own=own,
                internal=everything, on_progress=on_progress,
            )  # fmt: skip
    _show_patches(patches, shown)


def _show_home(layer: HomeLayer, changes: list[HomeChange], form: _Form) -> None:
    if form.name == "name-status":
        _show_changes(wire.ChangesReply(changes=wire_changes(changes)), form)
        return
    patches = layer.patches(
        changes, stat_only=form.name == "stat", context_lines=form.context_lines, ignore_space=form.ignore_space
    )
    _show_patches(patches, form)


def _show_patches(patches: list[wire.FilePatch], form: _Form) -> None:
    patches = form.without_excluded(patches)
    if form.as_json:
        printing.as_json(plain(patches))
        return
    by_words = diff_views.show_words if form.by_words else diff_views.show_patches
    show = diff_views.show_stat if form.name == "stat" else by_words
    show(patches, colour=diff_views.wants_colour(form.colour), paged=form.paged)


def _show_changes(reply: wire.ChangesReply, form: _Form) -> None:
    changes = form.without_excluded(reply.changes)
    if form.as_json:
        printing.as_json(plain(msgspec.structs.replace(reply, changes=changes)))
        return
    for repository in reply.repositories:
        printing.note(status_text.in_repository(repository.path_bytes, repository.sentence))
    colour = diff_views.wants_colour(form.colour)
    pager.show((diff_views.changed(change, colour) for change in changes), wanted=form.paged)
