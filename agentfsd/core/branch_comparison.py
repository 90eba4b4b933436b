"""What differs between two refs, while both may change: at once, or in steps between which others have their turn."""

import errno
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, nullcontext

from agentfsd.core import tree_diff
from agentfsd.core.content_comparison import ComparisonResults
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.refs import Refs
from agentfsd.core.tree import Tree
from agentfsd.domain_errors import Refusal
from agentfsd.metadata import layer_rows
from agentfsd.types import PathChange

_ROUNDS = 3
_MANY_CHANGES = 500  # which are looked at within 20 ms
_LARGE_BYTES = 16 << 20


class BranchComparison:
    """Compares the trees of one overlay."""

    def __init__(self, refs: Refs, trees: OpenTrees) -> None:
        self._refs, self._trees = refs, trees
        self._parts = trees.parts

    def diff(self, a: str | None, b: str | None) -> list[PathChange]:
        """Return what leads from *a* to *b* (None: the lower), sorted by path; the cost follows what changed."""
        return tree_diff.between(self._parts, self._trees.side(a), self._trees.side(b))

    def diff_in_steps(self, old: Tree, new: Tree) -> Generator[tuple[int, int, str], None, list[PathChange]]:
        """Compare two trees in steps.

        Of many changes the result is what there was at some step: trees are looked at until they have held still for that
        long, or are frozen. Of few it is as fresh as can be: files are read between steps, all else is as at the last one.

        Yields:
            (done, total, what); total is 0 where nobody knows.

        Raises:
            Refusal: ``replaced`` when a tree is replaced meanwhile.
        """
        if layer_rows.hold_more(self._parts.store, old.chain ^ new.chain, _MANY_CHANGES):
            for _ in range(_ROUNDS):
                held_still = yield from self._diff_unless_changed(old, new)
                if held_still is not None:
                    return held_still
            if _may_be_frozen(old, new):
                with self._frozen(old) as one, self._frozen(new) as two:
                    return (yield from tree_diff.between_in_steps(self._parts, one, two))
        results = ComparisonResults()
        for _ in range(_ROUNDS):
            changes = tree_diff.between(self._parts, old, new, results)
            if not results.open:
                return changes
            for _ in results.find_out():
                yield len(results), 0, "comparing"
                if old.detached or new.detached:
                    raise Refusal(errno.ESTALE, "replaced", "a branch was restored or deleted while it was compared", "ask again")
        return tree_diff.between(self._parts, old, new)  # somebody goes on writing to files of the same size

    def _diff_unless_changed(self, old: Tree, new: Tree) -> Generator[tuple[int, int, str], None, list[PathChange] | None]:
        """Compare views of their own, which seal nothing; None when names or inodes changed meanwhile."""
        writes = self._parts.store.writes
        heads = [tree.head for tree in (old, new)]
        before = [writes[head] for head in heads]
        with ExitStack() as held:
            one, two = (held.enter_context(self._trees.pinned(tree.head, read_only=True)) for tree in (old, new))
            steps = tree_diff.between_in_steps(self._parts, one, two)
            while before == [writes[head] for head in heads]:
                try:
                    yield next(steps)
                except StopIteration as end:
                    changes: list[PathChange] = end.value
                    return changes
            steps.close()
        return None

    def _frozen(self, tree: Tree) -> AbstractContextManager[Tree]:
        return self._trees.frozen(tree.id) if self._refs.exists(tree.id) else nullcontext(tree)


def _may_be_frozen(old: Tree, new: Tree) -> bool:
    """Return whether nothing is open that would be copied for it when somebody writes on meanwhile."""
    open_files = [inode for tree in (old, new) if not tree.read_only for inode in tree.in_use() if inode.has_own_data]
    has_large = any(inode.tree.data_stat(inode).st_size > _LARGE_BYTES for inode in open_files)
    return not (old.external_writers or new.external_writers or has_large)
