"""Snapshots as trees whose files share blocks with the root's: btrfs, xfs. The storage must be on the root's file system."""

import errno

from agentfs_files.filesystem.filesystem_errors import SnapshotCreationError
from agentfs_files.filesystem.records import SnapshotStrategy
from agentfs_files.snapshots.tree_strategy import TreeStrategy
from agentfs_host import copying


class ReflinkStrategy(TreeStrategy):
    kind = SnapshotStrategy.REFLINK

    def clone(self, source: int, target: int) -> None:
        try:
            copying.share(source, target)
        except OSError as exc:
            if exc.errno in copying.NO_REFLINK:
                raise SnapshotCreationError(
                    f"files cannot be shared with {self.home}: it must be on the same file system as the root, "
                    f"and one with reflinks ({errno.errorcode[exc.errno]})"
                ) from exc
            if exc.errno not in copying.NOT_THIS_FILE:
                raise
            copying.copy(source, target)
