"""Choose the strategy for a directory if the caller named none, and the place for its snapshots."""

import importlib.util
import os
import tempfile
from collections.abc import Iterator

from agentfs_files.filesystem.filesystem_errors import SnapshotCreationError
from agentfs_files.filesystem.records import SnapshotStrategy
from agentfs_files.snapshots.strategy import Strategy
from agentfs_host import copying


def choose(root: str, storage: str | None) -> SnapshotStrategy:
    """Return reflink if it works, else git if pygit2 is installed, else archive. Overlay must be requested."""
    if reflink_place(root, storage) is not None:
        return SnapshotStrategy.REFLINK
    if importlib.util.find_spec("pygit2") is not None:
        return SnapshotStrategy.GIT
    return SnapshotStrategy.ARCHIVE if importlib.util.find_spec("zlib") is not None else SnapshotStrategy.COPY


def reflink_place(root: str, storage: str | None) -> str | None:
    """Return a directory outside *root* that can share blocks with it, None if there is none.

    The candidates are *storage* or its nearest existing parent; without a storage, the parent of the root and directories for
    temporary files. Each is tested with nameless files.
    """
    places = _places(root) if storage is None else iter([_existing(storage)])
    return next((place for place in places if os.access(place, os.W_OK | os.X_OK) and copying.can_share(root, place)), None)


def _places(root: str) -> Iterator[str]:
    yield os.path.dirname(root)
    yield tempfile.gettempdir()
    yield os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")


def _existing(path: str) -> str:
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def new_place(root: str, kind: SnapshotStrategy) -> str:
    """Create a directory for snapshots: for reflinks a hidden one beside the root if possible, else a temporary one."""
    if kind is not SnapshotStrategy.REFLINK:
        name = "git" if kind is SnapshotStrategy.GIT else "snapshots"
        return tempfile.mkdtemp(prefix=f"agentfs-{name}-")
    place = reflink_place(root, None)
    if place is None or _is_within(place, root):
        raise SnapshotCreationError(
            f"there is no place outside {root} that can share blocks with it: name a storage on the same btrfs or xfs, "
            "or take another strategy"
        )
    return tempfile.mkdtemp(prefix=f".{os.path.basename(root)[:100]}-agentfs-", dir=place)


def _is_within(path: str, root: str) -> bool:
    return os.path.realpath(path).startswith(root.rstrip("/") + "/")


def home(kind: SnapshotStrategy, place: str) -> str:
    """Return the directory for a strategy's records, index and lock."""
    return os.path.join(place, "agentfs") if kind is SnapshotStrategy.GIT else place


def make(kind: SnapshotStrategy, root: str, place: str) -> Strategy:
    """Create a strategy. Imports only the module of this strategy."""
    if kind is SnapshotStrategy.GIT:
        from agentfs_files.snapshots.git_strategy import GitStrategy

        return GitStrategy(place)
    if kind is SnapshotStrategy.REFLINK:
        from agentfs_files.snapshots.reflink_strategy import ReflinkStrategy

        return ReflinkStrategy(place)
    if kind is SnapshotStrategy.OVERLAY:
        from agentfs_files.snapshots.overlay_strategy import OverlayStrategy

        return OverlayStrategy(place, root)
    if kind is SnapshotStrategy.ARCHIVE:
        from agentfs_files.snapshots.archive_strategy import ArchiveStrategy

        return ArchiveStrategy(place)
    from agentfs_files.snapshots.copy_strategy import CopyStrategy

    return CopyStrategy(place)
