"""deepagents on our file systems: each operation of its protocol, and commands in a branch."""

import base64
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deepagents", reason="deepagents is not installed: pip install 'agentfsd[deepagents]'")

from deepagents.backends import protocol
from deepagents.backends.protocol import SandboxBackendProtocol
from deepagents.middleware.filesystem import FilesystemMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolCall, ToolMessage

from agentfs_client import HostFilesystem, InMemoryFilesystem
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.integrations.deepagents import AgentFSBackend, AgentFSSandbox
from tests.mounted import Mounted, needs_fuse

TEXT = "".join(f"line {number}\n" for number in range(1, 11))


@pytest.fixture(params=["memory", "host"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AgentFSBackend:
    filesystem: Filesystem = InMemoryFilesystem() if request.param == "memory" else HostFilesystem(tmp_path)
    filesystem.write("src/app.py", TEXT)
    filesystem.write("src/deep/.hidden.py", "line 1\n")
    filesystem.write_bytes("pic.png", bytes(range(256)))
    return AgentFSBackend(filesystem)


def test_listing(backend: AgentFSBackend) -> None:
    assert backend.ls("/").entries == [
        {"path": "/pic.png", "is_dir": False, "size": 256},
        {"path": "/src", "is_dir": True},
    ]
    assert backend.ls("/none").error == "File '/none' not found"
    assert "absolute" in str(backend.ls("src").error)
    assert backend.ls("/../..").error is not None


def test_reading_a_window(backend: AgentFSBackend) -> None:
    found = backend.read("/src/app.py", offset=2, limit=3)
    assert found.file_data == {"content": "line 3\nline 4\nline 5\n", "encoding": "utf-8"}
    assert (found.total_lines, found.start_line, found.end_line, found.next_offset) == (10, 3, 5, 5)
    assert backend.read("/src/app.py", offset=8).next_offset is None
    assert backend.read("/src/app.py", offset=-3, limit=1).start_line == 1
    assert backend.read("/src/app.py", limit=0).no_lines_requested
    assert "beyond the end" in str(backend.read("/src/app.py", offset=10).error)
    image = backend.read("/pic.png").file_data
    assert image == {"content": base64.b64encode(bytes(range(256))).decode(), "encoding": "base64"}


def test_patterns_are_those_of_deepagents(backend: AgentFSBackend) -> None:
    def found(pattern: str, path: str | None = None) -> list[str]:
        return [match["path"] for match in backend.glob(pattern, path).matches or []]

    assert found("*.py") == ["/src/app.py"]
    assert found("/*.py") == []
    assert found("**/.*.py") == found(".*.py") == ["/src/deep/.hidden.py"]
    assert found("app.*", "/src") == ["/src/app.py"]
    assert backend.glob("../*").error is not None


def test_grep_is_literal(backend: AgentFSBackend) -> None:
    assert backend.grep("line 1", glob="*.py").matches == [
        {"path": "/src/app.py", "line": 1, "text": "line 1"},
        {"path": "/src/app.py", "line": 10, "text": "line 10"},
    ]
    assert backend.grep("line .").matches == []
    cut = backend.grep("line", max_count=3)
    assert (len(cut.matches or []), cut.truncated) == (3, True)
    assert not backend.grep("line 2", max_count=1).truncated


def test_grep_leaves_out_what_git_keeps(backend: AgentFSBackend) -> None:
    backend.filesystem.write(".git/logs/HEAD", "line 7\n")
    backend.filesystem.write("src/sub/.git/config", "line 7\n")
    for glob in (None, "*", "**/*"):
        assert [match["path"] for match in backend.grep("line 7", glob=glob).matches or []] == ["/src/app.py"]
    assert [match["path"] for match in backend.grep("line 7", "/.git").matches or []] == ["/.git/logs/HEAD"]
    backend.grep_exclude_dirs = ()
    assert len(backend.grep("line 7").matches or []) == 3


def test_changing(backend: AgentFSBackend) -> None:
    assert backend.write("/new/a.txt", "a\r\nb\r\na\r\n").path == "/new/a.txt"
    assert "multiple" in str(backend.edit("/new/a.txt", "a", "c").error)
    assert "not found" in str(backend.edit("/new/a.txt", "zzz", "c").error)
    assert backend.edit("/new/a.txt", "a\nb", "c").occurrences == 1
    assert backend.filesystem.read_bytes("new/a.txt").content == b"c\r\na\r\n"
    assert backend.delete("/new").error is None
    assert "not found" in str(backend.delete("/new").error)


def test_files_as_bytes(backend: AgentFSBackend) -> None:
    uploaded = backend.upload_files([("/up/x", b"\0\1"), ("relative", b"")])
    assert [response.error for response in uploaded] == [None, "invalid_path"]
    loaded = backend.download_files(["/up/x", "/none", "/up"])
    assert [(response.content, response.error) for response in loaded] == [
        (b"\0\1", None),
        (None, "file_not_found"),
        (None, "is_directory"),
    ]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentFSSandbox]:
    needs_fuse()
    mounted = Mounted(tmp_path_factory.mktemp("deepagents"))
    (mounted.lower / "note.txt").write_text("real\n")
    mounted.mount()
    try:
        with BranchFilesystem("agent", mount=mounted.path, create=True) as filesystem:
            yield AgentFSSandbox(filesystem)
    finally:
        mounted.end()


def test_commands_see_what_was_written(sandbox: AgentFSSandbox) -> None:
    assert isinstance(sandbox, SandboxBackendProtocol)
    root = sandbox.filesystem.root
    assert sandbox.write(f"{root}/note.txt", "changed\n").error is None
    done = sandbox.execute("cat note.txt && pwd && echo more > out.txt && exit 4")
    assert (done.exit_code, done.output) == (4, f"changed\n{root}\n")
    assert [entry["path"] for entry in sandbox.ls(root).entries or []] == [f"{root}/note.txt", f"{root}/out.txt"]
    assert sandbox.ls("/etc").error is not None
    assert sandbox.execute("sleep 60", timeout=1).exit_code == 124


def test_pages_of_a_sandbox_end_without_a_newline(sandbox: AgentFSSandbox) -> None:
    path = f"{sandbox.filesystem.root}/page.txt"
    sandbox.write(path, "one\ntwo\nthree\n")
    pages = [sandbox.read(path, offset, 2).file_data for offset in (0, 2)]
    assert [page and page["content"] for page in pages] == ["one\ntwo", "three"]


def test_results_that_are_too_long_for_a_context_are_kept_beside_the_branch(sandbox: AgentFSSandbox) -> None:
    """deepagents writes them at the agent's root."""
    path = "/large_tool_results/call_1"
    before = sandbox.ls(sandbox.filesystem.root).entries
    assert sandbox.write(path, "found\n" * 1000).path == path
    assert sandbox.read(path, limit=1).file_data == {"content": "found", "encoding": "utf-8"}
    assert (sandbox.grep("found", "/large_tool_results", max_count=1).matches or [])[0]["path"] == path
    assert [entry["path"] for entry in sandbox.ls("/large_tool_results").entries or []] == [path]
    assert sandbox.download_files([path])[0].content == b"found\n" * 1000
    assert sandbox.upload_files([("/conversation_history/media/a.png", b"\0")])[0].error is None
    assert sandbox.ls(sandbox.filesystem.root).entries == before
    assert sandbox.write("/large_tool_results_not/x", "").error is not None


def test_long_result_of_a_tool_is_taken_out_of_the_context(sandbox: AgentFSSandbox) -> None:
    message = ToolMessage("x" * 300_000, tool_call_id="call_2")
    middleware = FilesystemMiddleware(backend=sandbox)
    request = ToolCallRequest(ToolCall(name="other", args={}, id="call_2"), None, {}, None)  # type: ignore[arg-type]
    left = middleware.wrap_tool_call(request, lambda _: message)
    assert isinstance(left, ToolMessage)
    assert len(str(left.content)) < 10_000
    assert len(str((sandbox.read("/large_tool_results/call_2").file_data or {})["content"])) == 300_000


def test_older_deepagents_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "agentfs_files.integrations.deepagents")
    monkeypatch.delattr(protocol, "DeleteResult")
    with pytest.raises(ImportError, match=r"needs deepagents 0\.7 or newer, and .* is installed"):
        importlib.import_module("agentfs_files.integrations.deepagents")
