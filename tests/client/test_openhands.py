"""OpenHands in branches: its conversation with its own tools and a scripted model, and its workspace's operations."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1"}  # no network
pytest.importorskip("openhands.sdk", reason="openhands-sdk is not installed (Python 3.12): pip install 'agentfsd[openhands]'")

from agentfs_files.integrations.openhands import AgentFSLocalWorkspace
from tests.mounted import Mounted, needs_fuse

CONVERSATION = """
    import json, sys
    from openhands.sdk import Agent, Conversation, Tool
    from openhands.sdk.llm import Message, MessageToolCall, TextContent
    from openhands.sdk.testing import TestLLM
    from openhands.tools.file_editor import FileEditorTool
    from openhands.tools.terminal import TerminalTool

    from agentfs_files.integrations.openhands import AgentFSLocalWorkspace

    mount = sys.argv[1]
    calls = [
        (TerminalTool, {"command": f"cd {mount} && cat note.txt && echo from the terminal > shell.txt"}),
        (FileEditorTool, {"command": "create", "path": f"{mount}/edited.txt", "file_text": "from the editor\\n"}),
        (TerminalTool, {"command": f"cat {mount}/edited.txt"}),
    ]
    answers = [
        Message(
            role="assistant",
            content=[TextContent(text="next")],
            tool_calls=[MessageToolCall(id=str(n), name=tool.name, arguments=json.dumps(given), origin="completion")],
        )
        for n, (tool, given) in enumerate(calls)
    ]
    llm = TestLLM.from_messages([*answers, Message(role="assistant", content=[TextContent(text="done")])])
    terminal = Tool(name=TerminalTool.name, params={"terminal_type": "subprocess"})
    agent = Agent(llm=llm, tools=[terminal, Tool(name=FileEditorTool.name)])
    with AgentFSLocalWorkspace(mount=mount, branch="conversation") as workspace:
        conversation = Conversation(agent, workspace=workspace, visualizer=None)
        conversation.send_message("go")
        conversation.run()
        print(workspace.execute_command("cat shell.txt edited.txt").stdout, end="")
        print("changed:", sorted(workspace.filesystem.diff(None).added))
        conversation.close()
"""
IN_ANOTHER = """
    import sys
    from agentfs_files.integrations.openhands import AgentFSLocalWorkspace

    AgentFSLocalWorkspace(mount=sys.argv[1], branch="first")
    again = AgentFSLocalWorkspace(mount=sys.argv[1])
    print(again.branch, again.working_dir, AgentFSLocalWorkspace.model_validate(again.model_dump()).branch)
    AgentFSLocalWorkspace(mount=sys.argv[1], branch="second")
"""


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    mounted = Mounted(tmp_path_factory.mktemp("openhands"))
    (mounted.lower / "note.txt").write_text("real\n")
    mounted.mount()
    yield mounted
    mounted.end()


def _python(script: str, mounted: Mounted, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, which cannot leave its branch."""
    command = [sys.executable, "-c", textwrap.dedent(script), str(mounted.path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=os.environ | {"HOME": str(cwd)}, timeout=300)


def test_conversation_and_its_tools_are_in_the_branch(mounted: Mounted, tmp_path: Path) -> None:
    pytest.importorskip("openhands.tools", reason="OpenHands' own tools are not installed: pip install openhands-tools")
    done = _python(CONVERSATION, mounted, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("from the terminal\nfrom the editor\nchanged: ['edited.txt', 'shell.txt']\n"), done.stdout
    assert sorted(path.name for path in mounted.lower.iterdir()) == ["note.txt"]


def test_process_is_in_one_branch(mounted: Mounted, tmp_path: Path) -> None:
    done = _python(IN_ANOTHER, mounted, tmp_path)
    assert f"first {mounted.path} first" in done.stdout, done.stderr
    assert "RuntimeError: this process is in the branch first, not in second" in done.stderr


def test_several_workspaces_in_one_process(mounted: Mounted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSION_API_KEY", "secret")
    one, two = (AgentFSLocalWorkspace(mount=mounted.path, branch=name, bind=False) for name in ("one", "two"))
    (tmp_path / "given.txt").write_text("given\n")
    assert one.file_upload(tmp_path / "given.txt", f"{mounted.path}/in/note.txt").success
    done = one.execute_command("cat note.txt; pwd; echo $SESSION_API_KEY >&2; exit 3", cwd="in")
    assert (done.exit_code, done.stdout, done.stderr) == (3, f"given\n{mounted.path}/in\n", "\n")
    assert two.execute_command("ls; cat note.txt").stdout == "note.txt\nreal\n"
    assert two.execute_command("sleep 60", timeout=2).timeout_occurred
    two.execute_command("echo two > made.txt", cwd=two.working_dir)
    assert two.file_download("made.txt", tmp_path / "out" / "made.txt").success
    assert (tmp_path / "out" / "made.txt").read_text() == "two\n"
    assert sorted(path.name for path in mounted.lower.iterdir()) == ["note.txt"]
