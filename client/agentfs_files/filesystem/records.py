"""Snapshots, differences and rules as records: frozen, comparable, serialisable by msgspec, so that a session can keep them."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from uuid import UUID


class SnapshotStrategy(Enum):
    """How snapshots of a host directory are kept, the preferred one first."""

    REFLINK = "reflink"  # a second tree that shares its blocks: btrfs, xfs
    GIT = "git"  # commits in a bare repository
    OVERLAY = "overlay"  # frozen layers of an overlayfs mounted on the directory; needs root
    ARCHIVE = "archive"  # a compressed tar file each
    COPY = "copy"  # a second tree


@dataclass(slots=True, frozen=True)
class HostFilesystemConfig:
    """How snapshots of a host directory are kept. ``snapshot_strategy`` None: by the best that works there; ``snapshot_dir``
    None: in a place outside the directory. Of more than ``max_snapshots`` (None: no limit) the oldest without a tag go."""

    snapshot_strategy: SnapshotStrategy | None = None
    snapshot_dir: str | None = None
    max_snapshots: int | None = 10


@dataclass(slots=True, frozen=True)
class FilesystemSnapshot:
    """A state that a file system had. It says where the state is kept; the state itself is the backend's.

    ``commit_ref`` is the backend's own name of it: a git commit, a version such as ``mem-3``, a directory, an image, a snapshot
    of agentfsd. ``git_dir``: where git keeps it, so that another instance can restore it. ``backend`` and ``strategy`` say who
    took it and how (``host``/``reflink``); a backend refuses what is not its own.
    """

    snapshot_id: UUID
    created_at: datetime
    commit_ref: str
    root_path: str
    git_dir: str | None = None
    tag: str | None = None
    parent_id: UUID | None = None
    file_count: int = 0
    total_bytes: int = 0
    backend: str = ""
    strategy: str = ""


@dataclass(slots=True, frozen=True)
class FilesystemDiff:
    """Paths of files that differ, each list sorted. ``unchanged_count``: files that are the same on both sides."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    unchanged_count: int = 0


@dataclass(slots=True, frozen=True)
class SnapshotRetentionPolicy:
    """Which snapshots stay: the newest ``max_count``, and of those the ones younger than ``max_age_hours`` (None: all).
    ``keep_tagged``: those with a tag stay in any case, and do not count."""

    max_count: int = 10
    max_age_hours: int | None = None
    keep_tagged: bool = True
