"""Taking, listing, counting and deleting snapshots."""

import errno
import time
from collections.abc import Iterable

from agentfsd.core.ids import check_name
from agentfsd.core.layer_lifecycle import Layers
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.overlay_state import OverlayState
from agentfsd.core.refs import Refs
from agentfsd.domain_errors import DamagedContent, Refusal
from agentfsd.metadata import checksum_rows, layer_rows
from agentfsd.metadata.row_store import Transaction
from agentfsd.metadata.rows import BranchRow, SnapshotRow, UndoRow
from agentfsd.types import SnapshotSummary

UNNAMED, RUN, SAFETY, MERGE = "unnamed", "run", "safety", "merge"  # kinds that nobody gave a name
TAGGED, NAMED, KEPT = "tagged", "", "kept"  # a tag and no name; a name; whoever took it said that it stays
_CANDIDATES = 5


class Snapshots:
    """The snapshots of one overlay. A *ref* is a name, an id or a unique prefix of one; Refusal when there is none."""

    def __init__(self, state: OverlayState, refs: Refs, layers: Layers, trees: OpenTrees) -> None:
        self._state, self._refs, self._layers, self._trees = state, refs, layers, trees

    # -- taking

    def create(
        self, branch_ref: str, name: str | None = None, tag: str = "", author_pid: int = 0, author: str = "", kind: str = "",
        *, temporary: bool = False,
    ) -> SnapshotSummary:  # fmt: skip
        """Fix a branch's state as it is now. Takes constant time.

        Args:
            branch_ref: The branch.
            name: None for a name that is made from the branch's.
            tag: Any word that people want to find it by.
            author_pid: The process that asks; 0 unknown.
            author: Its command.
            kind: See SnapshotSummary.
            temporary: Whether it goes with the conversation: see TemporaryRefs.

        Raises:
            Refusal: ``bad-name``, ``snapshot-exists``, or there is no such branch.
        """
        branch = self._refs.branch(branch_ref)
        if name is not None:
            check_name("snapshot", name)
        else:
            kind = kind or (TAGGED if tag else UNNAMED)
        with self._state.store.transaction() as tx:
            row = self.add(tx, branch, name, tag, author_pid, author, kind)
            self._state.mark_temporary(tx, [row.id] if temporary else [])
        return self._info(row)

    def add(
        self, tx: Transaction, branch: BranchRow, name: str | None, tag: str, author_pid: int, author: str, kind: str,
        layer: int | None = None,
    ) -> SnapshotRow:  # fmt: skip
        """Add a snapshot in the open transaction. *layer*: a sealed one of the branch's, instead of its state now."""
        if layer is None:
            layer = self._layers.seal(tx, branch)
        parent = next(iter(self._layers.snapshots_along(layer, branch.id, branch.base_id)), None)
        row = SnapshotRow(
            self._state.ids.make(), name or self._free_name(branch.name), branch.name, branch.id, layer,
            parent.id if parent else "", time.time_ns(), tag, author_pid, None, None, kind, author,
        )  # fmt: skip
        layer_rows.put_snapshot(self._state.store, row)
        tx.put(self._state.snapshots, row.id, row)
        return row

    def _free_name(self, branch: str) -> str:
        """Make a name that no snapshot has had: somebody may have noted an old one. Within a transaction."""
        store = self._state.store
        taken = {row.name for row in self._state.snapshots.values()}
        key = f"snapshots of {branch}"
        number = 1 + int(store.value(key) or sum(row.branch == branch for row in self._state.snapshots.values()))
        while f"{branch[:100]}-{number}" in taken:
            number += 1
        store.put_value(key, str(number))
        return f"{branch[:100]}-{number}"

    # -- looking

    def all(self, branch: str | None = None) -> list[SnapshotSummary]:
        """Describe the snapshots that were taken of one branch, or all, oldest first."""
        rows = sorted(self._state.snapshots.values())
        if branch is not None:
            branch_id = self._refs.branch(branch).id
            rows = [row for row in rows if row.branch_id == branch_id]
        return [self._info(row) for row in rows]

    def info(self, ref: str) -> SnapshotSummary:
        """Describe a snapshot; its counts are -1 until somebody asks count() for them."""
        return self._info(self._refs.snapshot(ref))

    def _info(self, row: SnapshotRow) -> SnapshotSummary:
        return SnapshotSummary(
            row.name, row.id, row.branch, row.parent, row.created_ns, row.tag, row.author_pid,
            row.file_count if row.file_count is not None else -1,
            row.bytes_changed if row.bytes_changed is not None else -1,
            row.kind, row.author, self._merged_since_parent(row),
        )  # fmt: skip

    def count(self, ref: str) -> SnapshotSummary:
        """Describe a snapshot with its counts since its parent, entries and bytes; they are made when first asked for."""
        row = self._refs.snapshot(ref)
        if row.file_count is None:
            store = self._state.store
            older = self._layers_of_parent(row)
            own = [layer for layer in layer_rows.chain(store, row.layer) if layer not in older]
            copies = set().union(*self._layers.unchanged_copies(own))
            files = sum(layer_rows.counting_entries(store, own)) - len(copies)
            objects = {number for layer in own for number in store.contents_of(layer)} - copies
            size_bytes = sum(map(self._size_of, objects))
            with store.transaction():
                layer_rows.set_snapshot_counts(store, row.id, files, size_bytes)
            row = self._state.snapshots[row.id] = row._replace(file_count=files, bytes_changed=size_bytes)
        return self._info(row)

    def _size_of(self, number: int) -> int:
        """Return the size of an object in bytes; that of a lost one is what it had when it was sealed."""
        try:
            return self._state.backstore.stat(number).st_size
        except DamagedContent:
            return checksum_rows.size_of(self._state.store, number)

    def _merged_since_parent(self, row: SnapshotRow) -> tuple[str, ...]:
        store = self._state.store
        merges = layer_rows.merges(store)
        if not merges:
            return ()
        older = self._layers_of_parent(row)
        own = [layer for layer in layer_rows.chain(store, row.layer) if layer not in older]
        merged = {other for layer in own for other in merges.get(layer, ())}
        return tuple(other.id for other in sorted(self._state.snapshots.values()) if other.layer in merged)

    def _layers_of_parent(self, row: SnapshotRow) -> set[int]:
        """Return the layers that the snapshot before had already."""
        parent = self._state.snapshots.get(row.parent)
        return set(layer_rows.chain(self._state.store, parent.layer)) if parent else set()

    def log(self, ref: str) -> list[SnapshotSummary]:
        """Describe the snapshots in the history of a branch or snapshot, newest first."""
        row = self._refs.find(ref)
        if isinstance(row, BranchRow):
            along = self._layers.snapshots_along(row.head, row.id, row.base_id)
        else:
            along = self._layers.snapshots_along(row.layer, row.branch_id)
        return [self.count(snapshot.id) for snapshot in along]

    def in_history(self, branch_id: str, snapshot_id: str) -> bool:
        """Return whether a snapshot is part of a branch's own history (or was taken of that branch)."""
        branch, snapshot = self._state.branches.get(branch_id), self._state.snapshots.get(snapshot_id)
        if branch is None or snapshot is None:
            return False
        return snapshot.branch_id == branch_id or snapshot.layer in layer_rows.chain(self._state.store, branch.head)

    def tagged(self, tag: str, branch_ids: Iterable[str], within: str | None = None) -> SnapshotRow | None:
        """Find the newest snapshot with a tag, of the first of some branches that has any, or else of the only one that has.

        A branch has its own snapshots before those of its history.

        Args:
            tag: The tag.
            branch_ids: The branches, those to look at first come first.
            within: A branch id, outside of whose history nothing counts.

        Returns:
            None where there is none.

        Raises:
            Refusal: ``ambiguous`` where several branches have some.
        """
        rows = [row for row in self._state.snapshots.values() if row.tag == tag and row.id not in self._state.temporary]
        rows.sort(reverse=True)
        if within is not None:
            rows = [row for row in rows if self.in_history(within, row.id)]
        for branch_id in branch_ids:
            own = [row for row in rows if row.branch_id == branch_id]
            own = own or [row for row in rows if self.in_history(branch_id, row.id)]
            if own:
                return own[0]
        newest = {row.branch_id: row for row in reversed(rows)}
        if len(newest) > 1:
            names = [f"{row.name} (of {row.branch})" for row in sorted(newest.values(), reverse=True)]
            shown = ", ".join(names[:_CANDIDATES]) + (f" and {len(names) - _CANDIDATES} more" if len(names) > _CANDIDATES else "")
            raise Refusal(
                errno.EINVAL, "ambiguous", f"{len(names)} branches have snapshots tagged {tag!r}, the newest of each: {shown}",
                "name one of them, or the branch where the command takes one",
            )  # fmt: skip
        return next(iter(newest.values()), None)

    # -- deleting

    def delete(self, ref: str) -> None:
        """Remove a snapshot and what only it held."""
        self.delete_rows([self._refs.snapshot(ref)])

    def delete_rows(self, rows: Iterable[SnapshotRow]) -> None:
        """Remove some snapshots, each in a transaction of its own."""
        for row in list(rows):
            with self._state.store.transaction() as tx:
                self._delete(tx, row)
            self._trees.detach(row.id)

    def _delete(self, tx: Transaction, row: SnapshotRow) -> None:
        state = self._state
        layer_rows.delete_snapshot(state.store, row.id, row.parent)
        tx.put(state.snapshots, row.id, None)
        state.unmark_temporary(tx, row.id)
        for other in [other for other in state.snapshots.values() if other.parent == row.id]:
            tx.put(state.snapshots, other.id, other._replace(parent=row.parent))
        for entry in [entry for entry in state.undo_rows.values() if entry.snapshot == row.id]:
            self.forget_undo(tx, entry)
        self._layers.release(tx, row.layer)

    def forget_undo(self, tx: Transaction, row: UndoRow) -> None:
        """Forget something that could be undone, in the open transaction; its snapshot stays."""
        layer_rows.delete_undo_entry(self._state.store, row.id)
        tx.put(self._state.undo_rows, row.id, None)
        self._layers.release(tx, row.branch.base_layer)
