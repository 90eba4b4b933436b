"""A branch as a sandbox of OpenAI's Agents SDK: each session has a branch of its own.

RunConfig(sandbox=SandboxRunConfig(client=AgentFSSandboxClient("/mnt/work")))

A session ends with a snapshot in the daemon instead of an archive of the workspace. Resuming it continues in the branch, and a
new session may begin with a former one's snapshot.
"""

import asyncio
import io
import os
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Literal, TypeVar, cast

from agentfs_client.errors import AgentFSError
from agentfs_client.extras import needed_for
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.filesystem.filesystem_errors import SnapshotError, SnapshotNotFoundError
from agentfs_files.integrations.branch_workspace import BranchWorkspace

with needed_for("this sandbox needs", "openai-agents"):
    from agents.sandbox.errors import (
        ExecNonZeroError,
        ExecTimeoutError,
        ExecTransportError,
        SnapshotPersistError,
        SnapshotRestoreError,
        WorkspaceArchiveReadError,
        WorkspaceArchiveWriteError,
        WorkspaceReadNotFoundError,
        WorkspaceStartError,
        WorkspaceWriteTypeError,
    )
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session import (
        BaseSandboxClient,
        BaseSandboxClientOptions,
        BaseSandboxSession,
        Dependencies,
        Instrumentation,
        SandboxSession,
        SandboxSessionState,
    )
    from agents.sandbox.snapshot import LocalSnapshotSpec, SnapshotBase, SnapshotSpec, resolve_snapshot
    from agents.sandbox.snapshot_defaults import default_local_snapshot_base_dir
    from agents.sandbox.types import ExecResult, User
    from agents.sandbox.util import UnsafeTarMemberError, validate_tarfile

BACKEND_ID = "agentfsd"
_CHUNK_BYTES = 1 << 20
_FILE_ERRORS = (OSError, ValueError, RuntimeError)

_T = TypeVar("_T")


class AgentFSSandboxClientOptions(BaseSandboxClientOptions):
    """How the branch of a new session is made. Each option takes the place of the client's.

    ``branch`` is its name; None for a new one with a name of its own. ``source`` is the ref to create it from; None means the
    present ``main``. ``discard``: delete() discards it (`agentfsd undo` brings it back); otherwise it stays to be reviewed.
    """

    type: Literal["agentfsd"] = "agentfsd"
    branch: str | None = None
    source: str | None = None
    discard: bool | None = None


class AgentFSSandboxSessionState(SandboxSessionState):
    """What a session is found again by: the mount and its branch."""

    type: Literal["agentfsd"] = "agentfsd"
    mount: str
    branch: str
    discard: bool = False


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


