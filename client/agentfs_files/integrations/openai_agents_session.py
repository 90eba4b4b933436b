"""A session of OpenAI's Agents SDK in a branch: its life, snapshots, commands and files."""

import asyncio
import io
import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Literal, TypeVar, cast

from agentfs_client.errors import AgentFSError
from agentfs_client.extras import needed_for
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.filesystem.filesystem_errors import PathEscapeError, SnapshotError, SnapshotNotFoundError
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.filesystem.size_limits import SYSTEM_LIMITS
from agentfs_files.integrations.branch_workspace import BranchWorkspace
from agentfs_files.integrations.openai_agents_snapshot import AgentFSSnapshot
from agentfs_files.integrations.running_command import RunningCommand

with needed_for("this sandbox needs", "openai-agents"):
    from agents.sandbox.errors import (
        ExecNonZeroError,
        ExecTimeoutError,
        ExecTransportError,
        InvalidManifestPathError,
        SnapshotPersistError,
        SnapshotRestoreError,
        WorkspaceArchiveReadError,
        WorkspaceArchiveWriteError,
        WorkspaceReadNotFoundError,
        WorkspaceStartError,
        WorkspaceWriteTypeError,
    )
    from agents.sandbox.session import (
        BaseSandboxSession,
        SandboxSessionState,
    )
    from agents.sandbox.session.pty_types import PtyExecUpdate
    from agents.sandbox.types import ExecResult, User
    from agents.sandbox.util import UnsafeTarMemberError, formatted_truncate_text_with_token_count, validate_tarfile

_CHUNK_BYTES = 1 << 20
_START_YIELD_S, _WRITE_YIELD_S = 10.0, 0.25  # the SDK's own
_MOST_COMMANDS = 64
_FILE_ERRORS = (OSError, ValueError, RuntimeError)

_T = TypeVar("_T")


class AgentFSSandboxSessionState(SandboxSessionState):
    """What a session is found again by: the mount and its branch."""

    type: Literal["agentfsd"] = "agentfsd"
    mount: str
    branch: str
    discard: bool = False


