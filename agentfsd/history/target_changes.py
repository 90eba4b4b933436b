"""What the target of a merge has changed, kept from one source to the next.

To compare it anew for each source takes the square of the time. It is compared anew only where one path does not tell the whole
difference. This module knows nothing of conflicts.
"""

from collections.abc import Generator, Iterable
from contextlib import ExitStack

from agentfsd.core import tree_diff
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.tree import Inode, Parts, Tree
from agentfsd.core.tree_diff import EntryPair
from agentfsd.history.merge_records import Step
from agentfsd.history.paths import directories_above
from agentfsd.history.source_changes import Progress, reading


class TargetSince:
    """What the target of a merge has changed since each base that its sources have.

    Args:
        trees: The trees of the overlay.
        held: Keeps the bases open.
    """

    def __init__(self, trees: OpenTrees, held: ExitStack) -> None:
        self._trees, self._held = trees, held
        self._known: dict[int, TargetChanges] = {}

    def base(self, layer: int, target: Tree) -> "TargetChanges":
        """Return what *target* has changed since *layer*."""
        if layer not in self._known:
            base = self._held.enter_context(self._trees.pinned(layer, read_only=True, over=target.lower))
            self._known[layer] = TargetChanges(self._trees.parts, base, target)
        return self._known[layer]

    def follow(self, target: Tree, steps: Iterable[Step]) -> Generator[Progress, None, None]:
        """Note that *steps* were made, and *target* is the tree after them."""
        for changes in self._known.values():
            yield from changes.follow(target, steps)

    def forget(self) -> None:
        """Forget everything: the target has become another tree."""
        self._known.clear()


class TargetChanges:
    """What one tree has changed since a base.

    Attributes:
        unseen: The paths of the lower that the base shows, and that the tree lacks without having removed them.
    """

    def __init__(self, parts: Parts, base: Tree, ours: Tree) -> None:
        self._parts, self.base, self.ours = parts, base, ours
        self._pairs: dict[bytes, EntryPair] | None = None
        self.unseen: list[bytes] = []

    def read(self) -> Generator[Progress, None, dict[bytes, EntryPair]]:
        """Return the changes by path, each directory before its content. The dictionary is the caller's."""
        if self._pairs is None:
            pairs, unseen = dict[bytes, EntryPair](), list[bytes]()
            yield from reading(self._parts, self.base, self.ours, pairs, unseen=unseen)
            self._pairs, self.unseen = pairs, unseen
        return dict(self._pairs)

    def follow(self, ours: Tree, steps: Iterable[Step]) -> Generator[Progress, None, None]:
        """Note that *steps* were made, and *ours* is the tree after them."""
        pairs, self._pairs, self.ours = self._pairs, None, ours
        sources = {step.path: step.source for step in steps}
        if pairs is None or self.unseen or b"" in sources or any(_has_other_names(source) for source in sources.values()):
            return
        paths = sources.keys() | {above for path in sources for above in directories_above(path)}
        found = dict[bytes, EntryPair]()
        for pair in tree_diff.pairs_at(self.base, ours, sorted(paths)):
            if pair is not None and not _stands_alone(pair):
                return
            if pair is not None and not tree_diff.only_lower_moved(pair):
                found[pair.path] = pair
            yield len(found), len(paths), "changes"
        pairs = {path: pair for path, pair in pairs.items() if path not in paths} | found
        self._pairs = dict(sorted(pairs.items(), key=lambda entry: entry[0].split(b"/")))


def _has_other_names(inode: Inode | None) -> bool:
    """Return whether a change at one name of a file may be one at its other names, too."""
    return inode is not None and not inode.is_dir and (inode.linked or inode.nlink > 1)


def _stands_alone(pair: EntryPair) -> bool:
    """Return whether a pair says nothing of names below it, or other names of the file."""
    if pair.old is not None and pair.old.is_dir:
        return pair.new is not None and pair.new.is_dir
    return not (_has_other_names(pair.old) or _has_other_names(pair.new))
