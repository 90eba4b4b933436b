"""Takes, lists, counts and deletes snapshots."""

import errno
import time
from collections.abc import Iterable

from agentfsd.core.ids import check_name
from agentfsd.core.layer_lifecycle import Layers
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.overlay_state import OverlayState
from agentfsd.core.refs import Refs
from agentfsd.domain_errors import DamagedContent, Refusal
from agentfsd.metadata import checksum_rows, layer_rows, step_rows
from agentfsd.metadata.rows import BranchRow, SnapshotRow, StepRow, UndoRow
from agentfsd.metadata.transaction import Transaction
from agentfsd.types import SnapshotSummary

UNNAMED, RUN, STEP, SAFETY, MERGE = (
    "unnamed",
    "run",
    "step",
    "safety",
    "merge",
)  # kinds of snapshots without a name given by the user
TAGGED, NAMED, KEPT = "tagged", "", "kept"  # only a tag was given; a name was given; the user asked to keep it
_CANDIDATES = 5


class Snapshots:
    """The snapshots of one overlay.

    A *ref* is a name, an id or a unique prefix of an id. Methods that take one raise Refusal if there is no such snapshot.
    """

    def __init__(self, state: OverlayState, refs: Refs, layers: Layers, trees: OpenTrees) -> None:
        self._state, self._refs, self._layers, self._trees = state, refs, layers, trees

    # -- taking

    def create(
        self, branch_ref: str, name: str | None = None, tag: str = "", author_pid: int = 0, author: str = "", kind: str = "",
        *, temporary: bool = False,
    ) -> SnapshotSummary:  # fmt: skip
        """Take a snapshot of a branch's present state. Takes constant time.

        Args:
            branch_ref: The branch.
            name: None makes a name from that of the branch.
            tag: A word by which the user can find the snapshot; several snapshots may have the same. "" for none.
            author_pid: The process that asks; 0 for unknown.
            author: The command of that process.
            kind: See SnapshotSummary.
            temporary: Whether it is removed with the conversation that made it: see TemporaryRefs.

        Raises:
            Refusal: ``bad-name``, ``snapshot-exists``, or as Refs.branch().
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
        """Add a snapshot in the open transaction. The arguments are those of create(), already checked.

        Args:
            tx: The open transaction.
            branch: The branch.
            name: None makes a name from that of the branch.
            tag: "" for none.
            author_pid: The process that asks; 0 for unknown.
            author: The command of that process.
            kind: See SnapshotSummary.
            layer: A sealed layer of the branch; None seals its present state.
        """
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
        """Make a name that no snapshot of the branch has had before: the user may have noted an old name. Needs a transaction."""
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
        """Describe the snapshots that were taken of one branch, or of all branches, oldest first."""
        rows = sorted(self._state.snapshots.values())
        if branch is not None:
            branch_id = self._refs.branch(branch).id
            rows = [row for row in rows if row.branch_id == branch_id]
        return [self._info(row) for row in rows]

    def newest(self) -> dict[str, SnapshotRow]:
        """Return the newest snapshot that was taken of each branch, by the branch's id."""
        return {row.branch_id: row for row in sorted(self._state.snapshots.values())}

    def info(self, ref: str) -> SnapshotSummary:
        """Describe a snapshot. Its counts are -1 until count() has been called for it."""
        return self._info(self._refs.snapshot(ref))

    def _info(self, row: SnapshotRow) -> SnapshotSummary:
        return SnapshotSummary(
            row.name, row.id, row.branch, row.parent, row.created_ns, row.tag, row.author_pid,
            row.file_count if row.file_count is not None else -1,
            row.bytes_changed if row.bytes_changed is not None else -1,
            row.kind, row.author, self._merged_since_parent(row),
        )  # fmt: skip

    def count(self, ref: str) -> SnapshotSummary:
        """Describe a snapshot with its counts: changed entries and bytes of content since its parent.

        The first call counts and stores the result.
        """
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
        """Return the size of an object in bytes. For a lost object it is the size stored with its checksum."""
        try:
            return self._state.backstore.stat(number).st_size
        except DamagedContent:
            return checksum_rows.size_of(self._state.store, number)

    def _merged_since_parent(self, row: SnapshotRow) -> tuple[str, ...]:
        """Return the ids of the snapshots that were merged into the branch since the parent of a snapshot."""
        store = self._state.store
        merges = layer_rows.merges(store)
        if not merges:
            return ()
        older = self._layers_of_parent(row)
        own = [layer for layer in layer_rows.chain(store, row.layer) if layer not in older]
        merged = {other for layer in own for other in merges.get(layer, ())}
        return tuple(other.id for other in sorted(self._state.snapshots.values()) if other.layer in merged)

    def _layers_of_parent(self, row: SnapshotRow) -> set[int]:
        """Return the layers that the parent of a snapshot has as well."""
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

    def history_of(self, branch_id: str) -> set[str]:
        """Return the ids of all snapshots for which in_history() is true."""
        branch = self._state.branches.get(branch_id)
        if branch is None:
            return set()
        layers = set(layer_rows.chain(self._state.store, branch.head))
        return {row.id for row in self._state.snapshots.values() if row.branch_id == branch_id or row.layer in layers}

    def in_history(self, branch_id: str, snapshot_id: str) -> bool:
        """Return whether a snapshot was taken of a branch, or its layer is in the branch's chain."""
        branch, snapshot = self._state.branches.get(branch_id), self._state.snapshots.get(snapshot_id)
        if branch is None or snapshot is None:
            return False
        return snapshot.branch_id == branch_id or snapshot.layer in layer_rows.chain(self._state.store, branch.head)

    def tagged(self, tag: str, branch_ids: Iterable[str], within: str | None = None) -> SnapshotRow | None:
        """Find the newest snapshot with a tag. Temporary snapshots are left out.

        The search tries some branches in turn: first the snapshots taken of the branch, then those in its history. If none of
        them has the tag, only one branch may have snapshots with it.

        Args:
            tag: The tag.
            branch_ids: The branches to try, in this order.
            within: The id of a branch; only snapshots in its history are searched. None searches all.

        Returns:
            The snapshot; None if no snapshot has the tag.

        Raises:
            Refusal: ``ambiguous`` if several branches, none of them in *branch_ids*, have snapshots with the tag.
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
        """Delete a snapshot, and free the layers that only it referred to."""
        self.delete_rows([self._refs.snapshot(ref)])

    def delete_rows(self, rows: Iterable[SnapshotRow]) -> None:
        """Delete some snapshots, each in a transaction of its own."""
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
        for step in [step for step in state.steps.values() if step.snapshot == row.id]:
            self.forget_step(tx, step)
        self._layers.release(tx, row.layer)

    def forget_step(self, tx: Transaction, row: StepRow) -> None:
        """Delete a step of a session, in the open transaction. Its snapshot stays."""
        step_rows.delete(self._state.store, row.id)
        tx.put(self._state.steps, row.id, None)

    def forget_undo(self, tx: Transaction, row: UndoRow) -> None:
        """Delete an entry of the undo log, in the open transaction. Its snapshot stays."""
        layer_rows.delete_undo_entry(self._state.store, row.id)
        tx.put(self._state.undo_rows, row.id, None)
        self._layers.release(tx, row.branch.base_layer)
