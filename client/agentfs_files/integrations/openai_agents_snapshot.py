"""Snapshots in a daemon for sessions of OpenAI's Agents SDK."""

import asyncio
import io
from pathlib import Path
from typing import Literal

from agentfs_client.extras import needed_for
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.filesystem.filesystem_errors import SnapshotNotFoundError

with needed_for("this sandbox needs", "openai-agents"):
    from agents.sandbox.errors import SnapshotPersistError, SnapshotRestoreError
    from agents.sandbox.session import Dependencies
    from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec


class AgentFSSnapshot(SnapshotBase):
    """A snapshot in the daemon of a mount: the newest one with the tag ``sandbox-ID``. No content leaves the daemon."""

    type: Literal["agentfsd"] = "agentfsd"
    mount: str

    @property
    def tag(self) -> str:
        """A ref of the snapshot."""
        return f"sandbox-{self.id}"

    async def persist(self, data: io.IOBase, *, dependencies: Dependencies | None = None) -> None:
        """Refuse: this is for sessions of AgentFSSandboxClient, which need no archive."""
        raise SnapshotPersistError(snapshot_id=self.id, path=Path(self.mount), context={"reason": "only for agentfsd's sessions"})

    async def restore(self, *, dependencies: Dependencies | None = None) -> io.IOBase:
        """Refuse, as persist() does."""
        raise SnapshotRestoreError(snapshot_id=self.id, path=Path(self.mount), context={"reason": "only for agentfsd's sessions"})

    async def restorable(self, *, dependencies: Dependencies | None = None) -> bool:
        """Tell whether the daemon has it."""
        return await asyncio.to_thread(self._is_there)

    def _is_there(self) -> bool:
        with BranchFilesystem(mount=self.mount) as filesystem:
            try:
                filesystem.find_snapshot(self.tag)
            except SnapshotNotFoundError:
                return False
        return True


class AgentFSSnapshotSpec(SnapshotSpec):
    """Let sessions end with snapshots in the daemon of a mount. This is the default."""

    type: Literal["agentfsd"] = "agentfsd"
    mount: str

    def build(self, snapshot_id: str) -> AgentFSSnapshot:
        """Name the snapshot of one session."""
        return AgentFSSnapshot(id=snapshot_id, mount=self.mount)
