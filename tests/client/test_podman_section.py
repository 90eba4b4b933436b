"""The section around a sandbox, as far as it needs no container."""

from pathlib import Path

from agentfs_files.backends.podman_sandbox import PodmanSandboxConfig
from agentfs_files.session.agent_session import Session
from agentfs_files.session.podman_sections import PodmanSandboxSection
from agentfs_files.session.prompt import Prompt, PromptTemplate
from agentfs_files.tools.catalogue import FILESYSTEM_TOOLS


def test_sandbox_section_has_files_before_there_is_a_container(tmp_path: Path) -> None:
    """[PodmanSandboxSection; PodmanSandboxSection snapshots]"""
    session = Session()
    section = PodmanSandboxSection(session=session, config=PodmanSandboxConfig(overlay_root=tmp_path))
    try:
        prompt = Prompt(PromptTemplate(ns="a", key="b", sections=[section]))
        assert [tool.name for tool in prompt.render().tools] == [*(tool.name for tool in FILESYSTEM_TOOLS), "shell_execute"]
        section.filesystem.write("/workspace/file.txt", "v1")
        snapshot = section.snapshot(tag="first")
        section.filesystem.write("file.txt", "v2")
        section.restore(snapshot)
        assert section.filesystem.read("file.txt").content == "v1"
        assert str(session.session_id) in section.filesystem.root
        assert section.sandbox.container is None
    finally:
        section.close()
