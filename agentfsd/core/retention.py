"""How long snapshots are kept: the retention.* settings, and pruning by them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from agentfsd.core import declared_settings
from agentfsd.core.doubted_clock import DoubtedClock
from agentfsd.core.overlay_snapshots import MERGE, NAMED, RUN, SAFETY, STEP, TAGGED, UNNAMED, Snapshots
from agentfsd.core.overlay_state import OverlayState
from agentfsd.core.refs import Refs
from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import SnapshotRow
from agentfsd.types import SnapshotSummary

_BEGAN_NS = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)  # of the system, by the clock as this process found it
_DRIFT_NS = 3600 * 10**9  # how far time may be set forward without being doubted
_AUTOMATIC = (RUN, SAFETY, MERGE)


@dataclass(frozen=True, slots=True)
class Retention:
    """Which snapshots are kept. stored_retention() returns what the settings say, whose defaults declared_settings.py has.

    Source: SnapshotRetentionPolicy of the tool operations specification.
    Snapshots that are KEPT or temporary always stay.

    Attributes:
        max_count: How many snapshots of each branch are kept, the newest ones; 0 for no limit.
        max_age_s: Age in seconds above which a snapshot is deleted; 0 for no limit.
        keep_tagged: Whether snapshots with a tag always stay. They then do not count towards max_count.
        keep_named: Whether snapshots that were given a name always stay. They then do not count towards max_count.
    """

    max_count: int
    max_age_s: float
    keep_tagged: bool
    keep_named: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of snapshots that may be deleted."""
        return (UNNAMED, STEP, *_AUTOMATIC, *([] if self.keep_tagged else [TAGGED]), *([] if self.keep_named else [NAMED]))


def _automatic_retention(store: Store) -> Retention:
    """Read how many snapshots that the daemon took by itself are kept of each branch."""
    count = int(declared_settings.read(store)["retention.automatic_count"])
    return Retention(max_count=count, max_age_s=0, keep_tagged=False, keep_named=True)


def _step_retention(store: Store) -> Retention:
    """Read how many snapshots of the steps of sessions are kept of each branch."""
    count = int(declared_settings.read(store)["retention.step_count"])
    return Retention(max_count=count, max_age_s=0, keep_tagged=False, keep_named=True)


def stored_retention(store: Store) -> Retention:
    """Read the retention.* settings."""
    values = declared_settings.read(store)
    return Retention(
        int(values["retention.max_count"]),
        declared_settings.parse_age(values["retention.max_age"]),
        values["retention.keep_tagged"] == "yes",
        values["retention.keep_named"] == "yes",
    )


class SnapshotRetention:
    """Deletes the snapshots of one overlay that the retention settings do not keep.

    Attributes:
        undo_entries: How many operations in the overlay can be undone, the latest ones.
    """

    undo_entries = 20

    def __init__(self, state: OverlayState, refs: Refs, snapshots: Snapshots) -> None:
        self._state, self._refs, self._snapshots = state, refs, snapshots
        self._clock = DoubtedClock(state.store, max((row.created_ns for row in state.snapshots.values()), default=0))

    def prune(
        self, retention: Retention, branch: str | None = None, *, dry_run: bool = False, now_ns: int = 0
    ) -> list[SnapshotSummary]:
        """Delete the snapshots that *retention* does not keep.

        Args:
            retention: Which snapshots to keep.
            branch: Name or id of the only branch to prune; None for all.
            dry_run: Only find the snapshots, and delete none.
            now_ns: The time by which their age is told; 0 for the present time.

        Returns:
            The snapshots that were deleted, or would be with *dry_run*.
        """
        branch_id = None if branch is None else self._refs.branch(branch).id
        rows = [row for row in self._state.snapshots.values() if branch_id in (None, row.branch_id)]
        rows = [row for row in rows if row.id not in self._state.temporary]
        surplus = _surplus(rows, retention, retention.kinds, now_ns or _now_ns())
        infos = [self._snapshots.count(row.id) for row in surplus]
        if not dry_run:
            self._snapshots.delete_rows(surplus)
        return infos

    def apply(self, branch_id: str) -> None:
        """Delete the branch's snapshots that the retention settings do not keep. Call it after taking a snapshot."""
        self.drop_automatic(branch_id)
        retention = stored_retention(self._state.store)
        if retention.max_count or retention.max_age_s:
            self.prune(retention, branch_id, now_ns=self._clock.now_ns())

    def drop_automatic(self, branch_id: str) -> None:
        """Delete the oldest automatic snapshots of the branch, and those kept for operations too old to be undone.

        Call it after taking an automatic snapshot.
        """
        rows = [row for row in self._state.snapshots.values() if row.branch_id == branch_id]
        store = self._state.store
        old = {row.id: row for row in _surplus(rows, _automatic_retention(store), _AUTOMATIC, 0)}
        old |= {row.id: row for row in _surplus(rows, _step_retention(store), (STEP,), 0)}
        entries = sorted(self._state.undo_rows.values())
        wanted = {entry.snapshot for entry in entries[-self.undo_entries :]}
        for entry in entries[: -self.undo_entries]:
            row = self._state.snapshots[entry.snapshot]
            if row.kind == SAFETY and row.id not in wanted:
                old[row.id] = row
        self._snapshots.delete_rows(old.values())


def _now_ns() -> int:
    """Return the time, but no later than it can be: a clock that was set far ahead for once must not delete what is young.

    Set forward for good, as from 1970, it deletes nothing until the daemon is started again.
    """
    latest_ns = _BEGAN_NS + time.clock_gettime_ns(time.CLOCK_BOOTTIME) + _DRIFT_NS
    return min(time.time_ns(), latest_ns)


def _surplus(rows: Iterable[SnapshotRow], retention: Retention, kinds: Iterable[str], now_ns: int) -> list[SnapshotRow]:
    """Return the rows of the given kinds that *retention* does not keep, oldest first."""
    oldest_ns = now_ns - int(retention.max_age_s * 1e9) if retention.max_age_s else 0
    counts: dict[str, int] = {}
    surplus = []
    for row in sorted(rows, reverse=True):
        if row.kind not in kinds:
            continue
        counts[row.branch_id] = counts.get(row.branch_id, 0) + 1
        if row.created_ns < oldest_ns or (retention.max_count and counts[row.branch_id] > retention.max_count):
            surplus.append(row)
    return surplus[::-1]
