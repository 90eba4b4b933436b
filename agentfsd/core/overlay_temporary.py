"""Temporary branches and snapshots: removed with the conversation that made them, or at the next start."""

from collections.abc import Collection, Iterable

from agentfsd.core.overlay_branches import Branches
from agentfsd.core.overlay_snapshots import Snapshots
from agentfsd.core.overlay_state import OverlayState
from agentfsd.metadata.rows import BranchRow, SnapshotRow


class TemporaryRefs:
    """The temporary branches and snapshots of one overlay."""

    def __init__(self, state: OverlayState, branches: Branches, snapshots: Snapshots) -> None:
        self._state, self._branches, self._snapshots = state, branches, snapshots

    def drop_all(self, spared: Collection[str] = ()) -> None:
        """Remove all temporary branches and snapshots: after a start, no client can ask for them any more.

        Args:
            spared: Ids of those that stay: a process works in them.
        """
        self.drop(self._state.temporary.keys() - {*spared})

    def drop(self, ids: Iterable[str]) -> list[BranchRow | SnapshotRow]:
        """Remove those of *ids* that are still temporary. The removal cannot be undone.

        Returns:
            The rows of those that were removed.
        """
        dropped: list[BranchRow | SnapshotRow] = []
        for ref_id in sorted(self._state.temporary.keys() & set(ids), reverse=True):
            row = self._state.branches.get(ref_id) or self._state.snapshots.get(ref_id)
            if isinstance(row, BranchRow):
                self._branches.discard(ref_id, keep=False)
            elif row is not None:
                self._snapshots.delete(ref_id)
            dropped += [] if row is None else [row]
        return dropped

    def keep(self, ids: Iterable[str]) -> None:
        """Make temporary branches and snapshots permanent."""
        with self._state.store.transaction() as tx:
            self._state.unmark_temporary(tx, *ids)