class AgentFSSandboxSession(BaseSandboxSession):
    """A session in a branch. The SDK's file tools cannot leave the branch; commands see what else this process can.

    Users other than this process's are not supported, nor are paths outside the branch.
    """

    state: AgentFSSandboxSessionState

    def __init__(self, state: AgentFSSandboxSessionState, workspace: BranchWorkspace) -> None:
        self.state = state
        self._workspace = workspace
        self._is_running = False

    @property
    def branch(self) -> str:
        """Name of the branch."""
        return self._workspace.branch

    # -- the life of a session

    def continue_in_branch(self) -> None:
        """Let start() take the branch as it is, instead of writing the manifest's files into it."""
        self.state.workspace_root_ready = True
        self._set_start_state_preserved(True)

    async def _ensure_backend_started(self) -> None:
        try:
            await self._do(lambda filesystem: filesystem.check_there())
        except ValueError:  # it was shut down before
            self._workspace = await asyncio.to_thread(BranchWorkspace.open, self.state.mount, branch=self.state.branch)

    async def _prepare_backend_workspace(self) -> None:
        manifest = self.state.manifest
        if manifest.users or manifest.groups or manifest.extra_path_grants:
            reason = "a branch of agentfsd has no users, groups or path grants; take them out of the manifest"
            raise WorkspaceStartError(path=Path(manifest.root), message=reason)
        await self._do(lambda filesystem: filesystem.mkdir(manifest.root))

    async def _after_start(self) -> None:
        self._is_running = True

    async def _after_shutdown(self) -> None:
        self._is_running = False
        await asyncio.to_thread(self._workspace.close)

    async def running(self) -> bool:
        """Whether the session has started and its branch is there."""
        return self._is_running and await asyncio.to_thread(self._workspace.is_there)

    # -- snapshots

    async def _persist_snapshot(self) -> None:
        snapshot = self.state.snapshot
        if not isinstance(snapshot, AgentFSSnapshot):
            await super()._persist_snapshot()
            return
        tag = snapshot.tag

        def take(filesystem: BranchFilesystem) -> None:
            try:
                before = filesystem.find_snapshot(tag)
            except SnapshotNotFoundError:
                before = None
            filesystem.snapshot(tag=tag, keep=True)
            if before is not None:
                filesystem.delete_snapshot(before)

        try:
            await self._do(take)
        except (AgentFSError, SnapshotError) as exc:
            raise SnapshotPersistError(snapshot_id=snapshot.id, path=Path(self.state.mount), cause=exc) from exc

    async def _can_skip_snapshot_restore_on_resume(self, *, is_running: bool) -> bool:
        """The branch is at least as new as its snapshot, and somebody may have worked in it since."""
        if isinstance(self.state.snapshot, AgentFSSnapshot):
            return True
        return await super()._can_skip_snapshot_restore_on_resume(is_running=is_running)

    async def _restore_snapshot_into_workspace_on_resume(self) -> None:
        snapshot = self.state.snapshot
        if not isinstance(snapshot, AgentFSSnapshot):
            await super()._restore_snapshot_into_workspace_on_resume()
            return
        tag = snapshot.tag
        try:
            await self._do(lambda filesystem: filesystem.restore(filesystem.find_snapshot(tag)))
        except (AgentFSError, SnapshotError) as exc:
            raise SnapshotRestoreError(snapshot_id=snapshot.id, path=Path(self.state.mount), cause=exc) from exc

    async def persist_workspace(self) -> io.IOBase:
        """Return a tar archive of the workspace, for snapshots that are kept elsewhere."""
        root = Path(self.state.manifest.root)
        left_out = [f"--exclude=./{path.as_posix()}" for path in sorted(self._persist_workspace_skip_relpaths())]
        archive = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            await self._tar("-cf", "-", "--no-wildcards", "--anchored", *left_out, ".", output=archive)
        except ExecNonZeroError as exc:
            archive.close()
            raise WorkspaceArchiveReadError(path=root, cause=exc) from exc
        archive.seek(0)
        return cast(io.IOBase, archive)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpack a tar archive into the workspace."""
        import tarfile

        root = Path(self.state.manifest.root)
        with tempfile.TemporaryFile() as archive:
            await asyncio.to_thread(_copy, root, data, archive.write)
            archive.seek(0)
            try:
                with tarfile.open(fileobj=archive) as tar:
                    await asyncio.to_thread(validate_tarfile, tar, allow_external_symlink_targets=False)
                os.lseek(archive.fileno(), 0, os.SEEK_SET)
                await self._tar("-xf", "-", source=archive)
            except (UnsafeTarMemberError, tarfile.TarError, ExecNonZeroError) as exc:
                raise WorkspaceArchiveWriteError(path=root, cause=exc) from exc

    async def _tar(self, *arguments: str, source: IO[bytes] | None = None, output: IO[bytes] | None = None) -> None:
        command = ["tar", *arguments]
        done = await self._workspace.run_async(command, directory=self.state.manifest.root, stdin=source, stdout=output)
        if done.exit_code:
            raise ExecNonZeroError(ExecResult(stdout=b"", stderr=done.errors, exit_code=done.exit_code), command=command)

    # -- commands

    def _prepare_exec_command(self, *command: str | Path, shell: bool | list[str], user: str | User | None) -> list[str]:
        """Use sh without its login files, which would take the caller's PATH away."""
        return super()._prepare_exec_command(*command, shell=["sh", "-c"] if shell is True else shell, user=user)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        env = await self.state.manifest.environment.resolve()
        words = [str(word) for word in command]
        try:
            done = await self._workspace.run_async(words, directory=self.state.manifest.root, env=env, timeout_s=timeout)
        except (OSError, RuntimeError) as exc:
            raise ExecTransportError(command=command, cause=exc, message=str(exc)) from exc
        if done.has_timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        return ExecResult(stdout=done.output, stderr=done.errors, exit_code=done.exit_code)

    # -- files

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Return the content of a file."""
        _check_no_user(user)
        return io.BytesIO(await self._read(path, -1))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return await self._read(path, max_bytes)

    async def _read(self, path: Path, size: int) -> bytes:
        where = str(self.normalize_path(path))

        def read(filesystem: BranchFilesystem) -> bytes:
            with filesystem.open_read(where) as reader:
                return reader.read(size)

        try:
            return await self._do(read)
        except FileNotFoundError as exc:
            raise WorkspaceReadNotFoundError(path=path, cause=exc) from exc
        except _FILE_ERRORS as exc:
            raise WorkspaceArchiveReadError(path=path, cause=exc) from exc

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Write the whole content of a file; missing directories are created."""
        _check_no_user(user)
        where = self.normalize_path(path, for_write=True)

        def write(filesystem: BranchFilesystem) -> None:
            with filesystem.open_write(str(where)) as writer:
                _copy(path, data, writer.write)

        await self._change(where, write)

    async def mkdir(self, path: Path | str, *, parents: bool = False, user: str | User | None = None) -> None:
        """Create a directory."""
        _check_no_user(user)
        where = self.normalize_path(path, for_write=True)
        await self._change(where, lambda filesystem: filesystem.mkdir(str(where), parents=parents, exist_ok=parents))

    async def rm(self, path: Path | str, *, recursive: bool = False, user: str | User | None = None) -> None:
        """Delete a file or directory. With *recursive* a path that does not exist is no error."""
        _check_no_user(user)
        where = self.normalize_path(path, for_write=True)
        try:
            await self._change(where, lambda filesystem: filesystem.delete(str(where), recursive=recursive))
        except WorkspaceArchiveWriteError as exc:
            if not isinstance(exc.cause, FileNotFoundError):
                raise
            if not recursive:
                missing = ExecResult(stdout=b"", stderr=str(exc.cause).encode(), exit_code=1)
                raise ExecNonZeroError(missing, command=("rm", "--", str(where)), cause=exc.cause) from exc

    async def _change(self, where: Path, act: Callable[[BranchFilesystem], None]) -> None:
        try:
            await self._do(act)
        except _FILE_ERRORS as exc:
            raise WorkspaceArchiveWriteError(path=where, cause=exc) from exc

    async def _do(self, act: Callable[[BranchFilesystem], _T]) -> _T:
        return await asyncio.to_thread(self._workspace.do, act)


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
        BranchFilesystem(state.branch, mount=state.mount).discard()


def _copy(path: Path, data: io.IOBase, write: Callable[[bytes], object]) -> None:
    while chunk := data.read(_CHUNK_BYTES):
        if not isinstance(chunk, bytes | bytearray):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(chunk).__name__)
        write(bytes(chunk))


def _check_no_user(user: str | User | None) -> None:
    if user is not None:
        raise ValueError("files of a branch are read and written as the user of this process; give no user")
