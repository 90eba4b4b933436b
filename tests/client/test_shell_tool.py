"""A tool that runs commands, here by sh on this machine."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.tools.context import ToolContext
from agentfs_files.tools.dispatch import call_tool
from agentfs_files.tools.shell_tool import Execute, Executed, shell_tool


@dataclass(frozen=True)
class Done:
    exit_code: int | None
    stdout: str
    stderr: str
    truncated: bool = False


@pytest.fixture
def execute(tmp_path: Path) -> Execute:
    def run(command: str, *, timeout_s: float | None = None, directory: str | None = None) -> Executed:
        if directory == "gone":
            raise RuntimeError("the container stopped")
        try:
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=timeout_s or 10, cwd=tmp_path)
        except subprocess.TimeoutExpired:
            return Done(None, "so far\n", "")
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def test_output_and_exit_code_are_shown(execute: Execute) -> None:
    tools, context = [shell_tool(execute)], ToolContext()
    assert call_tool("shell_execute", {"command": "echo hello"}, context, tools=tools).message == "hello"
    assert call_tool("shell_execute", {"command": "true"}, context, tools=tools).message == "[exit code 0]"
    result = call_tool("shell_execute", {"command": "echo out; echo err >&2; exit 3"}, context, tools=tools)
    assert result.message == "out\n[stderr]\nerr\n[exit code 3]"
    assert (result.success, result.value.exit_code) == (True, 3)


def test_what_could_not_run_to_its_end_is_no_success(execute: Execute) -> None:
    tools, context = [shell_tool(execute)], ToolContext()
    late = call_tool("shell_execute", {"command": "sleep 5", "timeout_s": 0.05}, context, tools=tools)
    assert not late.success
    assert late.message.startswith("so far\n[its time was up")
    assert (
        call_tool("shell_execute", {"command": "x", "directory": "gone"}, context, tools=tools).message
        == "the container stopped."
    )
    assert "<= 3600" in call_tool("shell_execute", {"command": "x", "timeout_s": 9999}, context, tools=tools).message
    read_only = ToolContext(filesystem=InMemoryFilesystem(read_only=True))
    assert "read-only" in call_tool("shell_execute", {"command": "x"}, read_only, tools=tools).message
