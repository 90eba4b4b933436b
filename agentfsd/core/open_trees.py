"""The trees of an overlay that are open: live ones of branches, read-only ones of snapshots, and those of work under way."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from agentfsd.core.layer_lifecycle import Layers
from agentfsd.core.open_files import carry_over
from agentfsd.core.overlay_state import OverlayState
from agentfsd.core.refs import Refs
from agentfsd.core.tree import Parts, Tree
from agentfsd.domain_errors import not_found
from agentfsd.metadata import layer_rows
from agentfsd.metadata.rows import BranchRow


class OpenTrees:
    """Opens the trees of one overlay, each once."""

    def __init__(self, state: OverlayState, refs: Refs, layers: Layers) -> None:
        self._state, self._refs, self._layers = state, refs, layers
        self._numbers = itertools.count(1)

    @property
    def parts(self) -> Parts:
        """What every tree is made with."""
        return self._state.parts

    # -- of branches and snapshots

    def of_branch(self, branch_id: str) -> Tree:
        """Return the live view of a branch; Refusal ``no-such-branch``."""
        tree = self._state.trees.get(branch_id)
        if tree is None:
            row = self._state.branches.get(branch_id)
            if row is None:
                raise not_found("branch", branch_id)
            tree = self._state.trees[branch_id] = self._open(branch_id, row.head, read_only=False)
        return tree

    def of_snapshot(self, snapshot_id: str) -> Tree:
        """Return the read-only view of a snapshot; Refusal ``no-such-snapshot``."""
        tree = self._state.trees.get(snapshot_id)
        if tree is None:
            row = self._state.snapshots.get(snapshot_id)
            if row is None:
                raise not_found("snapshot", snapshot_id)
            tree = self._state.trees[snapshot_id] = self._open(snapshot_id, row.layer, read_only=True)
        return tree

    def by_id(self, tree_id: str) -> Tree:
        """Return the view of a branch or snapshot by id; Refusal when there is neither."""
        known = self._state.trees.get(tree_id)
        if known is not None:
            return known
        return self.of_branch(tree_id) if tree_id in self._state.branches else self.of_snapshot(tree_id)

    def of(self, ref: str) -> Tree:
        """Return the view of whatever a ref names; Refusal like Refs.find()."""
        row = self._refs.find(ref)
        return self.of_branch(row.id) if isinstance(row, BranchRow) else self.of_snapshot(row.id)

    def side(self, ref: str | None) -> Tree:
        """Return one side of a comparison: a ref's tree, or the bare lower for None."""
        return self._open("", 0, read_only=True) if ref is None else self.of(ref)

    def branch_ids(self) -> list[str]:
        """Return the id of every branch, in order of creation."""
        return sorted(self._state.branches)

    def named(self) -> list[tuple[str, Tree]]:
        """Return every branch and snapshot with a label for people, such as "branch main"."""
        state = self._state
        branches = [(f"branch {row.name}", self.of_branch(row.id)) for row in state.branches.values()]
        return branches + [(f"snapshot {row.name}", self.of_snapshot(row.id)) for row in state.snapshots.values()]

    def loaded(self) -> int:
        """Return how many inodes are in memory now."""
        return sum(len(tree.loaded()) for tree in self._state.trees.values())

    def _open(self, tree_id: str, head: int, *, read_only: bool) -> Tree:
        return Tree(self.parts, tree_id, head, layer_rows.chain(self.parts.store, head), read_only=read_only)

    def detach(self, tree_id: str, *, carry: bool = False) -> None:
        """Detach the tree of a branch or snapshot whose state was replaced or removed.

        With *carry*, open files go on in the branch's new tree.
        """
        tree = self._state.trees.pop(tree_id, None)
        if tree is not None:
            tree.detached = True
            self._state.replaced.add(tree)
            if carry:
                carry_over(tree, self.of_branch(tree_id))
            self._state.events.tree_replaced(tree)

    # -- of work under way

    @contextmanager
    def frozen(self, ref: str | None, *, readers_follow: bool = True) -> Iterator[Tree]:
        """Open a read-only view of a ref as it is now, for work that takes longer than one step.

        Args:
            ref: None for the bare lower.
            readers_follow: False for work that puts something else in the branch's place, which is only done to a branch that has
                not changed since: see Layers.seal().
        """
        layer = 0
        if ref is not None:
            with self.parts.store.transaction() as tx:
                layer = self._layers.seal(tx, self._refs.find(ref), readers_follow=readers_follow)
        with self.pinned(layer, read_only=True) as tree:
            yield tree

    @contextmanager
    def made_from(self, branch_ref: str) -> Iterator[Tree]:
        """Open what a branch was when it was made."""
        with self.pinned(self._refs.branch(branch_ref).base_layer, read_only=True) as tree:
            yield tree

    @contextmanager
    def pinned(self, layer: int, *, read_only: bool) -> Iterator[Tree]:
        """Open a view of a layer and keep the layer until the end of the block; then it goes unless something refers to it."""
        state, tree_id = self._state, f"~{next(self._numbers)}"
        state.pins[layer] += 1
        tree = state.trees[tree_id] = self._open(tree_id, layer, read_only=read_only)
        try:
            yield tree
        finally:
            state.trees.pop(tree_id, None)
            tree.detached = True
            state.pins[layer] -= 1
            if not state.pins[layer]:
                del state.pins[layer]
            with self.parts.store.transaction() as tx:
                self._layers.release(tx, layer)

    @contextmanager
    def scratch(self, base: Tree) -> Iterator[Tree]:
        """Open a writable view above a frozen one, to be taken into use as a whole (or not at all)."""
        with self.parts.store.transaction():
            layer = layer_rows.new_layer(self.parts.store, base.head)
        with self.pinned(layer, read_only=False) as tree:
            yield tree
