"""What the specifications show of tools, prompts and sessions, called the same way. In brackets: their sections."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.host_mounts import HostMount
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.filesystem.records import FilesystemSnapshot
from agentfs_files.session.agent_session import Session
from agentfs_files.session.contexts import build_tool_context
from agentfs_files.session.event_bus import InProcessEventBus
from agentfs_files.session.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt, WorkspaceSection
from agentfs_files.session.reducers import append_all
from agentfs_files.session.session_files import dump_session_tree, load_session
from agentfs_files.session.unified import (
    FilesystemSnapshotRef,
    create_unified_snapshot,
    restore_unified_snapshot,
    rollback_to,
)
from agentfs_files.session.workspaces import FilesystemSection, VfsSection, VfsToolsSection, WorkspaceToolsSection
from agentfs_files.testing.mock import MockFilesystem
from agentfs_files.tools.catalogue import FILESYSTEM_TOOLS, edit_file_handler, ls_handler, read_file_handler
from agentfs_files.tools.context import ToolContext, ToolResult
from agentfs_files.tools.dispatch import call_tool
from agentfs_files.tools.parameters import EditFileParams, LsParams, ReadFileParams
from agentfs_files.tools.tool import Tool
from agentfs_files.tools.tool_results import ReadFileResult


class Params(msgspec.Struct, frozen=True):
    path: str


def my_handler(params: Params, *, context: ToolContext) -> ToolResult[ReadFileResult]:
    """[Handler usage; tool handler pattern]"""
    fs = context.filesystem
    if fs is None:
        return ToolResult(message="No filesystem available", value=None, success=False)
    try:
        result = fs.read(params.path)
    except FileNotFoundError:
        return ToolResult(message=f"File not found: {params.path}", value=None, success=False)
    except PermissionError as exc:
        return ToolResult(message=str(exc), value=None, success=False)
    value = ReadFileResult(content=result.content, path=result.path, truncated=result.truncated)
    return ToolResult(message=f"Read {result.total_lines} lines from {result.path}", value=value)


def test_handlers_of_ones_own_and_the_mock() -> None:
    """[Tool handler pattern; mock filesystem]"""
    mock = MockFilesystem(files={"a.txt": "one\ntwo\n"})
    tool = Tool(name="my", description="Reads.", handler=my_handler, params=Params, result=ReadFileResult)
    context = ToolContext(prompt=None, rendered_prompt=None, adapter=None, session=Session(), filesystem=mock)
    assert call_tool("my", '{"path": "a.txt"}', context, tools=[tool]).message == "Read 2 lines from a.txt"
    assert not my_handler(Params("b.txt"), context=context).success
    assert my_handler(Params("a"), context=ToolContext()).message == "No filesystem available"
    assert mock.read_calls == ["a.txt", "b.txt"]
    mock.write("c.txt", "three")
    assert mock.write_calls == [("c.txt", "three")]


def test_handlers_are_called_directly() -> None:
    """[ToolContext integration, of the tool operations]"""
    fs = InMemoryFilesystem()
    fs.write("src/main.py", "print('hello')\n")
    context = ToolContext(filesystem=fs)
    read = read_file_handler(ReadFileParams(path="src/main.py", offset=0, limit=10), context=context)
    assert read.value is not None
    assert read.value.content == "print('hello')\n"
    assert not read_file_handler(ReadFileParams(path="src/main.py"), context=ToolContext()).success
    listed = ls_handler(LsParams(), context=context)
    assert listed.value is not None
    assert [(entry.path, entry.kind) for entry in listed.value.entries] == [("src", "directory")]
    assert edit_file_handler(EditFileParams("src/main.py", "hello", "bye"), context=context).success
    assert [tool.name for tool in FILESYSTEM_TOOLS] == ["ls", "read_file", "write_file", "edit_file", "glob", "grep", "rm"]


def test_prompt_with_a_workspace(tmp_path: Path) -> None:
    """[Usage example]"""
    (tmp_path / "src").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "main.py").write_text("pass\n")
    (tmp_path / "src" / "main.pyc").write_text("")
    (tmp_path / "docs" / "guide.md").write_text("# Guide\n")
    vfs_section = VfsToolsSection(
        mounts=(
            HostMount(host_path="src/", include_glob=("*.py",)),
            HostMount(host_path="docs/", include_glob=("*.md",)),
        ),
        allowed_host_roots=(str(tmp_path),),
    )
    template = PromptTemplate(
        ns="agents/coder",
        key="edit-files",
        sections=[
            MarkdownSection(title="Instructions", key="instructions", template="Edit files as requested."),
            vfs_section,
        ],
    )
    prompt = Prompt(template)
    fs = prompt.filesystem()
    assert fs is vfs_section.filesystem
    fs.write("scratch/notes.txt", "Working notes...")
    assert fs.exists("src/main.py")
    assert not fs.exists("src/main.pyc")
    rendered = prompt.render()
    assert "Edit files as requested." in rendered.text
    assert rendered.tools == FILESYSTEM_TOOLS
    context = build_tool_context(rendered, session=Session())
    assert context.filesystem is fs


def test_adapter_builds_the_context() -> None:
    """[Adapter propagation; adapter integration]"""

    class Adapter:
        def build(self, prompt: Prompt[Any], rendered: RenderedPrompt[Any], session: Session) -> ToolContext:
            return ToolContext(
                prompt=prompt,
                rendered_prompt=rendered,
                adapter=self,
                session=session,
                deadline=rendered.deadline,
                filesystem=prompt.filesystem(),
            )

    section = VfsSection()
    prompt: Prompt[Any] = Prompt(PromptTemplate(ns="a", key="b", sections=[section]))
    context = Adapter().build(prompt, prompt.render(), Session())
    assert context.filesystem is section.filesystem
    assert context.deadline is None


def test_section_of_ones_own() -> None:
    """[WorkspaceSection protocol; section implementation; FilesystemSection]"""

    @dataclass
    class NoParams:
        pass

    class MySection(MarkdownSection[NoParams]):
        def __init__(self) -> None:
            super().__init__(title="Mine", key="mine", template="Work.", tools=FILESYSTEM_TOOLS)
            self._own = InMemoryFilesystem()

        @property
        def filesystem(self) -> Filesystem:
            return self._own

    class Lazy(FilesystemSection):
        def _create_backend(self) -> Filesystem:
            return InMemoryFilesystem({"made": "late"})

    mine = MySection()
    assert isinstance(mine, WorkspaceSection)
    assert Prompt(PromptTemplate(ns="a", key="b", sections=[mine])).filesystem() is mine.filesystem
    lazy = Lazy(title="Lazy", key="lazy", template="Later.", tools=FILESYSTEM_TOOLS)
    assert lazy.filesystem.read("made").content == "late"


def test_snapshots_are_kept_in_the_session() -> None:
    """[Session integration]"""
    session, filesystem = Session(bus=InProcessEventBus()), InMemoryFilesystem({"a": "1"})
    session[FilesystemSnapshot].register(FilesystemSnapshot, append_all)
    fs_snapshot = filesystem.snapshot(tag="before-refactor")
    session[FilesystemSnapshot].append(fs_snapshot)
    session_snapshot = session.snapshot()
    filesystem.write("a", "2")
    snapshots = session[FilesystemSnapshot].all()
    filesystem.restore(snapshots[-1])
    assert filesystem.read("a").content == "1"
    filesystem.write("a", "3")
    rollback_to(session, session_snapshot, filesystem)
    assert filesystem.read("a").content == "1"


def test_coordinated_creation_and_restore() -> None:
    """[Session integration of version 1]"""
    session, filesystem = Session(), InMemoryFilesystem({"a": "1"})
    session[FilesystemSnapshotRef].register(FilesystemSnapshotRef, append_all)
    session_snapshot, fs_snapshot = create_unified_snapshot(session, filesystem, "vfs.tools")
    (ref,) = session[FilesystemSnapshotRef].all()
    assert (ref.filesystem_key, ref.snapshot_id) == ("vfs.tools", fs_snapshot.snapshot_id)
    assert isinstance(ref.snapshot_id, UUID)
    filesystem.write("a", "2")
    restore_unified_snapshot(session, filesystem, session_snapshot, fs_snapshot)
    assert filesystem.read("a").content == "1"


@dataclass(frozen=True)
class SomeSlice:
    value: int


@dataclass(frozen=True)
class SomeEvent:
    pass


@dataclass(frozen=True)
class AnotherEvent:
    pass


@pytest.fixture(params=["memory", "host"])
def section(request: pytest.FixtureRequest, tmp_path: Path) -> FilesystemSection:
    if request.param == "memory":
        return VfsSection(snapshot_dir=tmp_path / "snapshots")
    (tmp_path / "root").mkdir()
    return WorkspaceToolsSection(root=tmp_path / "root", snapshot_dir=tmp_path / "snapshots")


def test_coordinated_snapshots(section: FilesystemSection) -> None:
    """[Testing; coordinated snapshot workflow; coordinating with session snapshots]"""
    session = Session(bus=InProcessEventBus())
    section.filesystem.write("code.py", "v1")
    session.mutate(SomeSlice).dispatch(SomeEvent())
    snapshot_id = "checkpoint"
    fs_info = section.snapshots.snapshot(snapshot_id)
    session.snapshot(snapshot_id)
    section.filesystem.write("code.py", "v2")
    session.mutate(SomeSlice).dispatch(AnotherEvent())
    session.rollback(snapshot_id)
    section.snapshots.rollback(snapshot_id)
    assert section.filesystem.read("code.py").content == "v1"
    assert fs_info.file_count == 1


@pytest.mark.parametrize("other", [VfsSection, WorkspaceToolsSection])
def test_resuming_with_another_backend(
    section: FilesystemSection, other: Callable[[], FilesystemSection], tmp_path: Path
) -> None:
    """[Integration with dump_session_tree; resuming with different backend]"""
    session = Session(tags={"session_id": "abc123"})
    session[SomeSlice].append(SomeSlice(7))
    section.filesystem.write("src/main.py", "print('hello')")
    jsonl_path = dump_session_tree(session, tmp_path, filesystem_section=section)
    assert jsonl_path == tmp_path / "abc123.jsonl"
    resumed = load_session(jsonl_path)
    archive_path = jsonl_path.with_suffix(".fs.zip")
    new_section = other()
    assert new_section.snapshots.restore(archive_path) == 1
    assert new_section.filesystem.read("src/main.py").content == "print('hello')"
    assert resumed[SomeSlice].all() == (SomeSlice(7),)
    if isinstance(new_section.filesystem, HostFilesystem):
        shutil.rmtree(new_section.filesystem.root)
