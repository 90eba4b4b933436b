"""A file system as a workspace of Pydantic AI, and this library's tools as a toolset.

Agent(model, capabilities=[AgentFSWorkspace("/mnt/work")])             a branch of its own for each conversation
Agent(model, toolsets=[filesystem_toolset(filesystem)])                ls, read_file, write_file, edit_file, glob, grep, rm
"""

import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from agentfs_client.errors import DaemonGoneError, NotFoundError
from agentfs_client.extras import needed_for
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.filesystem.size_limits import SYSTEM_LIMITS, Limits, without_path_limits
from agentfs_files.filesystem.virtual_paths import name_of
from agentfs_files.integrations.branch_commands import passed_on
from agentfs_files.integrations.branch_workspace import BranchWorkspace
from agentfs_files.tools.catalogue import tools_for
from agentfs_files.tools.context import ToolContext
from agentfs_files.tools.dispatch import call_tool

with needed_for("this workspace needs", "pydantic-ai"):
    import anyio
    import anyio.to_thread
    from pydantic_ai import FunctionToolset, RunContext, Tool
    from pydantic_ai.capabilities.abstract import AbstractCapability
    from pydantic_ai.messages import WorkspaceRef
    from pydantic_ai.workspaces import (
        CommandResult,
        FileEntry,
        LocalWorkspaceBackend,
        WorkspaceBackend,
        WorkspaceCommand,
        WorkspaceUnavailableError,
    )

PROVIDER = "agentfs"

_T = TypeVar("_T")


class AgentFSWorkspaceBackend:
    """Any file system as a workspace without commands. Paths begin with its mount point, or else with its root."""

    def __init__(self, filesystem: Filesystem, *, id: str | None = None) -> None:
        without_path_limits(filesystem)
        self._opened: Filesystem | None = filesystem
        self._one_at_a_time = anyio.CapacityLimiter(1)  # file systems are not for several threads at once
        self._ref: WorkspaceRef | None = WorkspaceRef(provider=PROVIDER, id=id or self._root(filesystem))

    @staticmethod
    def _root(filesystem: Filesystem) -> str:
        return filesystem.mount_point or filesystem.root

    def _filesystem(self) -> Filesystem:
        assert self._opened is not None
        return self._opened

    async def _do(self, act: Callable[[Filesystem], _T]) -> _T:
        def do() -> _T:
            try:
                return act(self._filesystem())
            except (DaemonGoneError, NotFoundError) as exc:
                raise WorkspaceUnavailableError(f"{exc.message}: {exc.hint}") from exc

        return await anyio.to_thread.run_sync(do, limiter=self._one_at_a_time)

    @property
    def ref(self) -> WorkspaceRef | None:
        """The reference by which a workspace is found again: the branch."""
        return self._ref

    async def working_dir(self) -> str:
        """The directory that relative paths start from."""
        return await self._do(self._root)

    async def read_bytes(self, path: str) -> bytes:
        """Return the content of a file."""

        def read(filesystem: Filesystem) -> bytes:
            with filesystem.open_read(path) as reader:
                return reader.read()

        return await self._do(read)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Write the whole content of a file."""

        def write(filesystem: Filesystem) -> None:
            with filesystem.open_write(path) as writer:
                writer.write(data)

        await self._do(write)

    async def stat(self, path: str) -> FileEntry:
        """Describe a file or directory."""

        def stat(filesystem: Filesystem) -> FileEntry:
            entry = filesystem.stat(path)
            size = entry.size_bytes if entry.is_file else None
            return FileEntry(name=name_of(path.rstrip("/")), path=path, is_dir=entry.is_directory, size=size)

        return await self._do(stat)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """List a directory."""

        def list_(filesystem: Filesystem) -> list[FileEntry]:
            return [
                FileEntry(
                    name=child.name, path=posixpath.join(path, child.name), is_dir=child.is_directory, size=child.size_bytes
                )
                for child in filesystem.list(path)
            ]

        return await self._do(list_)

    async def make_dir(self, path: str) -> None:
        """Create a directory and those above it."""
        await self._do(lambda filesystem: filesystem.mkdir(path))

    async def remove(self, path: str) -> None:
        """Delete a file or directory."""

        def remove(filesystem: Filesystem) -> None:
            root = self._root(filesystem)
            if f"{root}/".startswith(f"{posixpath.normpath(path).rstrip('/')}/"):
                raise ValueError(f"{path} is the working directory {root}, or above it; remove what is in it")
            filesystem.delete(path, recursive=True)

        await self._do(remove)

    async def exists(self, path: str) -> bool:
        """Return whether a path exists."""
        return await self._do(lambda filesystem: filesystem.exists(path))


class BranchWorkspaceBackend(AgentFSWorkspaceBackend):
    """A branch of agentfsd with commands: `agentfsd run` runs them, and they see the branch at the mount point.

    The first operation creates the branch under a new name, unless *ref* names an existing one. The branch is never deleted
    automatically: see BranchFilesystem.discard() and `agentfsd discard`.
    """

    def __init__(
        self,
        mount: str | os.PathLike[str] | None = None,
        *,
        source: str | None = None,
        ref: WorkspaceRef | None = None,
        limits: Limits = SYSTEM_LIMITS,
    ) -> None:
        self._mount, self._source, self._ref, self._limits = mount, source, ref, limits
        self._opened = None
        self._one_at_a_time = anyio.CapacityLimiter(1)

    def _filesystem(self) -> BranchFilesystem:
        if not isinstance(self._opened, BranchFilesystem):
            if self._ref is None:
                self._opened = BranchWorkspace.open(self._mount, source=self._source, limits=self._limits).filesystem
            else:
                self._opened = BranchFilesystem(self._ref.id, mount=self._mount, limits=self._limits)
            self._ref = WorkspaceRef(provider=PROVIDER, id=self._opened.branch_id)
        return self._opened

    @staticmethod
    def _root(filesystem: Filesystem) -> str:
        assert isinstance(filesystem, BranchFilesystem)
        filesystem.check_there()
        return filesystem.root

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Start a command in the branch.

        Args:
            command: The program and its arguments, or with *shell* a command line.
            shell: Run *command* by sh.
            env: Additional environment variables.
            timeout: Seconds until the command is killed; None for no limit.
        """
        if isinstance(command, str) != shell:
            raise TypeError("a command is a string with shell=True, or else a sequence of strings")
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        root = await self.working_dir()
        started = await self._do(lambda _: BranchWorkspace(self._filesystem()).command(argv))
        return await LocalWorkspaceBackend(root, env=passed_on()).run(started, env=env, timeout=timeout)


