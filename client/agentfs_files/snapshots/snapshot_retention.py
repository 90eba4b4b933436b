"""Decide which snapshots a policy keeps."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from agentfs_files.filesystem.records import FilesystemSnapshot, SnapshotRetentionPolicy


def dropped(
    snapshots: Iterable[FilesystemSnapshot], policy: SnapshotRetentionPolicy, now: datetime | None = None
) -> list[FilesystemSnapshot]:
    """Return the snapshots that *policy* does not keep, oldest first. *now* must have a time zone; None means the
    present time.
    """
    now = now or datetime.now(UTC)
    oldest = None if policy.max_age_hours is None else now - timedelta(hours=policy.max_age_hours)
    going, count = [], 0
    for snapshot in reversed(in_order(snapshots)):
        if policy.keep_tagged and snapshot.tag is not None:
            continue
        count += 1
        if count > policy.max_count or (oldest is not None and snapshot.created_at < oldest):
            going.append(snapshot)
    return going[::-1]


def in_order(snapshots: Iterable[FilesystemSnapshot]) -> list[FilesystemSnapshot]:
    """Sort snapshots, oldest first."""
    return sorted(snapshots, key=lambda snapshot: snapshot.created_at)
