"""Snapshots that are directory trees in the storage: the common half of the strategies reflink and copy.

A snapshot is a directory with a manifest and a tree. A file that has not changed since the previous snapshot is another name
(hard link) of that snapshot's file, so that nothing is copied twice.
"""

import contextlib
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

import msgspec

from agentfs_files.filesystem.filesystem_errors import SnapshotRestoreError
from agentfs_files.snapshots import file_contents
from agentfs_files.snapshots.build import Builder, Into
from agentfs_files.snapshots.index import Index
from agentfs_files.snapshots.indexed_strategy import IndexedStrategy
from agentfs_files.snapshots.places import is_place, new_place, read_manifest, remove_place, write_manifest
from agentfs_files.snapshots.snapshot_tree import Scan, SnapshotEntry, capture, open_file
from agentfs_host import copying
from agentfs_host.descent import Descent, opened


class TreeStrategy(IndexedStrategy):
    is_exact = False  # contents are numbered as they come: naming one must not mean reading it

    def __init__(self, home: str) -> None:
        self.home = home

    @abstractmethod
    def clone(self, source: int, target: int) -> None:
        """Fill an empty file of the storage with the content of a file of the root."""

    def keep(self, beneath: Descent, snapshot_id: UUID, tag: str | None, index: Index) -> tuple[str, list[SnapshotEntry]]:
        with new_place(self.home, snapshot_id) as place:
            tree = os.path.join(place, "tree")
            os.mkdir(tree, 0o700)
            with opened(tree) as target, self._base(index) as base:
                entries = _Taking(self, beneath, target, base, index, snapshot_id).run()
            write_manifest(place, entries)
            return place, entries

    def load(self, ref: str) -> list[SnapshotEntry]:
        return read_manifest(self.home, ref)

    def delete(self, ref: str, remaining: Iterable[str]) -> None:
        remove_place(self.home, ref)

    @contextlib.contextmanager
    def _base(self, index: Index) -> Iterator[Descent | None]:
        """Yield the tree of the snapshot that the index describes; None if there is none."""
        tree = os.path.join(index.ref, "tree")
        if not is_place(self.home, index.ref) or not os.path.isdir(tree):
            yield None
            return
        with opened(tree) as base:
            yield base

    def fill(self, ref: str, files: Sequence[SnapshotEntry], into: Into) -> None:
        fill_from(os.path.join(ref, "tree"), files, into)

    def holds(self, ref: str, entry: SnapshotEntry, fd: int) -> bool:
        return is_same_in(os.path.join(ref, "tree"), entry, fd)

    def is_same(self, ref: str, entry: SnapshotEntry, other_ref: str, other: SnapshotEntry) -> bool:
        with kept(os.path.join(other_ref, "tree"), other) as source:
            return self.holds(ref, entry, source)


class _Taking:
    """A snapshot that is being taken."""

    def __init__(
        self, strategy: TreeStrategy, beneath: Descent, target: Descent, base: Descent | None, index: Index, snapshot_id: UUID
    ) -> None:
        self._strategy, self._beneath, self._target, self._base = strategy, beneath, target, base
        self._scan = Scan(beneath, index.known())
        self._builder = Builder(target)
        self._number = 0
        self._prefix = snapshot_id.bytes
        self._firsts: dict[int, SnapshotEntry] = {}

    def run(self) -> list[SnapshotEntry]:
        entries = []
        for found in self._scan:
            entry = self._keep(found)
            if entry is not None:
                entries.append(entry)
        self._builder.settle_directories(entries)
        return entries

    def _keep(self, entry: SnapshotEntry) -> SnapshotEntry | None:
        if not entry.path:
            return entry
        if entry.is_dir or entry.is_link:
            self._builder.make(entry)
        if not entry.is_file:  # FIFOs and the like are in the manifest alone
            return entry
        first = self._firsts.get(entry.group)
        if first is not None:
            self._builder.link(first, entry)
            return msgspec.structs.replace(first, path=entry.path)
        kept = entry if entry.content and self._link(entry) else self._copy(entry)
        if kept is not None and kept.group:
            self._firsts[kept.group] = kept
        return kept

    def _link(self, entry: SnapshotEntry) -> bool:
        if self._base is None:
            return False
        directory, _, name = entry.path.rpartition(b"/")
        try:
            os.link(name, name, src_dir_fd=self._base.fd(directory), dst_dir_fd=self._target.fd(directory), follow_symlinks=False)
        except OSError:  # too many names, or it is gone
            return False
        return True

    def _copy(self, entry: SnapshotEntry) -> SnapshotEntry | None:
        """Copy a file and return its entry as of the copy."""
        fd = self._builder.create(entry)
        try:
            kept = capture(self._beneath, entry.path, self._scan.horizon_ns, lambda source: self._clone(source, fd))
            if kept is None:
                self._builder.discard(entry)
            else:
                self._builder.finish(kept, fd)
            return kept
        finally:
            os.close(fd)

    def _clone(self, source: int, target: int) -> tuple[bytes, int]:
        if os.fstat(target).st_size:  # of an attempt before
            os.ftruncate(target, 0)
        self._strategy.clone(source, target)
        self._number += 1
        return self._prefix + self._number.to_bytes(4, "big"), os.fstat(target).st_size


def fill_from(tree: str, files: Sequence[SnapshotEntry], into: Into) -> None:
    """Fill files with the contents of a tree: share blocks, or copy."""
    with opened(tree) as beneath:
        for entry in files:
            with into(entry) as target, _kept(beneath, entry) as source:
                copying.share_or_copy(source, target)
                if os.fstat(target).st_size != entry.size:
                    raise SnapshotRestoreError(f"{os.fsdecode(entry.path)} is damaged in {tree}")


def is_same_in(tree: str, entry: SnapshotEntry, fd: int) -> bool:
    """Tell whether a file in a tree has the same content as an open file."""
    with kept(tree, entry) as source:
        return file_contents.is_same(source, fd)


@contextlib.contextmanager
def kept(tree: str, entry: SnapshotEntry) -> Iterator[int]:
    with opened(tree) as beneath, _kept(beneath, entry) as fd:
        yield fd


@contextlib.contextmanager
def _kept(tree: Descent, entry: SnapshotEntry) -> Iterator[int]:
    fd = open_file(tree, entry.path)
    if fd is None:
        raise SnapshotRestoreError(f"{os.fsdecode(entry.path)} is missing in the snapshot")
    try:
        yield fd
    finally:
        os.close(fd)
