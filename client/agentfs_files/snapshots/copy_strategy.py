"""Snapshots as second trees, where nothing better can be had."""

from agentfs_files.filesystem.records import SnapshotStrategy
from agentfs_files.snapshots import file_contents
from agentfs_files.snapshots.tree_strategy import TreeStrategy


class CopyStrategy(TreeStrategy):
    kind = SnapshotStrategy.COPY

    def clone(self, source: int, target: int) -> None:
        file_contents.copy(source, target)
