"""Snapshots as trees whose files share their blocks with the root's: btrfs, xfs. Needs storage on the root's own file system."""

import errno

from agentfs_client.filesystem.errors import SnapshotCreationError
from agentfs_client.filesystem.records import SnapshotStrategy
from agentfs_client.snapshots import contents
from agentfs_client.snapshots.trees import TreeStrategy


class ReflinkStrategy(TreeStrategy):
    kind = SnapshotStrategy.REFLINK

    def clone(self, source: int, target: int) -> None:
        try:
            contents.share(source, target)
        except OSError as exc:
            if exc.errno in contents.NO_REFLINK:
                raise SnapshotCreationError(
                    f"files cannot be shared with {self.home}: it must be on the same file system as the root, "
                    f"and one with reflinks ({errno.errorcode[exc.errno]})"
                ) from exc
            if exc.errno not in contents.NOT_THIS_FILE:
                raise
            contents.copy(source, target)
