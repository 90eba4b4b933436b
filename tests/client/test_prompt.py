"""Prompts of sections: what is rendered, which file system and which tools a model gets, what is copied from the host."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.host_mounts import HostMount
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.filesystem_errors import PathEscapeError
from agentfs_files.session.agent_session import Session
from agentfs_files.session.contexts import build_tool_context
from agentfs_files.session.prompt import MarkdownSection, Prompt, PromptError, PromptTemplate, WorkspaceSection
from agentfs_files.session.workspaces import FilesystemSection, VfsToolsSection, WorkspaceToolsSection
from agentfs_files.tools.dispatch import call_tool


@dataclass(frozen=True)
class Person:
    name: str
    task: str = "edit"


def prompt_of(*sections: MarkdownSection[None]) -> Prompt[None]:
    return Prompt(PromptTemplate(ns="tests", key="prompt", sections=sections))


def test_sections_become_markdown_with_headings_by_depth() -> None:
    inner = MarkdownSection(title="Inner", key="inner", template="Costs $5, ${name}; $${name}.")
    outer = MarkdownSection(
        title="Outer",
        key="outer",
        template="""
            Hello ${name}.

            - ${task}
        """,
        children=[inner],
    )
    rendered = prompt_of(outer).render(Person("Ada"), task="read")
    assert rendered.text == "## Outer\n\nHello Ada.\n\n- read\n\n### Inner\n\nCosts $5, Ada; ${name}."
    assert rendered.tools == ()


def test_parameters_may_come_with_the_section_and_must_come_from_somewhere() -> None:
    section = MarkdownSection[Person](title="S", key="s", template="${name} ${task}", params=Person("Ada"))
    prompt = Prompt(PromptTemplate(ns="tests", key="p", sections=[section]))
    assert prompt.render().text.endswith("Ada edit")
    assert prompt.render({"name": "Bo"}).text.endswith("Bo edit")
    with pytest.raises(PromptError, match="'s' needs a value for its parameter 'missing'"):
        prompt_of(MarkdownSection(title="S", key="s", template="${missing}")).render()


def test_keys_and_tools_are_unique() -> None:
    with pytest.raises(PromptError, match="several sections with the key 'a'"):
        prompt_of(MarkdownSection(title="", key="a", template=""), MarkdownSection(title="", key="a", template=""))
    with pytest.raises(PromptError, match="several tools with the name 'ls'"):
        prompt_of(VfsToolsSection(), WorkspaceToolsSection())


def test_only_sections_that_allow_it_are_overridden() -> None:
    template = PromptTemplate(ns="t", key="p", sections=[MarkdownSection(title="T", key="t", template="old"), VfsToolsSection()])
    assert Prompt(template, overrides={"t": "new ${x}"}).render(x=1).text.startswith("## T\n\nnew 1\n")
    with pytest.raises(PromptError, match=r"'vfs.tools' cannot be overridden; these can: t"):
        Prompt(template, overrides={"vfs.tools": "rm -rf"})


def test_prompt_finds_the_filesystem_in_any_depth() -> None:
    inner = VfsToolsSection()
    prompt = prompt_of(MarkdownSection(title="T", key="t", template="", children=[inner]))
    assert isinstance(inner, WorkspaceSection)
    assert prompt.filesystem() is inner.filesystem
    assert prompt_of(MarkdownSection(title="T", key="t", template="")).filesystem() is None


def test_tool_gets_the_filesystem_of_its_section() -> None:
    section = VfsToolsSection()
    prompt = prompt_of(MarkdownSection(title="T", key="t", template="Go."), section)
    rendered, session = prompt.render(), Session()
    context = build_tool_context(rendered, tool="write_file", session=session, adapter="mine")
    assert (context.filesystem, context.session, context.adapter) == (section.filesystem, session, "mine")
    assert context.prompt is prompt
    assert call_tool("write_file", {"path": "a", "content": "x"}, context, tools=rendered.tools).success
    assert section.filesystem.read("a").content == "x"


def test_backend_is_made_when_it_is_first_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    section = VfsToolsSection(mounts=[HostMount("a")], allowed_host_roots=[tmp_path])
    (tmp_path / "a").write_text("2")
    assert section.filesystem.read("a").content == "2"
    assert section.filesystem is section.filesystem


def test_section_over_a_filesystem_that_is_there() -> None:
    filesystem = InMemoryFilesystem({"a": "x"}, read_only=True)
    section = FilesystemSection(filesystem=filesystem)
    assert section.filesystem is filesystem
    assert [tool.name for tool in prompt_of(section).render().tools] == ["ls", "read_file", "glob", "grep"]
    with pytest.raises(PromptError, match="has no file system"):
        _ = FilesystemSection().filesystem


def test_workspace_is_a_directory_given_or_its_own(tmp_path: Path) -> None:
    section = WorkspaceToolsSection(root=tmp_path)
    section.filesystem.write("a", "x")
    assert (tmp_path / "a").read_text() == "x"
    own = WorkspaceToolsSection().filesystem
    own.write("a", "y")
    assert isinstance(own, HostFilesystem)
    assert Path(own.root, "a").read_text() == "y"
    assert WorkspaceToolsSection(root=tmp_path, read_only=True).filesystem.read_only
    shutil.rmtree(own.root)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in ("src/main.py", "src/pkg/deep.py", "src/data.bin", "docs/a.md", "docs/old/b.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    (tmp_path / "secret").write_text("secret")
    (root / "src" / "escape.py").symlink_to(tmp_path / "secret")
    (root / "out").symlink_to(tmp_path)
    return root


def mounted(project: Path, *mounts: HostMount) -> list[str]:
    filesystem = VfsToolsSection(mounts=mounts, allowed_host_roots=[project]).filesystem
    return [match.path for match in filesystem.glob("**/*")]


def test_what_is_mounted_and_where(project: Path) -> None:
    sources, docs = HostMount("src/", include_glob=("*.py",)), HostMount("docs", exclude_glob=("old/*",))
    assert mounted(project, sources, docs) == ["docs/a.md", "src/main.py", "src/pkg/deep.py"]
    assert mounted(project, HostMount(project / "docs")) == ["docs/a.md", "docs/old/b.md"]
    assert mounted(project, HostMount("docs/a.md")) == ["docs/a.md"]
    assert mounted(project, HostMount("docs/a.md", mount_path="/b.md")) == ["b.md"]
    assert mounted(project, HostMount("src/pkg", mount_path="lib")) == ["lib/deep.py"]
    assert mounted(project, HostMount(project, include_glob=("src/**/*.py",))) == ["src/main.py", "src/pkg/deep.py"]


def test_mount_is_a_copy(project: Path) -> None:
    filesystem = VfsToolsSection(mounts=[HostMount("src")], allowed_host_roots=[project]).filesystem
    filesystem.write("src/main.py", "changed")
    assert (project / "src/main.py").read_text() == "src/main.py"
    assert filesystem.read_bytes("src/data.bin").content == b"src/data.bin"


@pytest.mark.parametrize("path", ["..", "../secret", "/etc/passwd", "src/../../secret"])
def test_nothing_outside_the_allowed_roots_is_mounted(project: Path, path: str) -> None:
    with pytest.raises(PathEscapeError):
        VfsToolsSection(mounts=[HostMount(path)], allowed_host_roots=[project])


def test_without_allowed_roots_nothing_is(project: Path) -> None:
    with pytest.raises(PathEscapeError):
        VfsToolsSection(mounts=[HostMount(project / "src")])


@pytest.mark.parametrize("path", ["out/secret", "src/escape.py", "out"])
def test_symlink_leads_to_nothing_outside(project: Path, path: str) -> None:
    section = VfsToolsSection(mounts=[HostMount(path)], allowed_host_roots=[project])
    with pytest.raises(PermissionError):
        _ = section.filesystem


def test_mount_that_is_missing_or_too_large_is_refused(project: Path) -> None:
    with pytest.raises(FileNotFoundError):
        VfsToolsSection(mounts=[HostMount("nowhere")], allowed_host_roots=[project])
    with pytest.raises(ValueError, match="max_bytes=20"):
        mounted(project, HostMount("src", max_bytes=20))
    assert len(mounted(project, HostMount("src", max_bytes=200))) == 3
    with pytest.raises(TypeError):
        HostMount("src", include_glob="*.py")  # type: ignore[arg-type]
