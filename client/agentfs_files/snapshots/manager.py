"""Named snapshots of any file system, as ZIP archives in a directory.

Source: the tool operations, which call this FilesystemSnapshot. The file system itself writes and reads the archives.
"""

import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

_SUFFIX = ".fs.zip"
_LONGEST = 200  # bytes; leaves room for the suffix and a writer's temporary name within the 255 of a file name
_LARGEST_MANIFEST = 1 << 20


class Archivable(Protocol):
    """What the manager needs of a file system. ArchivableFilesystem and MinimalFilesystem have it."""

    def export_archive(self, path: str | os.PathLike[str]) -> int: ...

    def import_archive(self, path: str | os.PathLike[str]) -> int: ...


F_co = TypeVar("F_co", bound=Archivable, covariant=True)


class _Manifest(msgspec.Struct):
    file_count: int
    created_at: datetime


@dataclass(slots=True, frozen=True)
class SnapshotInfo:
    """A named snapshot. ``total_bytes`` is the size of the archive; times are in UTC."""

    snapshot_id: str
    archive_path: Path
    file_count: int
    total_bytes: int
    created_at: datetime


class SnapshotManager(Generic[F_co]):
    """The named snapshots of one file system.

    *snapshot_dir* None means a new temporary directory. In an existing directory, the archives of earlier processes are found.
    """

    def __init__(self, filesystem: F_co, snapshot_dir: str | os.PathLike[str] | None = None) -> None:
        self._filesystem = filesystem
        self._directory = None if snapshot_dir is None else Path(os.path.abspath(snapshot_dir))
        self._snapshots = {} if self._directory is None else _read(self._directory)

    @property
    def filesystem(self) -> F_co:
        return self._filesystem

    def snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Save the present state under a name, and replace an earlier snapshot of that name. Raises ValueError if the name cannot
        be a file name.
        """
        _check(snapshot_id)
        path = self._place() / f"{snapshot_id}{_SUFFIX}"
        count = self._filesystem.export_archive(path)
        info = SnapshotInfo(snapshot_id, path, count, path.stat().st_size, datetime.now(UTC))
        self._snapshots.pop(snapshot_id, None)
        self._snapshots[snapshot_id] = info
        return info

    def rollback(self, snapshot_id: str) -> int:
        """Restore a snapshot and return the number of files. Raises KeyError for an unknown name."""
        info = self._snapshots.get(snapshot_id)
        if info is None:
            raise KeyError(f"there is no snapshot {snapshot_id!r}; there are: {', '.join(self._snapshots) or 'none'}")
        return self._filesystem.import_archive(info.archive_path)

    def restore(self, archive_path: str | os.PathLike[str]) -> int:
        """Restore any archive, such as one saved with a session, and return the number of files."""
        return self._filesystem.import_archive(archive_path)

    def get(self, snapshot_id: str) -> SnapshotInfo | None:
        return self._snapshots.get(snapshot_id)

    def list_snapshots(self) -> tuple[SnapshotInfo, ...]:
        """Return all snapshots, oldest first."""
        return tuple(sorted(self._snapshots.values(), key=lambda info: info.created_at))

    def delete(self, snapshot_id: str) -> bool:
        """Delete a snapshot with its archive. Return False if there is none."""
        info = self._snapshots.pop(snapshot_id, None)
        if info is None:
            return False
        info.archive_path.unlink(missing_ok=True)
        return True

    def _place(self) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="agentfs-fs-snapshots-"))
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory


def _check(snapshot_id: str) -> None:
    is_printable = snapshot_id.isprintable()  # also rejects lone surrogates
    if not is_printable or snapshot_id.startswith(".") or not snapshot_id.strip() or set("/\\") & set(snapshot_id):
        raise ValueError(f"{snapshot_id!r} cannot be the name of a snapshot: take letters, digits and such, without slashes")
    if len(snapshot_id.encode()) > _LONGEST:
        raise ValueError(f"the name of a snapshot has at most {_LONGEST} bytes, this one {len(snapshot_id.encode())}")


def _read(directory: Path) -> dict[str, SnapshotInfo]:
    found = (_read_one(path) for path in directory.glob(f"*{_SUFFIX}"))
    return {info.snapshot_id: info for info in found if info is not None}


def _read_one(path: Path) -> SnapshotInfo | None:
    """Return None if the file is not an archive of a file system."""
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive, archive.open("manifest.json") as file:
            manifest = msgspec.json.decode(file.read(_LARGEST_MANIFEST), type=_Manifest)
        size = path.stat().st_size
    except (OSError, KeyError, ValueError, msgspec.MsgspecError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return None
    created = manifest.created_at if manifest.created_at.tzinfo else manifest.created_at.replace(tzinfo=UTC)
    return SnapshotInfo(path.name.removesuffix(_SUFFIX), path, manifest.file_count, size, created)
