"""What an overlay holds in memory: the rows of branches and snapshots, and the trees that are open. It decides nothing."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from weakref import WeakSet

from agentfsd.core.copyup_policy import CopyUpPolicy
from agentfsd.core.ids import IdMaker
from agentfsd.core.overlay_events import OverlayEvents
from agentfsd.core.tree import Parts, Tree
from agentfsd.metadata import layer_rows
from agentfsd.metadata.row_store import Store, Transaction
from agentfsd.metadata.rows import BranchRow, SnapshotRow, UndoRow
from agentfsd.types import Backstore, Lower

_TEMPORARY = "temporary"  # the key under which the store keeps the ids of temporary branches and snapshots


@dataclass(frozen=True, slots=True)
class OverlayState:
    """The state that the parts of an Overlay share.

    Attributes:
        parts: What every tree is made with: store, lower, backstore.
        events: Who hears of changes.
        branches: Rows by branch id.
        snapshots: Rows by snapshot id.
        undo_rows: What can be undone, by number.
        temporary: Ids of the branches and snapshots that go with the conversation that made them.
        trees: Open trees by the id of their branch or snapshot.
        replaced: Detached trees that somebody still uses: open files, or the kernel's nodes.
        pins: Layers that work under way rests on, with the number of users.
    """

    parts: Parts
    events: OverlayEvents
    branches: dict[str, BranchRow]
    snapshots: dict[str, SnapshotRow]
    undo_rows: dict[int, UndoRow]
    temporary: dict[str, bool]
    trees: dict[str, Tree] = field(default_factory=dict)
    replaced: WeakSet[Tree] = field(default_factory=WeakSet)
    pins: Counter[int] = field(default_factory=Counter)
    ids: IdMaker = field(default_factory=IdMaker)

    @property
    def store(self) -> Store:
        return self.parts.store

    @property
    def backstore(self) -> Backstore:
        return self.parts.backstore

    def mark_temporary(self, tx: Transaction, ids: Iterable[str]) -> None:
        """Mark branches or snapshots as temporary, in the open transaction."""
        marked = list(ids)
        for ref_id in marked:
            tx.put(self.temporary, ref_id, True)
        if marked:
            self.store.put_value(_TEMPORARY, " ".join(self.temporary))

    def unmark_temporary(self, tx: Transaction, *ids: str) -> None:
        """Take the mark from those of *ids* that have it, in the open transaction."""
        marked = [ref_id for ref_id in ids if ref_id in self.temporary]
        for ref_id in marked:
            tx.put(self.temporary, ref_id, None)
        if marked:
            self.store.put_value(_TEMPORARY, " ".join(self.temporary))


def load_state(store: Store, lower: Lower, backstore: Backstore) -> OverlayState:
    """Read what the database says of branches and snapshots."""
    events = OverlayEvents()
    return OverlayState(
        Parts(store, lower, backstore, lower.stat(b"").st_dev, CopyUpPolicy(store), events),
        events,
        {row.id: row for row in layer_rows.branches(store)},
        {row.id: row for row in layer_rows.snapshots(store)},
        {row.id: row for row in layer_rows.undo_rows(store)},
        dict.fromkeys(store.value(_TEMPORARY).split(), True),
    )
