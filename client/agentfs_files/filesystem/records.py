"""Snapshots, differences and rules as records: frozen, comparable, and serialisable by msgspec, so that a session can
keep them.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from uuid import UUID


class SnapshotStrategy(Enum):
    """How snapshots of a host directory are kept, preferred strategy first."""

    REFLINK = "reflink"  # a second tree that shares blocks with the directory: btrfs, xfs
    GIT = "git"  # commits in a bare repository
    OVERLAY = "overlay"  # frozen layers of an overlayfs mounted on the directory; needs root
    ARCHIVE = "archive"  # a compressed tar file each
    COPY = "copy"  # a second tree


@dataclass(slots=True, frozen=True)
class HostFilesystemConfig:
    """How snapshots of a host directory are kept.

    ``snapshot_strategy`` None means the best that works; ``snapshot_dir`` None means a place outside the directory. If there are
    more than ``max_snapshots`` (None: no limit), the oldest without a tag are deleted.
    """

    snapshot_strategy: SnapshotStrategy | None = None
    snapshot_dir: str | None = None
    max_snapshots: int | None = 10


@dataclass(slots=True, frozen=True)
class FilesystemSnapshot:
    """A recorded state of a file system. It says where the state is; the backend holds the state itself.

    ``commit_ref`` is the backend's own name of the state: a git commit, a version such as ``mem-3``, a directory, an image, a
    snapshot of agentfsd. ``git_dir`` is the repository of a git snapshot, so that another instance can restore it. ``backend``
    and ``strategy`` say who took the snapshot and how (``host``/``reflink``); a backend refuses snapshots of other kinds.
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
    """The paths of files that differ; each list is sorted. ``unchanged_count`` is the number of equal files."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    unchanged_count: int = 0


@dataclass(slots=True, frozen=True)
class SnapshotRetentionPolicy:
    """Which snapshots to keep: the newest ``max_count``, and of those only the ones younger than ``max_age_hours`` (None: any
    age).

    With ``keep_tagged``, snapshots with a tag are always kept and do not count.
    """

    max_count: int = 10
    max_age_hours: int | None = None
    keep_tagged: bool = True
