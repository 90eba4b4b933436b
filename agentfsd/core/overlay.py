"""All branches and snapshots of one lower, as one object: refs.py, branches.py, snapshots.py, past.py. Synchronous and pure of
any transport."""

import errno
import gc
import os
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, nullcontext

from agentfsd.core import consistency_check, tree_diff
from agentfsd.core.content_comparison import ComparisonResults, run_to_end
from agentfsd.core.tree import Tree
from agentfsd.core.undo import Past
from agentfsd.errors import Refusal
from agentfsd.metadata import layer_rows
from agentfsd.metadata.row_store import GARBAGE
from agentfsd.types import Change

_ROUNDS = 3
_MANY_CHANGES = 500  # which are looked at within 20 ms
_LARGE_BYTES = 16 << 20


class Overlay(Past):
    """The daemon's whole state. Refusal (an OSError) for every request that cannot be met; nothing has changed then."""

    # -- looking

    def diff(self, a: str | None, b: str | None) -> list[Change]:
        """What leads from *a* to *b* (None: the lower), sorted by path; cost follows what changed."""
        return tree_diff.between(self.parts, self.side(a), self.side(b))

    def diffing(self, old: Tree, new: Tree) -> Generator[tuple[int, int, str], None, list[Change]]:
        """Likewise, of two trees, in steps. Refusal when a tree is replaced meanwhile.

        Of many changes the answer is what there was at some step: trees are looked at until they have held still for that
        long, or are frozen. Of few it is as fresh as can be: files are read between steps, all else is as at the last one.
        """
        if layer_rows.hold_more(self.store, old.chain ^ new.chain, _MANY_CHANGES):
            for _ in range(_ROUNDS):
                held_still = yield from self._diffing_unless_changed(old, new)
                if held_still is not None:
                    return held_still
            if self._may_be_frozen(old, new):
                with self._frozen(old) as one, self._frozen(new) as two:
                    return (yield from tree_diff.between_in_steps(self.parts, one, two))
        verdicts = ComparisonResults()
        for _ in range(_ROUNDS):
            found = tree_diff.between(self.parts, old, new, verdicts)
            if not verdicts.open:
                return found
            for _ in verdicts.find_out():
                yield len(verdicts), 0, "comparing"
                if old.detached or new.detached:
                    raise Refusal(errno.ESTALE, "replaced", "a branch was restored or deleted while it was compared", "ask again")
        return tree_diff.between(self.parts, old, new)  # somebody goes on writing to files of the same size

    def _diffing_unless_changed(self, old: Tree, new: Tree) -> Generator[tuple[int, int, str], None, list[Change] | None]:
        """By views of their own, which seal nothing; None when names or inodes changed meanwhile."""
        heads = [tree.head for tree in (old, new)]
        before = [self.store.writes[head] for head in heads]
        with ExitStack() as held:
            one, two = (held.enter_context(self.pinned(tree.head, read_only=True)) for tree in (old, new))
            steps = tree_diff.between_in_steps(self.parts, one, two)
            while before == [self.store.writes[head] for head in heads]:
                try:
                    yield next(steps)
                except StopIteration as end:
                    found: list[Change] = end.value
                    return found
            steps.close()
        return None

    def _may_be_frozen(self, old: Tree, new: Tree) -> bool:
        """Whether nothing is open that would be copied for it when somebody writes on meanwhile."""
        open_files = [inode for tree in (old, new) if not tree.read_only for inode in tree.in_use() if inode.has_own_data]
        return not (
            old.external_writers
            or new.external_writers
            or any(inode.tree.data_stat(inode).st_size > _LARGE_BYTES for inode in open_files)
        )

    def _frozen(self, tree: Tree) -> AbstractContextManager[Tree]:
        return self.frozen(tree.id) if self.has_tree(tree.id) else nullcontext(tree)

    def side(self, ref: str | None) -> Tree:
        """One side of a comparison: a ref's tree, or the bare lower."""
        return self._open_tree("", 0, read_only=True) if ref is None else self.tree(ref)

    def fsck(self, *, scrub: bool = False) -> list[str]:
        """Problems in the stored state, one sentence each; empty when it is sound. *scrub*: contents are read, too."""
        return run_to_end(self.checking(scrub=scrub, alone=True))

    def checking(self, *, scrub: bool = False, alone: bool = False) -> Generator[tuple[int, int, str], None, list[str]]:
        """Likewise in steps, between which anything may change: yields (done, total, what). *alone*: nobody waits for one."""
        return consistency_check.check(self, scrub=scrub, alone=alone)

    def findings(self) -> list[str]:
        """What people should know of damage: what this start has found, and what was set aside."""
        kept = self.backstore.aside()
        sizes = sum(one.size for one in kept)
        aside = f"{len(kept)} set-aside contents ({sizes} bytes) are kept in {os.path.dirname(kept[0].path)}" if kept else ""
        return [*self.recovered.notes, *([aside] if aside else [])]

    def collecting(self) -> Generator[tuple[int, int, str], None, None]:
        """Frees all that nothing refers to, in steps; yields (done, total, what)."""
        done = 0
        gc.collect()  # trees that were replaced are cycles, and what they have open is not freed before them
        while self.reap():
            done += 1
            yield done, 0, "freeing"

    def heads(self) -> list[tuple[str, Tree]]:
        """Every branch and snapshot by name, for checks."""
        found = [(f"branch {row.name}", self.branch_tree(row.id)) for row in self._branches.values()]
        return found + [(f"snapshot {row.name}", self.snapshot_tree(row.id)) for row in self._snapshots.values()]

    def loaded(self) -> int:
        """Inodes that are in memory now."""
        return sum(len(tree.loaded()) for tree in self._trees.values())

    def garbage(self) -> list[int]:
        """The objects that wait to be freed."""
        return [number for layer in (GARBAGE, *layer_rows.dead(self.store)) for number in self.store.objects_of(layer)]

    def usage(self, contents: dict[str, int] | None = None) -> dict[str, int]:
        """*contents*: the backstore's, which looks at every object, where somebody has asked it already."""
        found = self.backstore.usage() if contents is None else contents
        return {"branches": len(self._branches), "snapshots": len(self._snapshots), **found}
