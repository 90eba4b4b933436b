"""Decides whether what two branches have changed at one path conflicts, by the rules of a merge.

It is told the two changes, and the files that each branch has added or removed if one of them may be the path under a new name.
What `.gitattributes` sets, and what git itself makes of commits, is not looked at.
"""

from agentfsd.core.content_comparison import run_to_end
from agentfsd.core.tree import Tree
from agentfsd.core.tree_diff import EntryPair
from agentfsd.history.merge import part_additions
from agentfsd.history.merge_records import Rules
from agentfsd.history.path_merger import PathMerger

_Moves = dict[bytes, EntryPair]


def decide(
    path: bytes, changes: tuple[EntryPair, EntryPair], trees: tuple[Tree, Tree], moves: tuple[_Moves, _Moves]
) -> str:  # fmt: skip
    """Return the kind of conflict that merging two changes of a path would be, in one direction or the other; "" for none.

    Args:
        path: The path.
        changes: What each branch has made of it.
        trees: The branches' trees.
        moves: What else each branch has added or removed.
    """
    one, other = changes
    if (one.new is None and is_directory(other)) or (other.new is None and is_directory(one)):
        return "modify/delete"
    return _merged(path, changes, trees, moves) or _merged(path, changes[::-1], trees[::-1], moves[::-1])


def is_directory(pair: EntryPair) -> bool:
    """Tell whether a pair is a directory that is there now, and was nothing else before."""
    return pair.new is not None and pair.new.is_dir and (pair.old is None or pair.old.is_dir)


def _merged(
    path: bytes, changes: tuple[EntryPair, EntryPair], trees: tuple[Tree, Tree], moves: tuple[_Moves, _Moves]
) -> str:  # fmt: skip
    """Return the kind of conflict that merging the second change into the first tree would be."""
    ours, theirs = (moved | {path: change} for moved, change in zip(moves, changes, strict=True))
    part_additions(trees[1], theirs, ours, trees[0])
    part_additions(trees[0], ours, theirs, None)
    merger = PathMerger(Rules(), ours, theirs, ("ours", "theirs"))
    run_to_end(merger.read())
    merger.decide(path)
    return merger.outcome.conflicts[0].kind if merger.outcome.conflicts else ""
