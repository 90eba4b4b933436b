"""Collects what a merge leaves open in its target, with the versions of both sides and of the common state."""

from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack

from agentfsd.core import copyup
from agentfsd.core.left_conflicts import LeftConflict, LeftRecord, LeftSource
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.history.merge_records import LeftOpen, MergeOutcome, PathConflict
from agentfsd.history.paths import is_below
from agentfsd.metadata.transaction import Transaction
from agentfsd.repositories import reading
from agentfsd.repositories.work_trees import work_tree_in

Progress = tuple[int, int, str]


class Leaving:
    """The conflicts that the sources of one merge leave open.

    Args:
        overlay: The overlay.
        held: Keeps the layers that are made here until they are stored.
        target: The name of the target.
    """

    def __init__(self, overlay: Overlay, held: ExitStack, target: str) -> None:
        self._overlay, self._held, self._target = overlay, held, target
        self._sources: list[LeftSource] = []
        self._conflicts: list[LeftConflict] = []
        self._open: set[bytes] = set()

    def objects(self, outcome: MergeOutcome) -> list[PathConflict]:
        """Return a conflict for each path of a source that an earlier one has left open: the source is left out."""
        text = "an earlier source has left a conflict here: settle it and finish this merge, then merge this source"
        return [
            PathConflict(path, "undecided", text)
            for path in (outcome.paths if self._open else ())
            if any(is_below(path, other) or (is_below(other, path) and path) for other in self._open)
        ]

    def add(
        self, source: tuple[str, str], sides: tuple[Tree, Tree, Tree], now: Tree, outcome: MergeOutcome, *, whole: bool
    ) -> Generator[Progress, None, list[tuple[str, LeftOpen]]]:  # fmt: skip
        """Note what a source leaves open, and return it with the source's name: the first conflict of each path.

        Args:
            source: Its id and name.
            sides: The common state, the target before this source, and the source.
            now: The target with this source merged.
            outcome: What was merged.
            whole: All of the source was merged.
        """
        firsts = list({left.path: left for left in reversed(outcome.left)}.values())[::-1]
        if not firsts:
            return []
        self._open |= {left.path for left in firsts}
        layers = []
        for number, tree in enumerate(sides):
            layers.append((yield from self._kept(tree, [left.at[number] for left in firsts])))
        databases = [
            (database, (reading.text(now, join(database, b"MERGE_HEAD")) or b"").strip()) for database in outcome.unfinished
        ]
        places = [(database, work_tree_in(now, database, [left.path for left in firsts])) for database, _ in databases]
        number = len(self._sources)
        base, ours, theirs = layers
        self._sources.append(LeftSource(*source, sides[2].head, base, ours, theirs, whole, databases))
        for left in firsts:
            database, work_tree = _place(left, places) if left.by_git else (None, b"")
            self._conflicts.append(
                LeftConflict(left.path, left.kind, left.message, number, *left.at, left.marked, database, work_tree)
            )  # fmt: skip
        return [(source[1], left) for left in firsts]

    def _kept(self, tree: Tree, paths: list[bytes]) -> Generator[Progress, None, int]:
        """Return a layer that shows *paths* as *tree* does, also when the lower has changed."""
        inodes = {path: reading.at(tree, path) for path in paths}
        borrowed = [path for path, inode in inodes.items() if inode is not None and not inode.is_dir and _may_change(inode)]
        if not borrowed:
            return tree.head
        kept = self._held.enter_context(self._overlay.trees.scratch(tree))
        for done, path in enumerate(borrowed):
            inode = kept.walk(path)
            if inode.is_file:
                copyup.own_content(inode)
            else:
                with kept.store.transaction() as tx:
                    copyup.materialize(tx, inode)
            yield done, len(borrowed), "keeping versions"
        return kept.head

    def storing(self, layer: int, before: int) -> Callable[[Transaction], None] | None:
        """Return what stores all this in the transaction of the merge that made *layer*; None if nothing was left open."""
        if not self._conflicts:
            return None
        record = LeftRecord(self._target, self._sources, self._conflicts)
        return lambda tx: self._overlay.unfinished.add(tx, layer, before, record)


def _may_change(inode: Inode) -> bool:
    return inode.lower_path is not None and not inode.has_own_data


def _place(left: LeftOpen, places: Iterable[tuple[bytes, bytes | None]]) -> tuple[bytes | None, bytes]:
    """Return the database that has a path in its index, and its work tree. *places*: the databases that may have it."""
    near = [(database, tree) for database, tree in places if tree is not None and is_below(left.path, tree)]
    return max(near, key=lambda place: len(place[1]), default=(None, b""))
