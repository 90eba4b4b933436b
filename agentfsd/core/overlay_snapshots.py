"""Taking, listing, counting and deleting snapshots."""

import errno
import time
from collections.abc import Iterable

from agentfsd.core.ids import check_name
from agentfsd.core.refs import Refs
from agentfsd.errors import DamagedContent, Refusal
from agentfsd.metadata import checksum_rows, layer_rows
from agentfsd.metadata.row_store import Transaction
from agentfsd.metadata.rows import BranchRow, SnapshotRow, UndoRow
from agentfsd.types import SnapshotInfo

UNNAMED, RUN, SAFETY, MERGE = "unnamed", "run", "safety", "merge"  # kinds that nobody gave a name
TAGGED, NAMED, KEPT = "tagged", "", "kept"  # a tag and no name; a name; whoever took it said that it stays
_CANDIDATES = 5


class Snapshots(Refs):
    """What can be done with snapshots as such."""

    def create_snapshot(
        self, branch_ref: str, name: str | None = None, tag: str = "", author_pid: int = 0, author: str = "", kind: str = "",
        *, temporary: bool = False,
    ) -> SnapshotInfo:  # fmt: skip
        """Fixes a branch's state as it is now. O(1). *kind*: see SnapshotInfo. *temporary*: see drop_temporary()."""
        branch = self.branch_row(branch_ref)
        if name is not None:
            check_name("snapshot", name)
        else:
            kind = kind or (TAGGED if tag else UNNAMED)
        with self.store.transaction() as tx:
            row = self._add_snapshot(tx, branch, name, tag, author_pid, author, kind)
            self._mark_temporary(tx, [row.id] if temporary else [])
        return self._snapshot_info(row)

    def tagged(self, tag: str, branch_ids: Iterable[str], within: str | None = None) -> SnapshotRow | None:
        """The newest snapshot with a tag, of the first of these branches that has any, or else of the only one that has.

        A branch has its own snapshots before those of its history. *within*: a branch id, outside of whose history nothing
        counts. None where there is none; Refusal where several branches have some.
        """
        found = sorted(
            (row for row in self._snapshots.values() if row.tag == tag and row.id not in self._temporary), reverse=True
        )
        if within is not None:
            found = [row for row in found if self.in_history(within, row.id)]
        for number in branch_ids:
            own = [row for row in found if row.branch_id == number] or [row for row in found if self.in_history(number, row.id)]
            if own:
                return own[0]
        newest = {row.branch_id: row for row in reversed(found)}
        if len(newest) > 1:
            names = [f"{row.name} (of {row.branch})" for row in sorted(newest.values(), reverse=True)]
            shown = ", ".join(names[:_CANDIDATES]) + (f" and {len(names) - _CANDIDATES} more" if len(names) > _CANDIDATES else "")
            raise Refusal(
                errno.EINVAL, "ambiguous", f"{len(names)} branches have snapshots tagged {tag!r}, the newest of each: {shown}",
                "name one of them, or the branch where the command takes one",
            )  # fmt: skip
        return next(iter(newest.values()), None)

    def _add_snapshot(
        self, tx: Transaction, branch: BranchRow, name: str | None, tag: str, author_pid: int, author: str, kind: str,
        layer: int | None = None,
    ) -> SnapshotRow:  # fmt: skip
        """*layer*: a sealed one of the branch's, instead of its state now."""
        if layer is None:
            layer = self._sealed_layer(tx, branch)
        parent = next(iter(self._history(layer, branch.id, branch.base_id)), None)
        row = SnapshotRow(
            self._ids.make(), name or self._free_name(branch.name), branch.name, branch.id, layer, parent.id if parent else "",
            time.time_ns(), tag, author_pid, None, None, kind, author,
        )  # fmt: skip
        layer_rows.put_snapshot(self.store, row)
        tx.put(self._snapshots, row.id, row)
        return row

    def _free_name(self, branch: str) -> str:
        """One that no snapshot has had: who has noted it must not be given another state by it. Within a transaction."""
        taken = {row.name for row in self._snapshots.values()}
        key = f"snapshots of {branch}"
        number = 1 + int(self.store.value(key) or sum(row.branch == branch for row in self._snapshots.values()))
        while f"{branch[:100]}-{number}" in taken:
            number += 1
        self.store.put_value(key, str(number))
        return f"{branch[:100]}-{number}"

    def list_snapshots(self, branch: str | None = None) -> list[SnapshotInfo]:
        """Oldest first; those taken of one branch, or all."""
        rows = sorted(self._snapshots.values())
        if branch is not None:
            branch_id = self.branch_row(branch).id
            rows = [row for row in rows if row.branch_id == branch_id]
        return [self._snapshot_info(row) for row in rows]

    def snapshot_info(self, ref: str) -> SnapshotInfo:
        return self._snapshot_info(self.snapshot_row(ref))

    def _snapshot_info(self, row: SnapshotRow) -> SnapshotInfo:
        return SnapshotInfo(
            row.name, row.id, row.branch, row.parent, row.created_ns, row.tag, row.author_pid,
            row.file_count if row.file_count is not None else -1,
            row.bytes_changed if row.bytes_changed is not None else -1,
            row.kind, row.author, self._merged_since_parent(row),
        )  # fmt: skip

    def _merged_since_parent(self, row: SnapshotRow) -> tuple[str, ...]:
        merges = layer_rows.merges(self.store)
        if not merges:
            return ()
        older = self._older_layers(row)
        others = {
            other for layer in layer_rows.chain(self.store, row.layer) if layer not in older for other in merges.get(layer, ())
        }
        return tuple(found.id for found in sorted(self._snapshots.values()) if found.layer in others)

    def _older_layers(self, row: SnapshotRow) -> set[int]:
        """Those that the snapshot before had already."""
        parent = self._snapshots.get(row.parent)
        return set(layer_rows.chain(self.store, parent.layer)) if parent else set()

    def count_snapshot(self, ref: str) -> SnapshotInfo:
        """Like snapshot_info, with the counts made now if nobody asked before: entries and bytes since its parent."""
        row = self.snapshot_row(ref)
        if row.file_count is None:
            older = self._older_layers(row)
            mine = [layer for layer in layer_rows.chain(self.store, row.layer) if layer not in older]
            copies = set().union(*self._copies(mine))
            files = sum(layer_rows.counting_entries(self.store, mine)) - len(copies)
            objects = {number for layer in mine for number in self.store.contents_of(layer)} - copies
            size = sum(map(self._size_of, objects))
            with self.store.transaction():
                layer_rows.set_snapshot_counts(self.store, row.id, files, size)
            row = self._snapshots[row.id] = row._replace(file_count=files, bytes_changed=size)
        return self._snapshot_info(row)

    def _size_of(self, number: int) -> int:
        """Of an object; of one that is lost what it had when it was sealed."""
        try:
            return self.backstore.stat(number).st_size
        except DamagedContent:
            return checksum_rows.size_of(self.store, number)

    def delete_snapshot(self, ref: str) -> None:
        """Removes a snapshot and what only it held."""
        row = self.snapshot_row(ref)
        with self.store.transaction() as tx:
            self._delete_snapshot(tx, row)
        self._detach(row.id)

    def _delete_snapshot(self, tx: Transaction, row: SnapshotRow) -> None:
        """Call _detach() after the commit."""
        layer_rows.delete_snapshot(self.store, row.id, row.parent)
        tx.put(self._snapshots, row.id, None)
        self._unmark_temporary(tx, row.id)
        for other in [other for other in self._snapshots.values() if other.parent == row.id]:
            tx.put(self._snapshots, other.id, other._replace(parent=row.parent))
        for entry in [entry for entry in self._undo_entries.values() if entry.snapshot == row.id]:
            self._forget_undo_entry(tx, entry)
        self._let_go(tx, row.layer)

    def _forget_undo_entry(self, tx: Transaction, entry: UndoRow) -> None:
        """It can be undone no more."""
        layer_rows.delete_undo_entry(self.store, entry.id)
        tx.put(self._undo_entries, entry.id, None)
        self._let_go(tx, entry.branch.base_layer)

    def log(self, ref: str) -> list[SnapshotInfo]:
        """The snapshots in the history of a ref, newest first."""
        row = self.find(ref)
        if isinstance(row, BranchRow):
            along = self._history(row.head, row.id, row.base_id)
        else:
            along = self._history(row.layer, row.branch_id)
        return [self.count_snapshot(found.id) for found in along]

    def in_history(self, branch_id: str, snapshot_id: str) -> bool:
        """Whether a snapshot is part of a branch's own history (or was taken of that branch)."""
        branch, snapshot = self._branches.get(branch_id), self._snapshots.get(snapshot_id)
        if branch is None or snapshot is None:
            return False
        return snapshot.branch_id == branch_id or snapshot.layer in layer_rows.chain(self.store, branch.head)
