"""Records of snapshots, in memory or as JSON files in a directory. A store does not touch the snapshots themselves."""

import os
from collections.abc import Sequence
from uuid import UUID

import msgspec

from agentfs_files.filesystem.filesystem_errors import SnapshotNotFoundError
from agentfs_files.filesystem.records import FilesystemSnapshot, SnapshotRetentionPolicy
from agentfs_files.snapshots.index import write_file
from agentfs_files.snapshots.snapshot_retention import dropped, in_order

_SUFFIX = ".json"


class MemorySnapshotStore:
    def __init__(self) -> None:
        self._snapshots: dict[UUID, FilesystemSnapshot] = {}

    def save(self, snapshot: FilesystemSnapshot) -> None:
        self._snapshots[snapshot.snapshot_id] = snapshot

    def load(self, snapshot_id: UUID) -> FilesystemSnapshot:
        """Return a record. Raises SnapshotNotFoundError."""
        try:
            return self._snapshots[snapshot_id]
        except KeyError:
            raise _unknown(snapshot_id) from None

    def delete(self, snapshot_id: UUID) -> None:
        """Delete a record. Raises SnapshotNotFoundError."""
        if self._snapshots.pop(snapshot_id, None) is None:
            raise _unknown(snapshot_id)

    def prune(self, policy: SnapshotRetentionPolicy) -> int:
        """Delete the records that *policy* does not keep, and return their number."""
        going = dropped(self._snapshots.values(), policy)
        for snapshot in going:
            del self._snapshots[snapshot.snapshot_id]
        return len(going)

    def list(self) -> Sequence[FilesystemSnapshot]:
        """Return all records, oldest first."""
        return tuple(in_order(self._snapshots.values()))


class DirectorySnapshotStore:
    """Records as files. The first save creates *directory*. A record is written completely or not at all; files with other names
    are not touched.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = os.path.abspath(directory)

    def save(self, snapshot: FilesystemSnapshot) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        write_file(self._path(snapshot.snapshot_id), msgspec.json.format(msgspec.json.encode(snapshot)))

    def load(self, snapshot_id: UUID) -> FilesystemSnapshot:
        """Return a record. Raises SnapshotNotFoundError, or ValueError for a damaged record."""
        path = self._path(snapshot_id)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            raise _unknown(snapshot_id) from None
        try:
            return msgspec.json.decode(data, type=FilesystemSnapshot)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise ValueError(f"{path} is not a record of a snapshot: {exc}") from exc

    def delete(self, snapshot_id: UUID) -> None:
        """Delete a record. Raises SnapshotNotFoundError."""
        try:
            os.unlink(self._path(snapshot_id))
        except FileNotFoundError:
            raise _unknown(snapshot_id) from None

    def prune(self, policy: SnapshotRetentionPolicy) -> int:
        """Delete the records that *policy* does not keep, and return their number."""
        going = dropped(self.list(), policy)
        for snapshot in going:
            self.delete(snapshot.snapshot_id)
        return len(going)

    def list(self) -> Sequence[FilesystemSnapshot]:
        """Return all records, oldest first."""
        snapshots = []
        for name in self._names():
            try:
                snapshots.append(self.load(UUID(name)))
            except (ValueError, SnapshotNotFoundError):  # not a record, damaged, or deleted meanwhile
                continue
        return tuple(in_order(snapshots))

    def _names(self) -> tuple[str, ...]:
        try:
            return tuple(name.removesuffix(_SUFFIX) for name in os.listdir(self._directory) if name.endswith(_SUFFIX))
        except FileNotFoundError:
            return ()

    def _path(self, snapshot_id: UUID) -> str:
        return os.path.join(self._directory, f"{snapshot_id}{_SUFFIX}")


def _unknown(snapshot_id: UUID) -> SnapshotNotFoundError:
    return SnapshotNotFoundError(f"there is no snapshot {snapshot_id} on record")
