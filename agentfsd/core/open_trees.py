"""The open trees of an overlay: live trees of branches, read-only trees of snapshots, temporary trees of running work."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agentfsd.core.layer_lifecycle import Layers
from agentfsd.core.open_files import carry_over
from agentfsd.core.overlay_state import OverlayState
from agentfsd.core.refs import Refs
from agentfsd.core.tree import Parts, Tree
from agentfsd.domain_errors import not_found
from agentfsd.metadata import layer_rows
from agentfsd.metadata.rows import BranchRow
from agentfsd.types import Lower


class OpenTrees:
    """Opens the trees of one overlay, each branch's and snapshot's once."""

    def __init__(self, state: OverlayState, refs: Refs, layers: Layers) -> None:
        self._state, self._refs, self._layers = state, refs, layers
        self._numbers = itertools.count(1)

    @property
    def parts(self) -> Parts:
        """The parts that all trees share, such as the store, the lower and the backstore."""
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
        """Return the view of the branch or snapshot that a ref names; Refusal like Refs.find()."""
        row = self._refs.find(ref)
        return self.of_branch(row.id) if isinstance(row, BranchRow) else self.of_snapshot(row.id)

    def side(self, ref: str | None) -> Tree:
        """Return the tree of a ref for a comparison. None opens a read-only tree of the bare lower."""
        return self._open("", 0, read_only=True) if ref is None else self.of(ref)

    def in_use(self) -> Iterator[Tree]:
        """Yield every open tree, and those that were replaced but are still in use."""
        yield from self._state.trees.values()
        yield from self._state.replaced

    def share_lower(self, one: int, other: int) -> bool:
        """Return whether the same lower is beneath two layers."""
        return self._state.lowers.name(one) == self._state.lowers.name(other)

    def branch_ids(self) -> list[str]:
        """Return the id of every branch, in order of creation."""
        return sorted(self._state.branches)

    def named(self) -> list[tuple[str, Tree]]:
        """Return (label, tree) of every branch and snapshot, except those whose frozen base is lost.

        The label is for people, such as "branch main".
        """
        lowers = self._state.lowers
        return [(label, self.by_id(ref)) for label, ref, layer in self._labels() if not lowers.why_lost(lowers.name(layer))]

    def bases(self) -> dict[str, list[str]]:
        """Return the id of every frozen base that a branch or snapshot shows, with the labels of these."""
        found = dict[str, list[str]]()
        for label, _, layer in self._labels():
            if name := self._state.lowers.name(layer):
                found.setdefault(name, []).append(label)
        return found

    def damage_of(self, base: str) -> Iterator[str]:
        """Yield what is wrong with a frozen base, as Lower.damage() does."""
        if why := self._state.lowers.why_lost(base):
            yield why
        else:
            yield from self._state.lowers.called(base).damage()

    def _labels(self) -> list[tuple[str, str, int]]:
        """Return (label, id, layer) of every branch and snapshot."""
        state = self._state
        branches = [(f"branch {row.name}", row.id, row.head) for row in state.branches.values()]
        return branches + [(f"snapshot {row.name}", row.id, row.layer) for row in state.snapshots.values()]

    def loaded(self) -> int:
        """Return how many inodes the open trees hold in memory."""
        return sum(len(tree.loaded()) for tree in self._state.trees.values())

    def _open(self, tree_id: str, head: int, *, read_only: bool, over: Lower | None = None) -> Tree:
        lower, chain = self._state.lowers.of(head) if over is None else over, layer_rows.chain(self.parts.store, head)
        if lower is self.parts.lower:
            return Tree(self.parts, tree_id, head, chain, read_only=read_only)
        is_own = self._state.lowers.of(head) is lower and not self._has_rows_beneath_base(chain)
        return Tree(self.parts._replace(lower=lower), tree_id, head, chain, read_only=read_only, on_base=is_own)

    def _has_rows_beneath_base(self, chain: Sequence[int]) -> bool:
        """Return whether something in a chain was changed over the real directory, before the chain got its base."""
        store, bases = self.parts.store, layer_rows.bases(self.parts.store)
        newest = next(number for number in chain if number in bases)
        beneath = [number for number in chain if number < newest]
        return newest in layer_rows.mixed_layers(store) or any(not layer_rows.is_empty(store, number) for number in beneath)

    def detach(self, tree_id: str, *, carry: bool = False) -> None:
        """Detach the tree of a branch or snapshot whose state was replaced or removed.

        With *carry*, open files move to the branch's new tree.
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
    def frozen(self, ref: str | None, *, readers_follow: bool = True, over: Lower | None = None) -> Iterator[Tree]:
        """Seal a ref and open a read-only view of it, for work that takes longer than one step.

        The view goes at the end of the block.

        Args:
            ref: None for the bare lower.
            readers_follow: See Layers.seal(). False for work that later replaces the branch's state: it does so only if the new
                head is still empty, and copies for readers would fill it.
            over: What to show the ref's changes over; None for what lies beneath the ref.
        """
        layer = 0
        if ref is not None:
            with self.parts.store.transaction() as tx:
                layer = self._layers.seal(tx, self._refs.find(ref), readers_follow=readers_follow)
        with self.pinned(layer, read_only=True, over=over) as tree:
            yield tree

    @contextmanager
    def made_from(self, branch_ref: str, *, over: Lower | None = None) -> Iterator[Tree]:
        """Open a read-only view of the state that a branch was made from. It goes at the end of the block.

        *over*: what to show it over; None for what lies beneath the branch.
        """
        branch = self._refs.branch(branch_ref)
        beneath = self._state.lowers.of(branch.head) if over is None else over
        with self.pinned(branch.base_layer, read_only=True, over=beneath) as tree:
            yield tree

    @contextmanager
    def pinned(self, layer: int, *, read_only: bool, over: Lower | None = None) -> Iterator[Tree]:
        """Open a view of a layer, and keep the layer until the end of the block.

        Afterwards the layer is freed unless something else refers to it. *over*: as in frozen().
        """
        try:
            with self.kept(layer, read_only=read_only, over=over) as tree:
                yield tree
        finally:
            with self.parts.store.transaction() as tx:
                self._layers.release(tx, layer)

    @contextmanager
    def kept(self, layer: int, *, read_only: bool = True, over: Lower | None = None) -> Iterator[Tree]:
        """Open a view of a sealed layer as pinned() does. At the end of the block the layer stays in its branch."""
        state, tree_id = self._state, f"~{next(self._numbers)}"
        state.pins[layer] += 1
        tree = state.trees[tree_id] = self._open(tree_id, layer, read_only=read_only, over=over)
        try:
            yield tree
        finally:
            state.trees.pop(tree_id, None)
            tree.detached = True
            state.pins[layer] -= 1
            if not state.pins[layer]:
                del state.pins[layer]

    @contextmanager
    def writable_at(self, layer: int) -> Iterator[Tree]:
        """Open a sealed layer in order to add rows to it. What it shows must stay the same, since others show it, too.

        A tree in memory that has rows of that layer does not notice.
        """
        lower = self._state.lowers.of(layer)
        opened = next((tree for tree in self._state.trees.values() if tree.head == layer and tree.lower is lower), None)
        if opened is not None:
            yield opened
        else:
            with self.pinned(layer, read_only=False) as tree:
                yield tree

    @contextmanager
    def scratch(self, base: Tree) -> Iterator[Tree]:
        """Open a writable view above a frozen one, over the same lower.

        The caller may make the view's layer part of a branch before the block ends. Otherwise the layer is freed.
        """
        with self.parts.store.transaction():
            layer = layer_rows.new_layer(self.parts.store, base.head)
        with self.pinned(layer, read_only=False, over=base.lower) as tree:
            yield tree
