"""The layers of an overlay: sealing a branch's head, finding common ancestors, freeing unreferenced layers.

Taking a snapshot seals the branch's head layer and puts an empty one above it. Making a branch puts a new head above a sealed
layer. Neither goes through the files.
"""

import errno
import gc
from collections import Counter
from collections.abc import Generator, Iterable, Iterator

from agentfsd.core import copyup, lent_branches, reap
from agentfsd.core.left_conflicts import needed_layers
from agentfsd.core.overlay_state import OverlayState
from agentfsd.domain_errors import DamagedContent, Refusal
from agentfsd.metadata import conflict_rows, layer_rows
from agentfsd.metadata.row_store import GARBAGE
from agentfsd.metadata.rows import BranchRow, SnapshotRow, UnfinishedRow
from agentfsd.metadata.transaction import Transaction

# Sealing copies a file for its external readers only if the copy is at most this large.
_READERS_COPY_BYTES = 1 << 16


class Layers:
    """The layers of one overlay."""

    def __init__(self, state: OverlayState) -> None:
        self._state = state
        self._written: set[int] = set()  # objects that _is_copy() has found to differ from the lower's file

    # -- sealing

    def seal(self, tx: Transaction, origin: BranchRow | SnapshotRow, *, readers_follow: bool = True) -> int:
        """Seal the state of a ref. A branch gets a new head above the sealed layer, unless its head is empty already.

        A head into which layers were merged is not empty: it tells what the branch has in common with others. Nor is one with a
        frozen base.

        Args:
            tx: The open transaction.
            origin: The row of the branch or snapshot.
            readers_follow: Whether a process that reads a file through a real descriptor goes on reading the branch's file, where
                that copies at most 64 KiB. The new head is not empty then.

        Returns:
            The sealed layer, which holds the state of the ref; 0: the bare lower.
        """
        if isinstance(origin, SnapshotRow):
            return origin.layer
        state, head = self._state, origin.head
        is_plain = not (layer_rows.has_merges(state.store, head) or layer_rows.has_base(state.store, head))
        if is_plain and layer_rows.is_empty(state.store, head):
            return layer_rows.parents(state.store)[head]
        new_head = layer_rows.new_layer(state.store, head)
        layer_rows.set_head(state.store, origin.id, new_head)
        tx.put(state.branches, origin.id, origin._replace(head=new_head))
        tree = state.trees.get(origin.id)
        if tree is not None:
            tx.set(tree, head=new_head, chain=tree.chain | {new_head})
            if state.backstore.native_snapshots != "none":  # a reflink waits for dirty pages: write those of all files at once
                for inode in tree.external_writers:
                    if inode.file is not None:
                        inode.file.start_writeback()
            if tree.lent is not None:
                tree.lent.keep_originals(tx, head)
            for inode in list(tree.external_writers):
                copyup.keep_original(tx, inode, head)
            for inode in tree.external_readers.difference(tree.external_writers) if readers_follow else ():
                copyup.keep_original(tx, inode, head, _READERS_COPY_BYTES)
        return head

    def replace_head(self, tx: Transaction, branch: BranchRow, layer: int) -> None:
        """Give a branch a new, empty head above *layer*, and free its old layers that nothing else refers to.

        If the branch is lent, what programs see is kept until they are shown the new state.

        Raises:
            Refusal: ``branch-in-use`` if the branch is lent, and the layer shows another lower, which its mount cannot.
        """
        loan, lowers = lent_branches.find(self._state.store, branch.id), self._state.lowers
        if loan is not None and lowers.name(branch.head) != lowers.name(layer):
            raise Refusal(
                errno.EBUSY, "branch-in-use", f"a command runs in branch {branch.name!r}, in which its base cannot change",
                "end the command, and try again",
            )  # fmt: skip
        if loan is not None and not loan.shown:
            lent_branches.put(self._state.store, branch.id, loan._replace(shown=branch.head))
            self.pin(tx, branch.head)
        head = layer_rows.new_layer(self._state.store, layer)
        layer_rows.set_head(self._state.store, branch.id, head)
        tx.put(self._state.branches, branch.id, branch._replace(head=head))
        self.release(tx, branch.head)

    def pin(self, tx: Transaction, layer: int) -> None:
        """Keep a layer, in the open transaction, until unpin()."""
        self._state.pins[layer] += 1
        tx.when_undone(lambda: self._unpin(layer))

    def unpin(self, tx: Transaction, layer: int) -> None:
        """Keep a layer no longer, in the open transaction. It is not freed yet: see release()."""
        self._unpin(layer)
        tx.when_undone(lambda: self._state.pins.update([layer]))

    def _unpin(self, layer: int) -> None:
        self._state.pins[layer] -= 1
        if self._state.pins[layer] <= 0:
            del self._state.pins[layer]

    # -- history

    def own(self, branch: BranchRow) -> list[int]:
        """Return the layers in a branch's chain that are not in the chain it was made from, newest first."""
        base = set(layer_rows.chain(self._state.store, branch.base_layer))
        return [layer for layer in layer_rows.chain(self._state.store, branch.head) if layer not in base]

    def holds_nothing(self, branch: BranchRow) -> bool:
        """Return whether all of a branch's own layers are empty."""
        return all(layer_rows.is_empty(self._state.store, layer) for layer in self.own(branch))

    def is_bare(self, layer: int) -> bool:
        """Return whether a layer and all its ancestors are empty, so that they show the bare lower."""
        store = self._state.store
        return all(layer_rows.is_empty(store, number) for number in layer_rows.chain(store, layer))

    def common(self, ours: Iterable[int], theirs: int) -> int:
        """Return the newest common ancestor of *theirs* and any layer of *ours*, for use as a merge base.

        The ancestors of a layer include the layer itself and the layers that were merged into it.

        Returns:
            The layer; 0 for the bare lower.
        """
        parents, merges = layer_rows.parents(self._state.store), layer_rows.merges(self._state.store)
        return max(ancestors(ours, parents, merges) & ancestors([theirs], parents, merges), default=0)

    def shared(self, branch_id: str, chain: Iterable[int]) -> int:
        """Return the newest layer of *chain* that another branch or a snapshot has in its chain or has merged; 0 for none.

        Args:
            branch_id: The branch whose chain it is or was.
            chain: Layers, the newest first.
        """
        heads = [branch.head for branch in self._state.branches.values() if branch.id != branch_id]
        heads += [snapshot.layer for snapshot in self._state.snapshots.values()]
        in_others = ancestors(heads, layer_rows.parents(self._state.store), layer_rows.merges(self._state.store))
        return next((layer for layer in chain if layer in in_others), 0)

    def snapshots_along(self, head: int, *branch_ids: str) -> list[SnapshotRow]:
        """Return the snapshots along the chain of *head*, newest first.

        Every chain ends at the bare lower, so a snapshot of the bare lower counts only if it was taken of one of *branch_ids*.
        """
        depths = {layer: depth for depth, layer in enumerate(layer_rows.chain(self._state.store, head))}
        depths[0] = len(depths)
        rows = self._state.snapshots.values()
        along = [row for row in rows if row.layer in depths and (row.layer or row.branch_id in branch_ids)]
        along.sort(key=lambda row: row.id, reverse=True)
        return sorted(along, key=lambda row: depths[row.layer])

    # -- counting

    def unchanged_copies(self, layers: Iterable[int]) -> Iterator[set[int]]:
        """Yield the objects in some layers that were copied up and never changed, judging by size and modification time.

        Each set comes from one page of rows.
        """
        for layer in layers:
            for page in layer_rows.possible_copies(self._state.store, layer):
                yield {
                    number
                    for number, size, mtime_ns in page
                    if number not in self._written and self._is_copy(number, size, mtime_ns)
                }

    def _is_copy(self, number: int, size: int, mtime_ns: int) -> bool:
        try:
            stat = self._state.backstore.stat(number)
        except DamagedContent:  # freed since the last step, or lost
            return False
        if (stat.st_size, stat.st_mtime_ns) == (size, mtime_ns):
            return True
        self._written.add(number)
        return False

    # -- freeing

    def release(self, tx: Transaction, *released: int) -> None:
        """Free, in the open transaction, those of the given layers that nothing refers to any more."""
        held = self._held()
        for layer in released:
            reap.let_go(tx, self._state.parts, layer, held, list(self._state.trees.values()))
        for row in self._ended_merges():
            needed = needed_layers(row)
            conflict_rows.delete(self._state.store, row.id)
            for layer in needed:
                self.unpin(tx, layer)
            self.release(tx, *dict.fromkeys(needed))

    def _ended_merges(self) -> list[UnfinishedRow]:
        """Return the rows of merges with conflicts that no state is in any more."""
        state = self._state
        rows = conflict_rows.read(state.store)
        if not rows:
            return []
        own = Counter(layer for row in rows for layer in needed_layers(row))
        states = self._referred() | {layer for layer, users in state.pins.items() if users > own[layer]}
        parents = layer_rows.parents(state.store)
        return [row for row in rows if not _is_in_any(row.layer, conflict_rows.finished(state.store, row.id), states, parents)]

    def _held(self) -> set[int]:
        """Return the layers that a branch, a snapshot, an entry of the undo log or running work refers to."""
        return self._referred() | self._state.pins.keys()

    def _referred(self) -> set[int]:
        state = self._state
        held = {row.head for row in state.branches.values()} | {row.base_layer for row in state.branches.values()}
        return (
            held | {row.layer for row in state.snapshots.values()} | {row.branch.base_layer for row in state.undo_rows.values()}
        )

    def drop_unfinished(self) -> None:
        """Free, after a start, the unreferenced layers that a killed daemon was building."""
        held, known = self._held(), layer_rows.parents(self._state.store)
        leaves = known.keys() - set(known.values()) - held
        if leaves:
            with self._state.store.transaction() as tx:
                self.release(tx, *leaves)

    def reap(self, limit: int = 500) -> bool:
        """Remove garbage: up to *limit* objects, or up to *limit* rows of each table. To be called when the daemon is idle.

        Returns:
            Whether more may be left.
        """
        open_objects = {inode.content for tree in self._state.replaced for inode in tree.loaded()}
        return reap.step(self._state.store, self._state.backstore, limit, open_objects | self._state.parts.doomed.numbers())

    def reap_in_steps(self) -> Generator[tuple[int, int, str], None, None]:
        """Free all garbage in steps.

        Yields:
            (number of steps done, 0 for an unknown total, "freeing") after each step.
        """
        done = 0
        gc.collect()  # replaced trees are reference cycles: they keep their open objects until they are collected
        while self.reap():
            done += 1
            yield done, 0, "freeing"

    def garbage(self) -> list[int]:
        """Return the numbers of the objects that wait to be removed."""
        store = self._state.store
        return [number for layer in (GARBAGE, *layer_rows.dead(store)) for number in store.objects_of(layer)]


def ancestors(start: Iterable[int], parents: dict[int, int], merges: dict[int, list[int]]) -> set[int]:
    """Return layers with those below them, and all that was merged into these. *parents* and *merges*: what layer_rows says."""
    todo, seen = [layer for layer in start if layer in parents], set[int]()
    while todo:
        layer = todo.pop()
        if layer in seen:
            continue
        seen.add(layer)
        todo += [above for above in (parents[layer], *merges.get(layer, ())) if above in parents]
    return seen


def _is_in_any(layer: int, finished: set[int], states: Iterable[int], parents: dict[int, int]) -> bool:
    """Return whether one of *states* has *layer* in its chain, with none of *finished* above it."""
    for state in states:
        while state and state != layer and state not in finished:
            state = parents.get(state, 0)
        if state == layer and layer not in finished:
            return True
    return False
