"""Merges that left conflicts in their target: the record, which states are in one, and what was decided there.

A record belongs to the layer that the merge made, as a decision belongs to a layer. So each snapshot, undo and restore shows the
record as it was in that state. This module does not know how conflicts are found or settled.
"""

import errno
from dataclasses import dataclass

import msgspec

from agentfsd.core.layer_lifecycle import Layers
from agentfsd.core.left_conflicts import LeftRecord, needed_layers
from agentfsd.core.overlay_state import OverlayState
from agentfsd.domain_errors import Refusal
from agentfsd.metadata import conflict_rows, layer_rows
from agentfsd.metadata.rows import BranchRow, SnapshotRow
from agentfsd.metadata.transaction import Transaction


@dataclass(frozen=True, slots=True)
class UnfinishedMerge:
    """The unfinished merge of one state.

    Attributes:
        id: Its number.
        layer: The layer that the merge made.
        before: The target's layer before the merge.
        record: What was left open.
        decisions: What was decided, by path: ours, theirs, edited or marked.
    """

    id: int
    layer: int
    before: int
    record: LeftRecord
    decisions: dict[bytes, str]


class UnfinishedMerges:
    """The unfinished merges of one overlay."""

    def __init__(self, state: OverlayState, layers: Layers) -> None:
        self._state, self._layers = state, layers

    def find(self, layer: int) -> UnfinishedMerge | None:
        """Return the merge that the state of a layer is in; None for none."""
        rows = conflict_rows.read(self._state.store)
        chain = frozenset(layer_rows.chain(self._state.store, layer)) if rows else frozenset[int]()
        for row in reversed(rows):
            if row.layer in chain:
                decisions = conflict_rows.decisions(self._state.store, row.id, chain)
                if conflict_rows.ITSELF not in decisions:
                    record = msgspec.json.decode(row.record, type=LeftRecord)
                    return UnfinishedMerge(row.id, row.layer, row.before, record, decisions)
        return None

    def of(self, row: BranchRow | SnapshotRow) -> UnfinishedMerge | None:
        """Return the merge that a branch or snapshot is in; None for none."""
        return self.find(row.head if isinstance(row, BranchRow) else row.layer)

    def refuse(self, row: BranchRow | SnapshotRow, work: str) -> None:
        """Refuse *work*, such as "committed", if a branch or snapshot is in a merge.

        Raises:
            Refusal: ``merge-unfinished``.
        """
        found = self.of(row)
        if found is None:
            return
        names = ", ".join(source.name for source in found.record.sources)
        if isinstance(row, SnapshotRow):
            hint = f"name a snapshot from before that merge, or make a branch of this one and settle it there: {row.name}"
        else:
            hint = (
                f"`agentfsd conflicts {row.name}` lists what is left; `agentfsd merge --continue {row.name}` finishes the merge, "
                "--abort takes it back"
            )
        raise Refusal(
            errno.EBUSY, "merge-unfinished", f"{row.name!r} cannot be {work}: its merge of {names} is not finished", hint
        )  # fmt: skip

    def add(self, tx: Transaction, layer: int, before: int, record: LeftRecord) -> None:
        """Record, in the open transaction, what the merge that made *layer* left open."""
        row = conflict_rows.put(self._state.store, layer, before, msgspec.json.encode(record))
        for needed in needed_layers(row):
            self._layers.pin(tx, needed)

    def decide(self, merge: UnfinishedMerge, path: bytes, layer: int, how: str) -> None:
        """Record a decision, in the open transaction, for the state of *layer* and all after it."""
        conflict_rows.decide(self._state.store, merge.id, path, layer, how)

    def finish(self, merge: UnfinishedMerge, layer: int) -> None:
        """Record, in the open transaction, that the merge is finished in the state of *layer* and all after it."""
        conflict_rows.decide(self._state.store, merge.id, conflict_rows.ITSELF, layer, "finished")
