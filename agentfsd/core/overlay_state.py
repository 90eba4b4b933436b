"""The data that an overlay holds in memory: rows of branches and snapshots, and the open trees. The logic is elsewhere."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from weakref import WeakSet

from agentfsd.core import lent_branches
from agentfsd.core.base_lowers import BaseLowers
from agentfsd.core.copyup_settings import CopyUpSettings
from agentfsd.core.doomed_contents import DoomedContents
from agentfsd.core.ids import IdMaker
from agentfsd.core.left_conflicts import needed_layers
from agentfsd.core.overlay_events import OverlayEvents
from agentfsd.core.tree import Parts, Tree
from agentfsd.metadata import conflict_rows, layer_rows, step_rows
from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import BranchRow, SnapshotRow, StepRow, UndoRow
from agentfsd.metadata.transaction import Transaction
from agentfsd.types import Backstore, Lower

WORKTREE = "worktree "  # and a branch id: the key of git's directory of the worktree that the branch is
_TEMPORARY = "temporary"  # the key under which the store keeps the ids of temporary branches and snapshots


@dataclass(frozen=True, slots=True)
class OverlayState:
    """The state that the parts of an Overlay share.

    Attributes:
        parts: What all trees share: store, lower, backstore, copy-up settings, events.
        events: The listeners that are told of changes.
        branches: Rows by branch id.
        snapshots: Rows by snapshot id.
        undo_rows: The undo log, by number of the entry.
        steps: The steps of agents' sessions, by number, oldest first.
        temporary: Ids of the branches and snapshots that are removed with the conversation that made them.
        worktrees: Git's directory of each branch that is a linked worktree, by branch id: see linked_worktrees.py.
        trees: Open trees by the id of their branch or snapshot; those of running work have ids of their own.
        replaced: Detached trees that are still in use: a process has a file open, or the kernel refers to an inode.
        pins: Layers that running work needs, with the number of users.
        lowers: What lies beneath each layer.
        ids: Makes ids for branches and snapshots.
    """

    parts: Parts
    events: OverlayEvents
    branches: dict[str, BranchRow]
    snapshots: dict[str, SnapshotRow]
    undo_rows: dict[int, UndoRow]
    steps: dict[int, StepRow]
    temporary: dict[str, bool]
    worktrees: dict[str, str]
    lowers: BaseLowers
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
        """Make those of *ids* that are temporary permanent, in the open transaction."""
        marked = [ref_id for ref_id in ids if ref_id in self.temporary]
        for ref_id in marked:
            tx.put(self.temporary, ref_id, None)
        if marked:
            self.store.put_value(_TEMPORARY, " ".join(self.temporary))


def load_state(
    store: Store, lower: Lower, backstore: Backstore, open_base: Callable[[str], Lower] | None = None
) -> OverlayState:  # fmt: skip
    """Read branches, snapshots and the undo log from the database. No tree is open yet."""
    events = OverlayEvents()
    branches = {row.id: row for row in layer_rows.branches(store)}
    loans = [loan for branch_id in branches if (loan := lent_branches.find(store, branch_id)) is not None]
    pinned = [layer for loan in loans for layer in loan.layers()]
    pinned += [layer for row in conflict_rows.read(store) for layer in needed_layers(row)]
    return OverlayState(
        Parts(store, lower, backstore, lower.stat(b"").st_dev, CopyUpSettings(store), events, DoomedContents(backstore)),
        events,
        branches,
        {row.id: row for row in layer_rows.snapshots(store)},
        {row.id: row for row in layer_rows.undo_rows(store)},
        {row.id: row for row in step_rows.read(store)},
        dict.fromkeys(store.value(_TEMPORARY).split(), True),
        {branch_id: found for branch_id in branches if (found := store.value(WORKTREE + branch_id))},
        BaseLowers(store, lower, open_base),
        pins=Counter(pinned),
    )
