"""A branch of a live mount served to MCP clients: real `agentfsd mcp` processes, and the client of the official package."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.mounted import AGENTFSD, Mounted, agentfsd, needs_fuse

Call = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    mounted = Mounted(tmp_path_factory.mktemp("mcp"))
    (mounted.lower / "src").mkdir()
    (mounted.lower / "src/app.py").write_text("def main():\n    return 1\n")
    (mounted.lower / "note.txt").write_text("real\n")
    mounted.mount()
    yield mounted
    mounted.end()


def server(mounted: Mounted, *options: str) -> Client:
    command, *arguments = [*AGENTFSD, "mcp", "-m", str(mounted.path), *options]
    return Client(StdioServerParameters(command=command, args=arguments, env=dict(os.environ)))


def calling(client: Client) -> Call:
    """Calls a tool; what it says, or what it refuses with `refused:` before it."""

    async def call(name: str, **arguments: Any) -> Any:
        result = await client.call_tool(name, arguments)
        said = "".join(getattr(block, "text", "") for block in result.content)
        return f"refused: {said}" if result.is_error else said

    return call


def test_client_edits_takes_a_snapshot_and_rolls_back(mounted: Mounted) -> None:
    async def session() -> None:
        async with server(mounted, "-b", "fix", "--new") as client:
            call = calling(client)
            assert await call("list_allowed_directories") == f"Allowed directories:\n{mounted.path}"

            edits = [{"oldText": "return 1", "newText": "return 2"}]
            patch = await call("edit_file", path="src/app.py", edits=edits)
            assert "-    return 1\n+    return 2\n" in patch
            taken = await client.call_tool("snapshot", {"tag": "good"})
            assert taken.structured_content is not None

            await call("write_file", path=f"{mounted.path}/src/app.py", content="broken\n")
            await call("create_directory", path="junk/deep")
            await call("move_file", source="note.txt", destination="junk/note.txt")
            assert await call("diff", base="good") == "A junk/note.txt\nD note.txt\nM src/app.py"
            assert "+broken\n" in await call("diff", base="good", patch=True)
            assert mounted.subtree("fix").joinpath("src/app.py").read_text() == "broken\n"
            assert "good" in await call("list_snapshots")

            assert taken.structured_content["snapshot"]["id"] in await call("restore", snapshot="good")
            assert await call("read_text_file", path="src/app.py") == "def main():\n    return 2\n"
            assert await call("directory_tree", path=".", excludePatterns=["src"]) == json.dumps(
                [{"name": "note.txt", "type": "file"}], indent=2
            )
            assert await call("diff", base="good") == "Nothing differs"
            assert await call("diff") == "M src/app.py"
            assert (await call("restore", snapshot="none")).startswith("refused: there is no snapshot none")

    anyio.run(session)
    assert mounted.subtree("fix").joinpath("src/app.py").read_text() == "def main():\n    return 2\n"
    assert (mounted.lower / "src/app.py").read_text() == "def main():\n    return 1\n"


def test_names_may_be_as_long_as_those_of_the_kernel(mounted: Mounted) -> None:
    deep, long = "/".join(["d"] * 100), "n" * 255

    async def session() -> None:
        async with server(mounted, "-b", "main") as client:
            call = calling(client)
            assert await call("create_directory", path=deep) == f"Successfully created directory {deep}"
            assert await call("write_file", path=f"{deep}/{long}", content="x") == f"Successfully wrote to {deep}/{long}"
            assert (await call("write_file", path="n" * 256, content="x")).startswith("refused: ")

    anyio.run(session)
    assert (mounted.path / deep / long).read_text() == "x"


def test_client_that_starts_again_goes_on_in_the_branch_it_made(mounted: Mounted) -> None:
    async def session(*, read: bool) -> None:
        async with server(mounted, "-b", "again", "--new", "--from", "main") as client:
            call = calling(client)
            if read:
                assert await call("read_text_file", path="kept.txt") == "kept"
            else:
                await call("write_file", path="kept.txt", content="kept")

    anyio.run(partial(session, read=False))
    anyio.run(partial(session, read=True))


def test_two_servers_see_a_branch_each(mounted: Mounted) -> None:
    async def session() -> None:
        async with anyio.create_task_group() as tasks:
            ready = {name: anyio.Event() for name in ("left", "right")}

            async def use(branch: str, other: str) -> None:
                async with server(mounted, "-b", branch, "--new", "--snapshot") as client:
                    call = calling(client)
                    await call("write_file", path="note.txt", content=branch)
                    ready[branch].set()
                    await ready[other].wait()
                    assert await call("read_text_file", path="note.txt") == branch
                    assert await call("grep", pattern="left|right") == f"note.txt:1:{branch}"
                    assert "before write_file note.txt" in await call("list_snapshots")

            tasks.start_soon(use, "left", "right")
            tasks.start_soon(use, "right", "left")

    anyio.run(session)


def test_server_ends_with_its_client_and_on_sigterm(mounted: Mounted) -> None:
    command = [*AGENTFSD, "mcp", "-m", str(mounted.path), "-b", "main", "--read-only"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        subprocess.Popen(command, stdin=subprocess.DEVNULL, **pipes) as without_client,
        subprocess.Popen(command, stdin=subprocess.PIPE, **pipes) as process,
    ):
        try:
            names = {tool["name"] for tool in _listed(process)}
            assert {"read_text_file", "list_directory", "diff", "list_snapshots"} <= names
            assert not {"write_file", "edit_file", "create_directory", "move_file", "snapshot", "restore"} & names
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
            assert process.stdout is not None and process.stdout.read() == b""
            assert without_client.wait(10) == 0
        finally:
            process.kill()
            without_client.kill()


def test_half_of_a_surrogate_pair_is_answered(mounted: Mounted) -> None:
    command = [*AGENTFSD, "mcp", "-m", str(mounted.path), "-b", "main"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            _listed(process)
            for number, content in enumerate((r"a\ud800", r"\ud83d\ude00 \\ud800 \udc00\ud800\ud800\ud83d\ude00")):
                call = {"name": "write_file", "arguments": {"path": "half", "content": "CONTENT"}}
                message = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call})
                process.stdin.write(message.replace("CONTENT", content).encode() + b"\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
                assert (answer["id"], answer["result"]["isError"]) == (number, False)
            assert (mounted.path / "half").read_text() == "\U0001f600 \\ud800 \ufffd\ufffd\ufffd\U0001f600"
        finally:
            process.stdin.close()
            process.wait(10)


def _listed(process: "subprocess.Popen[bytes]") -> Any:
    """The tools as a client that speaks for itself is told them."""
    assert process.stdin is not None and process.stdout is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "agentfsd"
    return json.loads(process.stdout.readline())["result"]["tools"]


def test_unknown_branch_and_missing_package_are_refused_in_a_sentence(mounted: Mounted, tmp_path: Path) -> None:
    unknown = agentfsd("mcp", "-m", str(mounted.path), "-b", "nobody", check=False)
    assert unknown.returncode == 1
    assert "nobody" in unknown.stderr and "--new creates it" in unknown.stderr

    without = "import sys; sys.modules['mcp'] = None; import importlib.util as util; from agentfsd.cli.main import main; "
    without += "find = util.find_spec; util.find_spec = lambda name: None if name == 'mcp' else find(name); main(['mcp'])"
    missing = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False)
    assert missing.returncode == 1
    assert "pip install 'agentfsd[mcp]'" in missing.stderr


def test_agent_reads_and_answers_the_notes_of_its_branch(mounted: Mounted) -> None:
    mounted.cli("branch create", "noted")
    made = mounted.json("notes add", "noted", "--path", "src/app.py", "--line", "2", "why 1?")["id"]
    elsewhere = mounted.json("notes add", "main", "not about this branch")["id"]

    async def session() -> None:
        async with server(mounted, "-b", "noted") as client:
            call = calling(client)
            assert await call("notes_list") == f"#{made} by {author} about src/app.py line 2\n>     return 1\nwhy 1?"
            assert "agent answered: it was so" in await call("notes_reply", id=made, text="it was so")
            assert (await call("notes_reply", id=elsewhere, text="x")).startswith("refused: there is no note")
            assert (await call("notes_reply", id=made, text="")).startswith("refused: notes_reply cannot be called so")
            result = await client.call_tool("notes_list", {})
            assert result.structured_content is not None
            (note,) = result.structured_content["notes"]
            assert (note["id"], note["path"], note["line"], note["answers"]) == (made, "src/app.py", 2, ["agent: it was so"])
        async with server(mounted, "-b", "noted", "--read-only") as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "notes_list" in names and "notes_reply" not in names

    author = mounted.json("notes list", "noted")[0]["author"]
    anyio.run(session)
    assert mounted.json("notes list", "main")[0]["answers"] == []
    assert mounted.json("notes list", "noted")[0]["answers"][0]["by_agent"]
