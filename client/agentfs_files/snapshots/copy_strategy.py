"""Snapshots as plain copies of the tree, if nothing better works."""

from agentfs_files.filesystem.records import SnapshotStrategy
from agentfs_files.snapshots.tree_strategy import TreeStrategy
from agentfs_host import copying


class CopyStrategy(TreeStrategy):
    kind = SnapshotStrategy.COPY

    def clone(self, source: int, target: int) -> None:
        copying.copy(source, target)
