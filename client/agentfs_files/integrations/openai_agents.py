"""A branch as a sandbox of OpenAI's Agents SDK: each session has a branch of its own.

RunConfig(sandbox=SandboxRunConfig(client=AgentFSSandboxClient("/mnt/work")))

A session ends with a snapshot in the daemon instead of an archive of the workspace. Resuming it continues in the branch, and a
new session may begin with a former one's snapshot.
"""

import asyncio
import contextlib
import os
import uuid
from pathlib import Path
from typing import Literal, cast

from agentfs_client.errors import AgentFSError, NotFoundError
from agentfs_client.extras import needed_for
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.integrations.branch_workspace import BranchWorkspace
from agentfs_files.integrations.openai_agents_session import AgentFSSandboxSession, AgentFSSandboxSessionState
from agentfs_files.integrations.openai_agents_snapshot import AgentFSSnapshot, AgentFSSnapshotSpec

with needed_for("this sandbox needs", "openai-agents"):
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session import (
        BaseSandboxClient,
        BaseSandboxClientOptions,
        Dependencies,
        Instrumentation,
        SandboxSession,
        SandboxSessionState,
    )
    from agents.sandbox.snapshot import LocalSnapshotSpec, SnapshotBase, SnapshotSpec, resolve_snapshot
    from agents.sandbox.snapshot_defaults import default_local_snapshot_base_dir

BACKEND_ID = "agentfsd"


class AgentFSSandboxClientOptions(BaseSandboxClientOptions):
    """How the branch of a new session is made. Each option takes the place of the client's.

    ``branch`` is its name; None for a new one with a name of its own. ``source`` is the ref to create it from; None means the
    present ``main``. ``discard``: delete() discards it (`agentfsd undo` brings it back); otherwise it stays to be reviewed.
    """

    type: Literal["agentfsd"] = "agentfsd"
    branch: str | None = None
    source: str | None = None
    discard: bool | None = None


class AgentFSSandboxClient(BaseSandboxClient[AgentFSSandboxClientOptions | None]):
    """Give each session its own branch of one mount.

    Args:
        mount: The mount point; None for AGENTFS_MOUNT, the mount around the current directory, or the only one.
        source: The ref that new branches are created from; None means the present ``main``.
        discard: Whether delete(), which the SDK's runner calls at the end of a run, discards the branch.
        instrumentation: The SDK's.
        dependencies: The SDK's.
    """

    backend_id = BACKEND_ID
    supports_default_options = True

    def __init__(
        self,
        mount: str | os.PathLike[str] | None = None,
        *,
        source: str | None = None,
        discard: bool = False,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        self._mount, self._source, self._discards = mount, source, discard
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: AgentFSSandboxClientOptions | None = None,
    ) -> SandboxSession:
        """Create a branch and a session in it. A former session's *snapshot* is what the branch begins with.

        Raises:
            AgentFSError: There is no such mount or source, or the daemon cannot be reached.
            ValueError: The root of the manifest is neither the SDK's default nor in the mount.
        """
        asked = options or AgentFSSandboxClientOptions()
        source = asked.source if asked.source is not None else self._source
        continued = isinstance(snapshot, AgentFSSnapshot) and await snapshot.restorable()
        if continued:
            source = cast(AgentFSSnapshot, snapshot).tag
        workspace = await asyncio.to_thread(BranchWorkspace.open, self._mount, branch=asked.branch, source=source)
        try:
            manifest = self._validate_manifest_for_create(_rooted(manifest or Manifest(), workspace.root))
        except BaseException:
            workspace.close()
            raise
        number = uuid.uuid4()
        if snapshot is None or _is_default(snapshot):
            snapshot = AgentFSSnapshotSpec(mount=workspace.root)
        state = AgentFSSandboxSessionState(
            session_id=number,
            snapshot=resolve_snapshot(snapshot, str(number)),
            manifest=manifest,
            mount=workspace.root,
            branch=workspace.branch,
            discard=self._discards if asked.discard is None else asked.discard,
        )
        return self._session(state, workspace, preserved=continued)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Continue a session in its branch. If that was discarded, a new branch begins with the session's snapshot."""
        if not isinstance(state, AgentFSSandboxSessionState):
            raise TypeError("AgentFSSandboxClient.resume expects an AgentFSSandboxSessionState")
        snapshot = state.snapshot
        source = snapshot.tag if isinstance(snapshot, AgentFSSnapshot) and await snapshot.restorable() else self._source
        try:
            filesystem = await asyncio.to_thread(BranchFilesystem, state.branch, mount=state.mount)
        except AgentFSError:
            workspace = await asyncio.to_thread(BranchWorkspace.open, state.mount, branch=state.branch, source=source)
            return self._session(state, workspace, preserved=isinstance(snapshot, AgentFSSnapshot))
        return self._session(state, BranchWorkspace(filesystem), preserved=True)

    def _session(self, state: AgentFSSandboxSessionState, workspace: BranchWorkspace, *, preserved: bool) -> SandboxSession:
        inner = AgentFSSandboxSession(state, workspace)
        if preserved:
            inner.continue_in_branch()
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Close the session's branch, and discard it if the options say so."""
        inner = session._inner  # noqa: SLF001 - as the SDK's own clients do
        if not isinstance(inner, AgentFSSandboxSession):
            raise TypeError("AgentFSSandboxClient.delete expects a session of agentfsd")
        await asyncio.to_thread(inner.let_go)
        await asyncio.to_thread(_end, inner.state)
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Return the state that serialize_session_state() wrote."""
        return self._deserialize_session_state_payload(payload, AgentFSSandboxSessionState)


def _rooted(manifest: Manifest, mount: str) -> Manifest:
    """Return the manifest with its root in the mount."""
    if manifest.root == Manifest.model_fields["root"].default:
        return manifest.model_copy(update={"root": mount}, deep=True)
    if not Path(os.path.normpath(manifest.root)).is_relative_to(mount):
        raise ValueError(f"the manifest's root {manifest.root} is not in the mount {mount}; leave it out, or name one there")
    return manifest


def _is_default(snapshot: SnapshotSpec | SnapshotBase) -> bool:
    """Tell whether the runner chose it: an archive of the whole workspace in the user's state directory."""
    return isinstance(snapshot, LocalSnapshotSpec) and snapshot.base_path == default_local_snapshot_base_dir()


def _end(state: AgentFSSandboxSessionState) -> None:
    if state.discard:
        with contextlib.suppress(NotFoundError):  # somebody has discarded it
            BranchWorkspace(BranchFilesystem(state.branch, mount=state.mount)).discard()
