"""One state of a session and a file system together. The file system goes first, for it is what can fail; when the session cannot
follow, the file system goes back to where it was.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from uuid import UUID

from agentfs_files.filesystem.filesystem_protocol import SnapshotableFilesystem
from agentfs_files.filesystem.records import FilesystemSnapshot
from agentfs_files.session.agent_session import Session
from agentfs_files.session.session_snapshot import Snapshot


@dataclass(slots=True, frozen=True)
class FilesystemSnapshotRef:
    """What a session keeps of a file system's snapshot. ``filesystem_key``: which one, such as the key of its section;
    ``backend_type``: ``in_memory``, ``host``, ``podman``, ..."""

    filesystem_key: str
    snapshot_id: UUID
    backend_type: str


@runtime_checkable
class _Forgetting(Protocol):
    def delete_snapshot(self, snapshot: FilesystemSnapshot) -> None: ...


def create_unified_snapshot(
    session: Session, filesystem: SnapshotableFilesystem, filesystem_key: str
) -> tuple[Snapshot, FilesystemSnapshot]:
    """Both states; the session's holds a FilesystemSnapshotRef to the other."""
    fs_snapshot = filesystem.snapshot()
    backend = fs_snapshot.backend or type(filesystem).__name__
    session[FilesystemSnapshotRef].append(FilesystemSnapshotRef(filesystem_key, fs_snapshot.snapshot_id, backend))
    return session.snapshot(), fs_snapshot


def restore_unified_snapshot(
    session: Session, filesystem: SnapshotableFilesystem, session_snapshot: Snapshot, fs_snapshot: FilesystemSnapshot
) -> None:
    """SnapshotRestoreError from either, and both are as they were."""
    _restore_and(filesystem, fs_snapshot, lambda: session.rollback(session_snapshot))


def rollback_to(session: Session, session_snapshot: Snapshot, filesystem: SnapshotableFilesystem) -> None:
    """Back to a session's snapshot, and the file system to the FilesystemSnapshot that the session had last then, if any."""
    fs_snapshots = session_snapshot.slices.get(FilesystemSnapshot, ())
    if fs_snapshots:
        _restore_and(filesystem, fs_snapshots[-1], lambda: session.restore(session_snapshot))
    else:
        session.restore(session_snapshot)


def _restore_and(filesystem: SnapshotableFilesystem, snapshot: FilesystemSnapshot, then: Callable[[], None]) -> None:
    before = filesystem.snapshot(tag="before rollback")  # a tag, so that no rule about old snapshots drops another for it
    filesystem.restore(snapshot)
    try:
        then()
    except BaseException:
        filesystem.restore(before)
        raise
    if isinstance(filesystem, _Forgetting):
        filesystem.delete_snapshot(before)
