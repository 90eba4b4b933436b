"""The hooks by which a harness has a worktree made and removed: `agentfsd hook worktree-create` and `worktree-remove`.

Source: the hooks WorktreeCreate and WorktreeRemove in the reference of Claude Code. A harness uses the last line of standard
output as the path, and takes any exit code but 0 for a failure.
"""

import os
import sys
from typing import Any

import click
import msgspec

from agentfsd.cli.command_base import Failure
from agentfsd.cli.output import printing
from agentfsd.cli.worktrees import branch_worktrees
from agentfsd.cli.worktrees.branch_worktrees import Wish

_MOST_BYTES = 1 << 20
_NAMES = ("name", "worktree_name", "branch_name")  # versions of the reference and of the program differ
_COMMITS = ("source_ref", "base_ref", "base_commit")


@click.command("worktree-create")
def worktree_create() -> None:
    """Make a worktree for an agent harness.

    Reads the JSON of a WorktreeCreate hook on standard input, and prints the worktree's path. A worktree of the same name is
    used again.

    \b
    Example:
      echo '{"name": "fix-1", "cwd": "'"$PWD"'"}' | agentfsd hook worktree-create
    """
    given = _read()
    name = _first(given, _NAMES)
    if not name:
        raise Failure("the hook's input names no worktree", 'it is JSON with a field "name"')
    place = _text(given, "cwd") or os.getcwd()
    made = branch_worktrees.add(place, None, Wish(name, commit=_first(given, _COMMITS), again=True))
    printing.say(made.path)


@click.command("worktree-remove")
def worktree_remove() -> None:
    """Remove the worktree of an agent harness.

    Reads the JSON of a WorktreeRemove hook on standard input. The harness has asked its user; `agentfsd undo` still brings the
    files back.

    \b
    Example:
      echo '{"worktree_path": "'"$PWD"'"}' | agentfsd hook worktree-remove
    """
    path = _text(_read(), "worktree_path")
    if not path:
        raise Failure("the hook's input names no worktree", 'it is JSON with a field "worktree_path"')
    said = branch_worktrees.remove_at(path)
    if said:
        printing.note(said)


def _read() -> dict[str, Any]:
    try:
        return msgspec.json.decode(sys.stdin.buffer.read(_MOST_BYTES), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Failure(f"the hook's input is no JSON object: {exc}", "a harness writes it to standard input") from exc


def _text(given: dict[str, Any], field: str) -> str:
    value = given.get(field)
    if isinstance(value, str) and "\0" in value:
        raise Failure(f"{field!r} of the hook's input has a NUL character in it", "paths and names have none")
    return value if isinstance(value, str) else ""


def _first(given: dict[str, Any], fields: tuple[str, ...]) -> str:
    return next((found for field in fields if (found := _text(given, field))), "")
