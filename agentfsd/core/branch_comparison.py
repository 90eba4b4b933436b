"""Compares two refs that may change meanwhile: in one step, or in several steps between which the daemon serves requests."""

import errno
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from agentfsd.core import inode_stat, tree_changes
from agentfsd.core.content_comparison import ComparisonResults
from agentfsd.core.named_paths import NamedPaths
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.refs import Refs
from agentfsd.core.tree import Tree
from agentfsd.domain_errors import Refusal
from agentfsd.metadata import layer_rows
from agentfsd.types import PathChange

_ROUNDS = 3
_MANY_CHANGES = 500  # comparing so many in one step takes up to 20 ms
_LARGE_BYTES = 16 << 20


class BranchComparison:
    """Compares the trees of one overlay."""

    def __init__(self, refs: Refs, trees: OpenTrees) -> None:
        self._refs, self._trees = refs, trees
        self._parts = trees.parts

    def diff(self, a: str | None, b: str | None) -> list[PathChange]:
        """Return the changes from *a* to *b* (None: the lower), sorted by path. The cost grows with the number of changes."""
        return tree_changes.between(self._parts, self._trees.side(a), self._trees.side(b))

    def diff_in_steps(
        self, old: Tree, new: Tree, wanted: Iterable[bytes] = ()
    ) -> Generator[tuple[int, int, str], None, list[PathChange]]:  # fmt: skip
        """Compare two trees in steps.

        If there are many changes, the result shows both trees as they were at one step. The comparison is repeated until
        no name or inode changes while it runs; if that fails, both trees are frozen and compared once more.
        If there are few changes, or freezing is too expensive, the last step compares everything but file contents. These
        were read in the steps before, so the result is up to date.

        With *wanted*, paths in normal form, changes that do not concern them may be left out: see tree_changes.between().

        Yields:
            (done, total, what); total is 0 if it is not known.

        Raises:
            Refusal: ``replaced`` when a tree is replaced meanwhile.
        """
        named = NamedPaths(wanted)
        if layer_rows.hold_more(self._parts.store, old.chain ^ new.chain, _MANY_CHANGES):
            for _ in range(_ROUNDS):
                held_still = yield from self._diff_unless_changed(old, new, named)
                if held_still is not None:
                    return held_still
            if _may_be_frozen(old, new):
                with self._frozen(old) as one, self._frozen(new) as two:
                    return (yield from tree_changes.between_in_steps(self._parts, one, two, named=named))
        results = ComparisonResults()
        for _ in range(_ROUNDS):
            changes = tree_changes.between(self._parts, old, new, results, named=named)
            if not results.open:
                return changes
            for _ in results.find_out():
                yield len(results), 0, "comparing"
                if old.detached or new.detached:
                    raise Refusal(errno.ESTALE, "replaced", "a branch was restored or deleted while it was compared", "ask again")
        # A process keeps writing to files: read them in this one step.
        return tree_changes.between(self._parts, old, new, named=named)

    def _diff_unless_changed(
        self, old: Tree, new: Tree, named: NamedPaths
    ) -> Generator[tuple[int, int, str], None, list[PathChange] | None]:
        """Compare pinned views, which need no sealed layer. Return None if names or inodes changed meanwhile."""
        writes = self._parts.store.writes
        heads = [tree.head for tree in (old, new)]
        before = [writes[head] for head in heads]
        with ExitStack() as held:
            one, two = (held.enter_context(self._trees.pinned(tree.head, read_only=True, over=tree.lower)) for tree in (old, new))
            steps = tree_changes.between_in_steps(self._parts, one, two, named=named)
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
    """Return whether freezing is cheap: no file has an external writer, and no open file is large.

    The next write to a file after freezing copies its content first.
    """
    open_files = [inode for tree in (old, new) if not tree.read_only for inode in tree.in_use() if inode.has_own_data]
    has_large = any(inode_stat.data_stat(inode).st_size > _LARGE_BYTES for inode in open_files)
    return not (old.external_writers or new.external_writers or has_large)
