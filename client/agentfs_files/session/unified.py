"""Take and restore the state of a session and a file system together.

The file system goes first, because it is more likely to fail. If the session then fails, the file system is restored to its
previous state.
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
    """A session's reference to a snapshot of a file system.

    ``filesystem_key`` names the file system, for example by the key of its section; ``backend_type`` is ``in_memory``, ``host``,
    ``podman``, ...
    """

    filesystem_key: str
    snapshot_id: UUID
    backend_type: str


@runtime_checkable
class _Forgetting(Protocol):
    def delete_snapshot(self, snapshot: FilesystemSnapshot) -> None: ...


def create_unified_snapshot(
    session: Session, filesystem: SnapshotableFilesystem, filesystem_key: str
) -> tuple[Snapshot, FilesystemSnapshot]:
    """Take both snapshots. The session's snapshot holds a FilesystemSnapshotRef to the other."""
    fs_snapshot = filesystem.snapshot()
    backend = fs_snapshot.backend or type(filesystem).__name__
    session[FilesystemSnapshotRef].append(FilesystemSnapshotRef(filesystem_key, fs_snapshot.snapshot_id, backend))
    return session.snapshot(), fs_snapshot


def restore_unified_snapshot(
    session: Session, filesystem: SnapshotableFilesystem, session_snapshot: Snapshot, fs_snapshot: FilesystemSnapshot
) -> None:
    """Restore both states. If either raises SnapshotRestoreError, both are unchanged."""
    _restore_and(filesystem, fs_snapshot, lambda: session.rollback(session_snapshot))


def rollback_to(session: Session, session_snapshot: Snapshot, filesystem: SnapshotableFilesystem) -> None:
    """Restore a session's snapshot, and the file system to the last FilesystemSnapshot that the session held then, if any."""
    fs_snapshots = session_snapshot.slices.get(FilesystemSnapshot, ())
    if fs_snapshots:
        _restore_and(filesystem, fs_snapshots[-1], lambda: session.restore(session_snapshot))
    else:
        session.restore(session_snapshot)


def _restore_and(filesystem: SnapshotableFilesystem, snapshot: FilesystemSnapshot, then: Callable[[], None]) -> None:
    before = filesystem.snapshot(tag="before rollback")  # the tag keeps retention from deleting another snapshot for it
    filesystem.restore(snapshot)
    try:
        then()
    except BaseException:
        filesystem.restore(before)
        raise
    if isinstance(filesystem, _Forgetting):
        filesystem.delete_snapshot(before)
