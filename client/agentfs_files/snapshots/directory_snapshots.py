"""Take, restore, compare and delete snapshots of a plain directory of this machine, with any strategy."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from uuid import UUID, uuid4

from agentfs_files.filesystem.filesystem_errors import (
    SnapshotCreationError,
    SnapshotError,
    SnapshotIncompatibleError,
    SnapshotNotFoundError,
    SnapshotRestoreError,
)
from agentfs_files.filesystem.records import FilesystemDiff, FilesystemSnapshot, SnapshotRetentionPolicy, SnapshotStrategy
from agentfs_files.snapshots import choose
from agentfs_files.snapshots.compare_trees import diff_entries
from agentfs_files.snapshots.index import forget_index
from agentfs_files.snapshots.restore import Comparison
from agentfs_files.snapshots.snapshot_retention import dropped
from agentfs_files.snapshots.snapshot_store import DirectorySnapshotStore
from agentfs_files.snapshots.snapshot_tree import Scan, SnapshotEntry
from agentfs_files.snapshots.strategy import Strategy
from agentfs_host.descent import opened
from agentfs_host.tree_removal import remove_tree

_RECORDS = "records"


class DirectorySnapshots:
    """The snapshots of one directory. Nothing is created before the first snapshot.

    Args:
        strategy: None means git if a *git_dir* is given, else the best one for *root*.
        storage: a directory for snapshots outside the root. None means a directory beside the root for reflinks, else a temporary
            one.
        git_dir: the repository of the strategy git, outside the root; None means *storage*.
        policy: the retention policy, applied after each snapshot. It never deletes the snapshot just taken.

    Several instances and threads may share a storage: they work one after the other.

    Mounts within the root, and btrfs subvolumes, are neither saved nor changed. A change through an existing memory map may be
    missed until the kernel updates the file's times. Names of a hard-linked file outside the root are not considered.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        strategy: SnapshotStrategy | None = None,
        storage: str | os.PathLike[str] | None = None,
        git_dir: str | os.PathLike[str] | None = None,
        policy: SnapshotRetentionPolicy | None = None,
        backend: str = "host",
    ) -> None:
        """Remember the settings. Raises ValueError for a place inside the root."""
        self._root = os.path.realpath(root)
        self._kind = strategy or (SnapshotStrategy.GIT if git_dir is not None else None)
        named = git_dir if git_dir is not None and self._kind is SnapshotStrategy.GIT else storage
        self._named = None if named is None else os.path.realpath(named)
        if self._named is not None and (self._named + "/").startswith(self._root.rstrip("/") + "/"):
            raise ValueError(f"snapshots of {self._root} cannot be kept in {self._named}, which is a part of it")
        self._policy, self._backend = policy, backend
        self._place = self._named
        self._own: Strategy | None = None
        self._is_made = False  # whether this instance created the place
        self._lock = threading.RLock()

    @property
    def strategy(self) -> SnapshotStrategy:
        """The strategy that the caller named, else the one that was chosen."""
        if self._kind is None:
            self._kind = choose.choose(self._root, self._named)
        return self._kind

    @property
    def storage(self) -> str | None:
        """The directory of the snapshots; None if there is none yet."""
        return self._place

    @property
    def git_dir(self) -> str | None:
        """The repository; None if there is none yet, and with other strategies."""
        return self._place if self._kind is SnapshotStrategy.GIT else None

    def take(self, tag: str | None = None, parent_id: UUID | None = None) -> FilesystemSnapshot:
        """Take a snapshot. After a SnapshotCreationError nothing of it is left."""
        with self._lock, _as(SnapshotCreationError, f"No snapshot of {self._root} could be taken"):
            was_made = self._is_made
            try:
                strategy = self._ready()
                with _locked(strategy):
                    return self._take(strategy, tag, parent_id)
            except BaseException:
                if self._is_made and not was_made:
                    self.cleanup()
                raise

    def _take(self, strategy: Strategy, tag: str | None, parent_id: UUID | None) -> FilesystemSnapshot:
        snapshot_id = uuid4()
        ref, entries = strategy.take(self._root, snapshot_id, tag)
        files = [entry for entry in entries if not entry.is_dir]
        snapshot = FilesystemSnapshot(
            snapshot_id, datetime.now(UTC), ref, self._root,
            git_dir=self._place if strategy.kind is SnapshotStrategy.GIT else None,
            tag=tag, parent_id=parent_id, file_count=len(files), total_bytes=sum(entry.size for entry in files),
            backend=self._backend, strategy=strategy.kind.value,
        )  # fmt: skip
        store = _store(strategy)
        store.save(snapshot)
        if self._policy is not None:
            for old in dropped(self._on_record(store), self._policy):
                if old.snapshot_id != snapshot_id:
                    _delete(strategy, store, old)
        return snapshot

    def restore(self, snapshot: FilesystemSnapshot) -> None:
        """Restore a snapshot. After a SnapshotRestoreError the directory is as it was, unless the message says otherwise. An
        empty directory accepts a snapshot of any directory; a directory with content accepts only its own.
        """
        with self._lock, _as(SnapshotRestoreError, f"Failed to restore snapshot {snapshot.snapshot_id}"):
            if os.path.realpath(snapshot.root_path) != self._root and os.listdir(self._root):
                raise SnapshotIncompatibleError(
                    f"it is one of {snapshot.root_path}, and {self._root} is not empty: it would lose what it has"
                )
            strategy = self._strategy_of(snapshot)
            with _locked(strategy):
                strategy.restore(self._root, snapshot.commit_ref)

    def diff(self, base: FilesystemSnapshot, target: FilesystemSnapshot | None = None) -> FilesystemDiff:
        """Compare the contents of files, symlinks and the like from *base* to *target* (None: the present state). Raises
        SnapshotError.
        """
        with self._lock, _as(SnapshotError, "The snapshots could not be compared"):
            strategy = self._strategy_of(base)
            if target is None:
                with _locked(strategy):
                    return self._diff_now(strategy, base.commit_ref)
            other = self._strategy_of(target)
            if (other.kind, other.home) != (strategy.kind, strategy.home):
                raise SnapshotIncompatibleError("they are kept in different ways or places")
            with _locked(strategy), strategy.reading(base.commit_ref), strategy.reading(target.commit_ref):
                is_same = partial(_is_same, strategy, base.commit_ref, target.commit_ref)
                return diff_entries(strategy.load(base.commit_ref), strategy.load(target.commit_ref), is_same)

    def _diff_now(self, strategy: Strategy, ref: str) -> FilesystemDiff:
        entries = strategy.load(ref)
        with opened(self._root) as beneath, strategy.reading(ref):
            now = list(Scan(beneath, strategy.known(beneath)))
            return diff_entries(entries, now, Comparison(beneath, strategy, ref).is_same)

    def delete(self, snapshot: FilesystemSnapshot) -> None:
        """Delete a snapshot. Raises SnapshotNotFoundError if there is no record of it."""
        with self._lock, _as(SnapshotError, f"Snapshot {snapshot.snapshot_id} could not be deleted"):
            strategy = self._strategy_of(snapshot)
            with _locked(strategy):
                _delete(strategy, _store(strategy), snapshot)

    def list(self) -> Sequence[FilesystemSnapshot]:
        """Return the snapshots of this root that are kept here, oldest first. A named storage may hold some of
        earlier processes.
        """
        with self._lock:
            if self._place is None:
                return ()
            home = choose.home(self.strategy, self._place)
            return self._on_record(DirectorySnapshotStore(os.path.join(home, _RECORDS)))

    def cleanup(self) -> None:
        """Delete the place with all snapshots if this instance created it. Raises SnapshotError.

        The strategy overlay is unmounted, and its present content stays in the directory. Does nothing before the first snapshot,
        and when called again.
        """
        with self._lock, _as(SnapshotError, f"The snapshots of {self._root} could not be cleaned up"):
            if self._own is not None:
                self._own.close()
            if self._is_made and self._place is not None:
                with contextlib.suppress(FileNotFoundError):
                    remove_tree(self._place)
            self._own, self._place, self._is_made = None, self._named, False

    # -- where

    def _on_record(self, store: DirectorySnapshotStore) -> Sequence[FilesystemSnapshot]:
        return tuple(snapshot for snapshot in store.list() if snapshot.root_path == self._root)

    def _ready(self) -> Strategy:
        if self._own is None:
            if not os.path.isdir(self._root):
                raise SnapshotCreationError("there is no such directory")
            kind = self.strategy
            if self._place is None:
                self._place = choose.new_place(self._root, kind)
                self._is_made = True
            elif not os.path.isdir(self._place):
                os.makedirs(self._place, mode=0o700)
                self._is_made = True
            self._own = choose.make(kind, self._root, self._place)
        return self._own

    def _strategy_of(self, snapshot: FilesystemSnapshot) -> Strategy:
        """Return the snapshot's strategy, which may differ from this instance's. An instance without a place takes over the
        snapshot's.
        """
        kind = _kind_of(snapshot) or self.strategy
        place = snapshot.git_dir or self._place if kind is SnapshotStrategy.GIT else os.path.dirname(snapshot.commit_ref)
        if not place or not os.path.isdir(choose.home(kind, place)):
            raise SnapshotNotFoundError(f"there are no snapshots in {place or 'any place known here'}")
        if self._own is not None and self._own.kind is kind and self._place == place:
            return self._own
        strategy = choose.make(kind, self._root, place)
        if self._own is None and self._place in (None, place) and self._kind in (None, kind):
            self._own, self._place, self._kind = strategy, place, kind
        return strategy


