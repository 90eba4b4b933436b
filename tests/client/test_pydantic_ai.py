"""Pydantic AI's own suite for workspaces on our file systems; a branch for each conversation; the tools as a toolset."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed: pip install 'agentfsd[pydantic-ai]'")

from pydantic_ai import Agent, models
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, WorkspaceRef
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.workspaces import Workspace, WorkspaceUnavailableError
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from agentfs_client import HostFilesystem, InMemoryFilesystem
from agentfs_files.integrations.pydantic_ai import (
    AgentFSWorkspace,
    AgentFSWorkspaceBackend,
    BranchWorkspaceBackend,
    filesystem_toolset,
)
from tests.mounted import Mounted, needs_fuse

models.ALLOW_MODEL_REQUESTS = False


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class _WithoutCommands(WorkspaceBackendSuite):
    @pytest.fixture
    def has_real_posix_shell(self) -> bool:
        return False


class TestHostDirectory(_WithoutCommands):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> AgentFSWorkspaceBackend:
        return AgentFSWorkspaceBackend(HostFilesystem(tmp_path))


class TestMemory(_WithoutCommands):
    @pytest.fixture
    def backend(self) -> AgentFSWorkspaceBackend:
        return AgentFSWorkspaceBackend(InMemoryFilesystem(mount_point="/workspace"))


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    mounted = Mounted(tmp_path_factory.mktemp("pydantic"))
    (mounted.lower / "note.txt").write_text("real\n")
    mounted.mount()
    yield mounted
    mounted.end()


def test_workspace_is_a_branch_with_commands_that_is_found_again(mounted: Mounted) -> None:
    async def use() -> None:
        backend = BranchWorkspaceBackend(mounted.path)
        assert backend.ref is None
        workspace = Workspace(backend)
        await workspace.write_text("note.txt", "changed\n")
        done = await workspace.run("cat note.txt; pwd -P; exit 3", shell=True)
        assert (done.exit_code, done.stdout) == (3, f"changed\n{mounted.path}\n")
        again = Workspace(BranchWorkspaceBackend(mounted.path, ref=backend.ref))
        assert await again.read_text("note.txt") == "changed\n"
        with pytest.raises(WorkspaceUnavailableError):
            await BranchWorkspaceBackend(mounted.path, ref=WorkspaceRef(provider="agentfs", id="nobody")).working_dir()

    anyio.run(use)
    assert (mounted.lower / "note.txt").read_text() == "real\n"


def test_workspace_whose_branch_was_discarded_is_unavailable(mounted: Mounted) -> None:
    async def use() -> None:
        backend = BranchWorkspaceBackend(mounted.path)
        await backend.write_bytes("new", b"")
        assert backend.ref is not None
        mounted.cli("discard", backend.ref.id)
        for call in (backend.working_dir, lambda: backend.run(["true"]), lambda: backend.exists("new")):
            with pytest.raises(WorkspaceUnavailableError, match="no branch"):
                await call()

    anyio.run(use)


def test_each_conversation_of_an_agent_has_a_branch_of_its_own(mounted: Mounted) -> None:
    agent = Agent(FunctionModel(_write_then_stop), capabilities=[AgentFSWorkspace(mounted.path)])

    @agent.tool
    async def write(ctx, text: str) -> str:  # type: ignore[no-untyped-def]
        before = await ctx.workspace.read_text("note.txt")
        await ctx.workspace.write_text("note.txt", text)
        return before

    first = asyncio.run(agent.run("one"))  # run_sync() leaves its event loop open
    second = asyncio.run(agent.run("two"))
    continued = asyncio.run(agent.run("three", message_history=first.all_messages()))
    assert [_returned(run.new_messages()) for run in (first, second, continued)] == [["real\n"], ["real\n"], ["one"]]


def _write_then_stop(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    prompt = next(part.content for message in reversed(messages) for part in message.parts if part.part_kind == "user-prompt")
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart(info.function_tools[0].name, {"text": prompt})])


def _returned(messages: list[ModelMessage]) -> list[str]:
    return [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def test_toolset_has_the_tools_and_says_what_they_refuse() -> None:
    filesystem = InMemoryFilesystem({"a.txt": "one\n"})
    calls = [("read_file", {"path": "a.txt"}), ("read_file", {"path": "b.txt"}), ("rm", {"path": "a.txt"})]

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert {tool.name for tool in info.function_tools} == {
            "ls", "read_file", "write_file", "edit_file", "glob", "grep", "rm"
        }  # fmt: skip
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(name, arguments) for name, arguments in calls])

    run = asyncio.run(Agent(FunctionModel(model), toolsets=[filesystem_toolset(filesystem)]).run("go"))
    read, refused, removed = _returned(run.all_messages())
    assert "one" in read
    assert refused.startswith("b.txt does not exist")
    assert not filesystem.exists("a.txt"), removed
