"""The layers of an overlay: sealing a branch's head, finding common ancestors, freeing what nothing refers to any more.

A snapshot seals the branch's head layer and puts an empty one above it; a branch is a new head above a sealed
layer. Neither looks at a single file.
"""

import gc
from collections.abc import Generator, Iterable, Iterator

from agentfsd.core import copyup, reap
from agentfsd.core.overlay_state import OverlayState
from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import layer_rows
from agentfsd.metadata.row_store import GARBAGE, Transaction
from agentfsd.metadata.rows import BranchRow, SnapshotRow

# An external reader follows its file across a snapshot only if the copy that this takes is no larger.
_READERS_COPY_BYTES = 1 << 16


class Layers:
    """The layers of one overlay."""

    def __init__(self, state: OverlayState) -> None:
        self._state = state
        self._written: set[int] = set()  # objects that are known to differ from the lower's: not looked at again

    # -- sealing

    def seal(self, tx: Transaction, origin: BranchRow | SnapshotRow, *, readers_follow: bool = True) -> int:
        """Return the layer that holds the state of a ref now; a branch gets a new head above it unless its head is empty.

        Args:
            tx: The open transaction.
            origin: The row of the branch or snapshot.
            readers_follow: Whether external readers of a file go on with the branch's copy where that is cheap. The new head is
                not empty then.
        """
        if isinstance(origin, SnapshotRow):
            return origin.layer
        state, head = self._state, origin.head
        if layer_rows.is_empty(state.store, head):
            return layer_rows.parents(state.store)[head]
        new_head = layer_rows.new_layer(state.store, head)
        layer_rows.set_head(state.store, origin.id, new_head)
        tx.put(state.branches, origin.id, origin._replace(head=new_head))
        tree = state.trees.get(origin.id)
        if tree is not None:
            tx.set(tree, head=new_head, chain=tree.chain | {new_head})
            if state.backstore.native_snapshots != "none":  # a reflink waits for what is dirty: let the disk have all at once
                for inode in tree.external_writers:
                    if inode.file is not None:
                        inode.file.start_writeback()
            for inode in list(tree.external_writers):
                copyup.keep_original(tx, inode, head)
            for inode in tree.external_readers.difference(tree.external_writers) if readers_follow else ():
                copyup.keep_original(tx, inode, head, _READERS_COPY_BYTES)
        return head

    def replace_head(self, tx: Transaction, branch: BranchRow, layer: int) -> None:
        """Give a branch a new, empty head above *layer*; what it had goes unless something else refers to it."""
        head = layer_rows.new_layer(self._state.store, layer)
        layer_rows.set_head(self._state.store, branch.id, head)
        tx.put(self._state.branches, branch.id, branch._replace(head=head))
        self.release(tx, branch.head)

    # -- history

    def own(self, branch: BranchRow) -> list[int]:
        """Return the layers of a branch since what it was made from."""
        base = set(layer_rows.chain(self._state.store, branch.base_layer))
        return [layer for layer in layer_rows.chain(self._state.store, branch.head) if layer not in base]

    def holds_nothing(self, branch: BranchRow) -> bool:
        """Return whether a branch is still what it was made from."""
        return all(layer_rows.is_empty(self._state.store, layer) for layer in self.own(branch))

    def is_bare(self, layer: int) -> bool:
        """Return whether the state that a layer stands for is the lower's."""
        store = self._state.store
        return all(layer_rows.is_empty(store, number) for number in layer_rows.chain(store, layer))

    def common(self, ours: Iterable[int], theirs: int) -> int:
        """Return the newest layer whose state all those of *ours* together, and *theirs*, hold; 0: the bare lower.

        Merges count: a layer holds what was merged into it.
        """
        parents, merges = layer_rows.parents(self._state.store), layer_rows.merges(self._state.store)
        return max(_ancestors(ours, parents, merges) & _ancestors([theirs], parents, merges), default=0)

    def snapshots_along(self, head: int, *branch_ids: str) -> list[SnapshotRow]:
        """Return the snapshots along the chain of *head*, newest first.

        All chains end at the bare lower; of its snapshots only those of *branch_ids* count.
        """
        depths = {layer: depth for depth, layer in enumerate(layer_rows.chain(self._state.store, head))}
        depths[0] = len(depths)
        rows = self._state.snapshots.values()
        along = [row for row in rows if row.layer in depths and (row.layer or row.branch_id in branch_ids)]
        along.sort(key=lambda row: row.id, reverse=True)
        return sorted(along, key=lambda row: depths[row.layer])

    # -- counting

    def unchanged_copies(self, layers: Iterable[int]) -> Iterator[set[int]]:
        """Yield sets of objects in some layers that were copied up and not changed since, told by size and time.

        Each step looks at one page of rows.
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
        """Free those of some layers that nothing refers to any more, in the open transaction."""
        held = self._held()
        for layer in released:
            reap.let_go(tx, self._state.parts, layer, held, list(self._state.trees.values()))

    def _held(self) -> set[int]:
        """Return the layers that something refers to."""
        state = self._state
        held = {row.head for row in state.branches.values()} | {row.base_layer for row in state.branches.values()}
        held |= {row.layer for row in state.snapshots.values()} | {row.branch.base_layer for row in state.undo_rows.values()}
        return held | state.pins.keys()

    def drop_unfinished(self) -> None:
        """After a start: free what a killed daemon was building, and nothing refers to."""
        held, known = self._held(), layer_rows.parents(self._state.store)
        leaves = known.keys() - set(known.values()) - held
        if leaves:
            with self._state.store.transaction() as tx:
                self.release(tx, *leaves)

    def reap(self, limit: int = 500) -> bool:
        """Remove up to *limit* rows and objects of what is garbage; True when more is left. For quiet moments."""
        open_objects = {inode.content for tree in self._state.replaced for inode in tree.loaded()}
        return reap.step(self._state.store, self._state.backstore, limit, open_objects)

    def reap_in_steps(self) -> Generator[tuple[int, int, str], None, None]:
        """Free all garbage; yields (done, 0, "freeing") after each step."""
        done = 0
        gc.collect()  # trees that were replaced are cycles, and what they have open is not freed before them
        while self.reap():
            done += 1
            yield done, 0, "freeing"

    def garbage(self) -> list[int]:
        """Return the objects that wait to be freed."""
        store = self._state.store
        return [number for layer in (GARBAGE, *layer_rows.dead(store)) for number in store.objects_of(layer)]


def _ancestors(start: Iterable[int], parents: dict[int, int], merges: dict[int, list[int]]) -> set[int]:
    todo, seen = [layer for layer in start if layer in parents], set[int]()
    while todo:
        layer = todo.pop()
        if layer in seen:
            continue
        seen.add(layer)
        todo += [above for above in (parents[layer], *merges.get(layer, ())) if above in parents]
    return seen
