"""Tell which paths belong to a git database, and what each file of a database is for.

This module sees paths only and reads no file.

A database is the directory that git calls GIT_DIR: ``.git``, a bare repository, or a submodule's directory in ``.git/modules``.
Source: gitrepository-layout(5).
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

Kind = Literal["object", "ref", "head", "index", "state", "passing", "log", "lock", "settings", "worktree", "other"]

_STATE_FILES = {
    b"MERGE_HEAD", b"MERGE_MSG", b"MERGE_MODE", b"MERGE_RR", b"MERGE_AUTOSTASH", b"CHERRY_PICK_HEAD", b"REVERT_HEAD",
    b"REBASE_HEAD", b"SQUASH_MSG",
}  # fmt: skip
_STATE_DIRECTORIES = {b"rebase-merge", b"rebase-apply", b"sequencer", b"NOTES_MERGE_WORKTREE"}
_PASSING = {
    b"COMMIT_EDITMSG", b"ORIG_HEAD", b"FETCH_HEAD", b"AUTO_MERGE", b"gc.log", b"gc.pid", b"TAG_EDITMSG", b"MERGE_TAGMSG",
    b"rr-cache",
}  # fmt: skip
_SETTINGS = {b"config", b"config.worktree", b"hooks", b"info", b"description"}
_NAMED: dict[bytes, Kind] = {
    b"objects": "object", b"refs": "ref", b"packed-refs": "ref", b"HEAD": "head", b"index": "index", b"logs": "log",
    b"worktrees": "worktree",
}  # fmt: skip

UNDER_WAY = {  # what git leaves in a database while somebody has to finish something
    b"MERGE_HEAD": "a merge", b"CHERRY_PICK_HEAD": "a cherry-pick", b"REVERT_HEAD": "a revert", b"rebase-merge": "a rebase",
    b"rebase-apply": "a rebase", b"sequencer": "a sequence of commits", b"BISECT_LOG": "a bisection",
}  # fmt: skip

OURS_ALONE = ("object", "ref", "head", "index", "state", "passing", "log", "lock")  # kinds that no plain merge of files decides

_RANKS: dict[Kind, int] = {"object": 0, "ref": 2, "head": 4, "index": 4, "state": 4}

ENDED_BY = {  # the words of UNDER_WAY: what ends it without a result
    "a merge": "merge --abort", "a cherry-pick": "cherry-pick --abort", "a revert": "revert --abort",
    "a rebase": "rebase --abort", "a sequence of commits": "cherry-pick --abort", "a bisection": "bisect reset",
}  # fmt: skip


class Member(NamedTuple):
    """A path inside a database. Both are relative: ``database`` to the workspace, ``inside`` to the database."""

    database: bytes
    inside: bytes

    @property
    def kind(self) -> Kind:
        """What the file is for, as kind_of() says."""
        return kind_of(self.inside)

    @property
    def kind_in_checkout(self) -> Kind:
        """As kind; but a file of a linked worktree counts as what it is for that worktree, such as its index."""
        return kind_of(of_linked(self.inside)[1] or self.inside)


def kind_of(inside: bytes) -> Kind:
    """Return what a file of a database is for. *inside* is its path in the database."""
    first = inside.partition(b"/")[0]
    if inside.endswith(b".lock") and first not in (b"objects", b"hooks"):
        return "lock"
    if first in _NAMED:
        return _NAMED[first]
    if first in _STATE_FILES or first in _STATE_DIRECTORIES or first.startswith((b"BISECT_", b"NOTES_MERGE_")):
        return "state"
    if first in _PASSING or inside == b"info/refs":
        return "passing"
    if first.startswith(b"sharedindex."):
        return "index"
    return "settings" if first in _SETTINGS else "other"


def of_linked(inside: bytes) -> tuple[bytes, bytes]:
    """Split a path in a database: return the directory of the linked worktree that it belongs to, and its place there.

    Both are b"" for any other path.
    """
    parts = inside.split(b"/", 2)
    return (parts[0] + b"/" + parts[1], parts[2]) if parts[0] == b"worktrees" and len(parts) == 3 else (b"", b"")


def rank_of(member: Member | None, *, gone: bool) -> int:
    """Return when a path is written into the real directory, so that git finds a whole repository whenever the writing stops.

    Objects come first, then files, then refs, and then what depends on refs. What goes, goes after what replaces it: a ref after
    the list of packed refs that has it, and an object at the very end.

    Args:
        member: The path; None for what is in no database.
        gone: Whether it is removed.
    """
    if member is None or not member.inside:
        return 1
    kind = member.kind_in_checkout
    return {"object": 5, "ref": 3}.get(kind, _RANKS.get(kind, 1)) if gone else _RANKS.get(kind, 1)


def is_of_one_checkout(path: bytes) -> bool:
    """Return whether a path belongs to the state of one checkout: HEAD, the index, or an operation under way.

    Judged by its name alone.
    """
    _, found, inside = (b"/" + path).rpartition(b"/.git/")
    if not found:
        return False
    if inside.startswith(b"modules/"):
        inside = inside.rpartition(b"/")[2] if b"/logs/" not in inside else b""
    return kind_of(inside) in ("head", "state", "lock")


def is_internal(path: bytes) -> bool:
    """Return whether a path is a file that only git writes: no setting, hook or other file that people edit."""
    _, found, inside = (b"/" + path).rpartition(b"/.git/")
    return bool(found) and kind_of(inside) != "settings"


def may_be_ref(path: bytes) -> bool:
    """Whether a path of the workspace may be a file of refs; told by its name alone."""
    return b"/refs/" in path or path.endswith((b"/packed-refs", b"/HEAD"))


class Finder:
    """Finds the database that a path belongs to. *has* tells whether a path exists in any tree of interest."""

    def __init__(self, has: Callable[[bytes], bool]) -> None:
        self._has = has
        self._known: dict[bytes, bool] = {}

    def member(self, path: bytes) -> Member | None:
        """Return the path's database and its place in it; None if it is in no database.

        The database's own directory has the empty place.
        """
        parts = path.split(b"/")
        database, start, depth = b"", -1, 0
        while depth < len(parts):
            depth += 1
            directory = b"/".join(parts[:depth])
            if start >= 0 and parts[start] != b"modules":
                break  # only submodules' databases are inside another one
            if self._is_database(directory):
                database, start = directory, depth
                if start >= len(parts):
                    break
        return Member(database, path[len(database) + 1 :]) if database else None

    def _is_database(self, directory: bytes) -> bool:
        known = self._known.get(directory)
        if known is None:
            known = all(self._has(directory + name) for name in (b"/HEAD", b"/objects", b"/refs"))
            self._known[directory] = known
        return known


def work_tree_of(database: bytes) -> bytes | None:
    """Return the directory of the files that an ordinary repository tracks: the parent of its ``.git``.

    Returns None if only the repository's settings can tell, or if it tracks no files.
    """
    parent, _, name = database.rpartition(b"/")
    return parent if name == b".git" else None
