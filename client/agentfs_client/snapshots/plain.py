"""Snapshots as second trees, where nothing better can be had."""

from agentfs_client.filesystem.records import SnapshotStrategy
from agentfs_client.snapshots import contents
from agentfs_client.snapshots.trees import TreeStrategy


class CopyStrategy(TreeStrategy):
    kind = SnapshotStrategy.COPY

    def clone(self, source: int, target: int) -> None:
        contents.copy(source, target)
