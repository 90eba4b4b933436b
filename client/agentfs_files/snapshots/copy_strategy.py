"""Snapshots as second trees, where nothing better can be had."""

from agentfs_files.filesystem.records import SnapshotStrategy
from agentfs_files.snapshots.tree_strategy import TreeStrategy
from agentfs_host import copying


class CopyStrategy(TreeStrategy):
    kind = SnapshotStrategy.COPY

    def clone(self, source: int, target: int) -> None:
        copying.copy(source, target)