def _kind_of(snapshot: FilesystemSnapshot) -> SnapshotStrategy | None:
    if not snapshot.strategy:
        return SnapshotStrategy.GIT if snapshot.git_dir else None
    try:
        return SnapshotStrategy(snapshot.strategy)
    except ValueError:
        raise SnapshotIncompatibleError(
            f"it is one of {snapshot.backend}, kept as {snapshot.strategy}, not of a directory"
        ) from None


def _store(strategy: Strategy) -> DirectorySnapshotStore:
    return DirectorySnapshotStore(os.path.join(strategy.home, _RECORDS))


def _delete(strategy: Strategy, store: DirectorySnapshotStore, snapshot: FilesystemSnapshot) -> None:
    store.delete(snapshot.snapshot_id)
    forget_index(strategy.home, snapshot.commit_ref)
    strategy.delete(snapshot.commit_ref, [other.commit_ref for other in store.list()])


def _is_same(strategy: Strategy, ref: str, other_ref: str, entry: SnapshotEntry, other: SnapshotEntry) -> bool:
    if entry.content == other.content:
        return True
    return not strategy.is_exact and strategy.is_same(ref, entry, other_ref, other)


@contextlib.contextmanager
def _locked(strategy: Strategy) -> Iterator[None]:
    """Let one process and one thread work at a time."""
    with open(os.path.join(strategy.home, "lock"), "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _as(kind: type[SnapshotError], what: str) -> Iterator[None]:
    try:
        yield
    except SnapshotError as exc:
        raise (type(exc) if isinstance(exc, kind) else kind)(f"{what}: {exc}") from exc
    except OSError as exc:
        where = f": {os.fsdecode(exc.filename)}" if exc.filename is not None else ""
        raise kind(f"{what}: {exc.strerror or exc}{where}") from exc
