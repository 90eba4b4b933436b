"""The common part of strategies that read the directory directly and keep an index of what they saw."""

from abc import abstractmethod
from uuid import UUID

from agentfs_files.snapshots.index import Index, load_index, save_index
from agentfs_files.snapshots.restore import restore
from agentfs_files.snapshots.snapshot_tree import SnapshotEntry
from agentfs_files.snapshots.strategy import Strategy
from agentfs_host.descent import Descent, opened


class IndexedStrategy(Strategy):
    """A strategy that reads the directory directly and keeps an index of what it saw."""

    def take(self, root: str, snapshot_id: UUID, tag: str | None) -> tuple[str, list[SnapshotEntry]]:
        with opened(root) as beneath:
            index = load_index(self.home, beneath.fd(b""))
            ref, entries = self.keep(beneath, snapshot_id, tag, index)
            save_index(self.home, Index(index.root, ref, entries))
            return ref, entries

    def restore(self, root: str, ref: str) -> None:
        with opened(root) as beneath:
            index = load_index(self.home, beneath.fd(b""))
            with self.reading(ref):
                entries = restore(beneath, self, ref, index)
            save_index(self.home, Index(index.root, ref, entries))

    def known(self, beneath: Descent) -> dict[bytes, SnapshotEntry]:
        return load_index(self.home, beneath.fd(b"")).known()

    @abstractmethod
    def keep(self, beneath: Descent, snapshot_id: UUID, tag: str | None, index: Index) -> tuple[str, list[SnapshotEntry]]:
        """Take a snapshot of an open directory."""
