"""Which of a branch's changes are committed together with the paths that a person names. It compares nothing itself."""

from collections.abc import Iterable

from agentfsd.core.tree_diff import EntryPair
from agentfsd.history.merge_records import PathConflict
from agentfsd.history.paths import directories_above, touches
from agentfsd.types import PathChange


def with_directories(pairs: dict[bytes, EntryPair], wanted: tuple[bytes, ...]) -> dict[bytes, EntryPair]:
    """Return the pairs of *wanted* paths, of both names of each rename among them, and of the new directories above them.

    Committing half a rename could remove a file from the lower that the branch still reads from there.
    """
    needed = {path for path in pairs if touches(wanted, path)}
    moves = {(path, source) for path, pair in pairs.items() if (source := _source_of(pair))}
    while True:
        reached = {name for path in needed for name in (path, *directories_above(path))}
        moved = {move for move in moves if not reached.isdisjoint(move)}
        if not moved:
            break
        moves -= moved
        places = {place for move in moved for place in move}
        needed.update(path for path in pairs if not places.isdisjoint((path, *directories_above(path))))
    for path in list(needed):
        if pairs[path].new is not None:
            needed.update(name for name in directories_above(path) if name in pairs and is_new(pairs[name]))
    return {path: pair for path, pair in pairs.items() if path in needed}


def dragged_along(changes: Iterable[PathChange], wanted: tuple[bytes, ...]) -> list[PathConflict]:
    """Return what a commit of hunks would change beyond the paths that were chosen, because a directory above was renamed."""
    above = {directory for path in wanted for directory in directories_above(path)}
    return [
        PathConflict(change.path, "picked", "a renamed directory has it, too: choose it as well, or commit without -p")
        for change in changes
        if change.status in ("A", "M") and change.path not in above and not touches(wanted, change.path, change.old_path)
    ]


def _source_of(pair: EntryPair) -> bytes:
    """Return the path in the lower of what the branch has moved to the pair's path; b"" if nothing was moved there."""
    if pair.new is None or pair.new.lower_path in (None, pair.path):
        return b""
    return pair.new.lower_path or b""


def is_new(pair: EntryPair) -> bool:
    """Tell whether the branch's file or directory is another one than the lower's, not the same with changes."""
    return pair.old is None or "type" in pair.what