class AgentFSSandboxSession(BaseSandboxSession):
    """A session in a branch. The SDK's file tools cannot leave the branch; commands see what else this process can.

    Users other than this process's are not supported. Paths that the manifest grants outside the branch are the real ones.
    """

    state: AgentFSSandboxSessionState

    def __init__(self, state: AgentFSSandboxSessionState, workspace: BranchWorkspace) -> None:
        self.state = state
        self._workspace = workspace
        self._is_running = False
        self._running: dict[int, RunningCommand] = {}
        self._numbers = itertools.count(1)

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
        if manifest.users or manifest.groups or any(grant.host_path is not None for grant in manifest.extra_path_grants):
            reason = "a branch of agentfsd has no users and groups, and no grant with a host path; take them out of the manifest"
            raise WorkspaceStartError(path=Path(manifest.root), message=reason)
        await self._do(lambda filesystem: filesystem.mkdir(manifest.root))

    async def _after_start(self) -> None:
        self._is_running = True

    async def _after_shutdown(self) -> None:
        self._is_running = False
        await asyncio.to_thread(self.let_go)

    def let_go(self) -> None:
        """Close the branch, which stays."""
        self._workspace.close()

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

    # -- commands that go on while the agent does something else

    def supports_pty(self) -> bool:
        """Commands may outlast the time that the agent waits for them, and may have a terminal."""
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Start a command, and return what it has written when it ends or after *yield_time_s*, by default 10 seconds."""
        env = await self.state.manifest.environment.resolve()
        words = self._prepare_exec_command(*command, shell=shell, user=user)
        try:
            started = await RunningCommand.start(
                self._workspace, words, directory=self.state.manifest.root, env=env, has_terminal=tty
            )
        except (OSError, RuntimeError) as exc:
            raise ExecTransportError(command=command, cause=exc, message=str(exc)) from exc
        number = next(self._numbers)
        self._running[number] = started
        if len(self._running) > _MOST_COMMANDS:
            await self._forget(min(self._running, key=lambda each: self._running[each].last_used))
        return await self._update(number, _START_YIELD_S if yield_time_s is None else yield_time_s, max_output_tokens)

    async def pty_write_stdin(
        self, *, session_id: int, chars: str, yield_time_s: float | None = None, max_output_tokens: int | None = None
    ) -> PtyExecUpdate:
        """Type something on a command's terminal, or nothing, and return what it has written since."""
        running = self._resolve_pty_session_entry(pty_processes=self._running, session_id=session_id)
        if chars:
            running.write(chars.encode())
        return await self._update(session_id, _WRITE_YIELD_S if yield_time_s is None else yield_time_s, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        """Kill the commands that still run."""
        for number in list(self._running):
            await self._forget(number)

    async def _update(self, number: int, seconds: float, max_output_tokens: int | None) -> PtyExecUpdate:
        running = self._running[number]
        output = (await running.output(seconds)).decode("utf-8", "replace")
        text, tokens = formatted_truncate_text_with_token_count(output, max_output_tokens)
        code = running.exit_code
        if code is not None:
            await self._forget(number)
        return PtyExecUpdate(
            process_id=number if code is None else None, output=text.encode(), exit_code=code, original_token_count=tokens
        )

    async def _forget(self, number: int) -> None:
        await self._running.pop(number).kill()

    # -- files

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Return the content of a file."""
        _check_no_user(user)
        return io.BytesIO(await self._read(path, -1))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return await self._read(path, max_bytes)

    async def _read(self, path: Path, size: int) -> bytes:
        where = self.normalize_path(path)

        def read(filesystem: Filesystem) -> bytes:
            with filesystem.open_read(str(where)) as reader:
                return reader.read(size)

        try:
            return await self._at(where, read)
        except PathEscapeError as exc:
            raise InvalidManifestPathError(rel=path, reason="escape_root", cause=exc) from exc
        except FileNotFoundError as exc:
            raise WorkspaceReadNotFoundError(path=path, cause=exc) from exc
        except _FILE_ERRORS as exc:
            raise WorkspaceArchiveReadError(path=path, cause=exc) from exc

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Write the whole content of a file; missing directories are created."""
        _check_no_user(user)
        where = self.normalize_path(path, for_write=True)

        def write(filesystem: Filesystem) -> None:
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

    async def _change(self, where: Path, act: Callable[[Filesystem], None]) -> None:
        try:
            await self._at(where, act)
        except PathEscapeError as exc:
            raise InvalidManifestPathError(rel=where, reason="escape_root", cause=exc) from exc
        except _FILE_ERRORS as exc:
            raise WorkspaceArchiveWriteError(path=where, cause=exc) from exc

    async def _at(self, where: Path, act: Callable[[Filesystem], _T]) -> _T:
        """Call *act* with the branch, or with the granted directory that a path is in."""
        for grant in self.state.manifest.extra_path_grants:
            if where.is_relative_to(grant.path) and not where.is_relative_to(self.state.manifest.root):
                return await asyncio.to_thread(act, HostFilesystem(grant.path, mount_point=grant.path, limits=SYSTEM_LIMITS))
        return await self._do(act)

    async def _do(self, act: Callable[[BranchFilesystem], _T]) -> _T:
        return await asyncio.to_thread(self._workspace.do, act)


def _copy(path: Path, data: io.IOBase, write: Callable[[bytes], object]) -> None:
    while chunk := data.read(_CHUNK_BYTES):
        if not isinstance(chunk, bytes | bytearray):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(chunk).__name__)
        write(bytes(chunk))


def _check_no_user(user: str | User | None) -> None:
    if user is not None:
        raise ValueError("files of a branch are read and written as the user of this process; give no user")