class AgentFSWorkspace(AbstractCapability[Any]):
    """Give each conversation its own branch of one mount. A continued conversation keeps its branch."""

    def __init__(
        self, mount: str | os.PathLike[str] | None = None, *, source: str | None = None, limits: Limits = SYSTEM_LIMITS
    ) -> None:
        self.mount, self.source, self.limits = mount, source, limits

    def get_workspace(self, ctx: RunContext[Any], *, ref: WorkspaceRef | None) -> WorkspaceBackend | None:
        """Return the workspace of a conversation; *ref* is the branch of a continued one."""
        if ref is not None and ref.provider != PROVIDER:
            return None
        return BranchWorkspaceBackend(self.mount, source=self.source, ref=ref, limits=self.limits)


def filesystem_toolset(filesystem: Filesystem) -> FunctionToolset[Any]:
    """Return the tools of agentfs_files.tools for one file system. The model sees their refusals and can try again."""
    without_path_limits(filesystem)
    context = ToolContext(filesystem=filesystem)
    offered = tools_for(filesystem)
    one_at_a_time = anyio.CapacityLimiter(1)

    def caller(name: str) -> Callable[..., Any]:
        async def use(**arguments: Any) -> str:
            def work() -> str:
                return call_tool(name, arguments, context, tools=offered).message

            return await anyio.to_thread.run_sync(work, limiter=one_at_a_time)

        return use

    tools: list[Tool[Any]] = [
        Tool.from_schema(caller(tool.name), tool.name, tool.description, tool.schema(), sequential=tool.writes)
        for tool in offered
    ]
    return FunctionToolset(tools)
