"""Linked worktrees (`git worktree add`) of a repository that is merged: each has a HEAD, an index and files of its own.

Where theirs has worked in one that lies in the workspace, its index and files follow the branch that it has checked out, as in
the main work tree. The branch of any other one stays where it is (GitDatabase.linked). This module changes nothing.

Source: git-worktree(1), gitrepository-layout(5).
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentfsd.core.tree import Tree, join
from agentfsd.repositories import reading, work_trees
from agentfsd.repositories.commits import Clash
from agentfsd.repositories.fitted_changes import Sides
from agentfsd.repositories.git_database_paths import UNDER_WAY, kind_of, of_linked
from agentfsd.repositories.joined_history import REAL_DIRECTORY, Manner
from agentfsd.repositories.reading import GitDatabase

_WORKTREES = b"worktrees/"


@dataclass(frozen=True, slots=True)
class LinkedCheckout:
    """A linked worktree that is to follow its branch.

    Attributes:
        name: Its directory in the database.
        work_tree: The directory that holds its files.
        head: What its HEAD is to be: an object id, or ``ref: NAME``.
        was: The commit that our side has checked out there; b"" if our side lacks the worktree.
        theirs: The commit that theirs has checked out there.
        index: The index to start from, which belongs to the commit *started*; None if there is none.
        started: See *index*.
        ours_untouched: Our side has changed neither index nor HEAD. What theirs has is taken over, if the commit is the same.
        sparse: The index of theirs, if it is a sparse checkout there; None if it is not.
    """

    name: bytes
    work_tree: bytes
    head: bytes
    was: bytes
    theirs: bytes
    index: bytes | None
    started: bytes
    ours_untouched: bool
    sparse: bytes | None


def find(
    sides: Sides, ours: GitDatabase, theirs: GitDatabase, inside: set[bytes], touched: set[bytes], manner: Manner
) -> tuple[list[LinkedCheckout], list[Clash]]:  # fmt: skip
    """Return the worktrees that are to follow, and what stands in the way.

    Args:
        sides: The base and both trees.
        ours: The repository in our tree. Its ``linked`` loses the branches that may move.
        theirs: The repository in theirs.
        inside: The paths in the database that theirs changed.
        touched: The paths in the database that our side changed.
        manner: How to join.
    """
    found, clashes, held = list[LinkedCheckout](), list[Clash](), dict(ours.worktrees)
    worked = {of_linked(name)[0] for name in inside if kind_of(of_linked(name)[1] or b"-") in ("head", "index")}
    for name in sorted(worked & theirs.worktrees.keys()):
        tree = sides.ours if name in ours.worktrees else sides.theirs
        work_tree = _work_tree_of(tree, ours.path, name)
        if work_tree is None:
            continue
        head, differs = _head_of(sides, ours, theirs, name, manner.favor)
        clashes += _under_way(sides, ours.path, name, inside, manner)
        if differs:
            clashes.append(Clash(join(ours.path, name + b"/HEAD"), "repository", _told(name, manner)))
        was, his = (side.resolve_value(side.worktrees.get(name, b"")) for side in (ours, theirs))
        index = reading.text(tree, join(ours.path, name + b"/index"), reading.REFS_BYTES)
        untouched = not {name + b"/index", name + b"/HEAD"} & touched
        started = was if name in ours.worktrees else his
        is_sparse = reading.is_sparse(reading.settings(sides.theirs, ours.path, name))
        sparse = reading.text(sides.theirs, join(ours.path, name + b"/index"), reading.REFS_BYTES) if is_sparse else None
        found.append(LinkedCheckout(name, work_tree, head, was, his, index, started, untouched, sparse))
        held.pop(name, None)
    removed = {name for name in held.keys() - theirs.worktrees.keys() if name + b"/HEAD" in inside}
    held = {name: head for name, head in held.items() if name not in removed or _has_changed(touched, name)}
    ours.linked = ours.ways(held.values())
    return found, clashes


def _told(name: bytes, manner: Manner) -> str:
    shown, (ours, theirs) = os.fsdecode(name.removeprefix(_WORKTREES)), manner.names
    return f"the linked worktree {shown} has other branches checked out in {ours} and in {theirs}: switch one of them"


def _head_of(sides: Sides, ours: GitDatabase, theirs: GitDatabase, name: bytes, favor: str) -> tuple[bytes, bool]:
    """Return what HEAD of a linked worktree becomes, and whether nothing decides between the two sides."""
    mine, his = ours.worktrees.get(name, b""), theirs.worktrees[name]
    was = reading.ref_value((sides.base.text(join(ours.path, name + b"/HEAD")) or b"").strip())
    if his in (mine, was) and mine:
        return mine, False
    if not mine or mine == was or favor == "theirs":
        return his, False
    return mine, favor != "ours"


def _under_way(sides: Sides, database: bytes, name: bytes, inside: set[bytes], manner: Manner) -> Iterator[Clash]:
    shown = os.fsdecode(name.removeprefix(_WORKTREES))
    refuses = manner.names[0] == REAL_DIRECTORY or not manner.favor
    for file, what in UNDER_WAY.items():
        path, place = join(database, name + b"/" + file), ""
        if reading.has(sides.ours, path):
            place = manner.names[0]
        elif refuses and _has_changed(inside, name + b"/" + file) and reading.has(sides.theirs, path):
            place = manner.names[1]
        if place:
            yield Clash(
                path, "repository", f"{what} is under way in the linked worktree {shown} of {place}: finish it, or end it"
            )


def _has_changed(inside: Iterable[bytes], name: bytes) -> bool:
    """Return whether one of the paths is *name* or below it."""
    return any(one == name or one.startswith(name + b"/") for one in inside)


def _work_tree_of(tree: Tree, database: bytes, name: bytes) -> bytes | None:
    """Return the directory of the workspace that holds a linked worktree's files; None if they are elsewhere, or gone."""
    place = (reading.text(tree, join(database, name + b"/gitdir")) or b"").strip()
    directory, _, last = place.rpartition(b"/")
    if last != b".git":
        return None
    own = join(database, name)
    if directory.startswith(b"/"):
        return next((end for end in work_trees.ends(directory) if work_trees.leads_to(tree, end, own)), None)
    path = os.path.normpath(join(own, directory or b"."))
    path = b"" if path == b"." else path
    return path if not path.startswith(b"..") and work_trees.leads_to(tree, path, own) else None
