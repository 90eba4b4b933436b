"""What each tool of the MCP server takes, says and refuses, asked through the official client in this process."""

import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import mcp.types
import pytest
from mcp import Client

from agentfs_client import HostFilesystem, InMemoryFilesystem
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.integrations.mcp.server import make_server

# Name: arguments (the required ones first, a star before each optional one), read-only, destructive, idempotent.
# Source: the reference file system server, npm @modelcontextprotocol/server-filesystem 2026.8.31.
REFERENCE = {
    "read_file": ("path *head *tail", True, None, None),
    "read_text_file": ("path *head *tail", True, None, None),
    "read_media_file": ("path", True, None, None),
    "read_multiple_files": ("paths", True, None, None),
    "write_file": ("content path", False, True, True),
    "edit_file": ("edits path *dryRun", False, True, False),
    "create_directory": ("path", False, False, True),
    "list_directory": ("path", True, None, None),
    "list_directory_with_sizes": ("path *sortBy", True, None, None),
    "directory_tree": ("path *excludePatterns", True, None, None),
    "move_file": ("destination source", False, True, False),
    "search_files": ("path pattern *excludePatterns", True, None, None),
    "get_file_info": ("path", True, None, None),
    "list_allowed_directories": ("", True, None, None),
}
OURS = {"glob", "grep", "snapshot", "restore", "list_snapshots", "diff"}

CODE = "def f():\n    if x:\n        return 1\n    return 2\n"


def ask(filesystem: Filesystem, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The answers to some calls: text, or `refused: ...`, or blocks that are no text."""

    async def session() -> list[Any]:
        async with Client(make_server(filesystem)) as client:
            return [_answer(await client.call_tool(name, arguments)) for name, arguments in calls]

    return anyio.run(session)


def _answer(result: mcp.types.CallToolResult) -> Any:
    text = [block.text for block in result.content if isinstance(block, mcp.types.TextContent)]
    if result.is_error:
        return "refused: " + "".join(text)
    assert result.structured_content is not None
    if text:
        assert result.structured_content["content"] == text[0]
        return text[0]
    return result.structured_content["content"]


def ask_one(filesystem: Filesystem, name: str, **arguments: Any) -> Any:
    return ask(filesystem, (name, arguments))[0]


@pytest.fixture
def workspace() -> InMemoryFilesystem:
    files: dict[str, str | bytes] = {
        "src/app.py": CODE, "src/deep/b.txt": "one\ntwo\nthree", "pic.png": b"\x89PNG", "doc.pdf": b"%PDF", "bin": b"\0\1",
        "latin.txt": b"caf\xe9\n", "crlf.txt": "one\r\ntwo\r\nthree\r\n",
    }  # fmt: skip
    return InMemoryFilesystem(files, mount_point="/workspace")


def test_tools_and_arguments_are_those_of_the_reference_server_and_more(workspace: InMemoryFilesystem) -> None:
    async def session() -> list[mcp.types.Tool]:
        async with Client(make_server(workspace)) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in anyio.run(session)}
    assert set(tools) == set(REFERENCE) | OURS
    for name, (arguments, read_only, destructive, idempotent) in REFERENCE.items():
        schema, hints = tools[name].input_schema, tools[name].annotations
        required = set(schema["required"])
        assert {("" if key in required else "*") + key for key in schema["properties"]} == set(arguments.split()), name
        assert hints is not None and hints.open_world_hint is False
        assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint) == (read_only, destructive, idempotent), name
        assert "$ref" not in json.dumps(schema) + json.dumps(tools[name].output_schema)
    assert all(tool.description for tool in tools.values())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "src/app.py"}, CODE),
        ({"path": "/workspace/src/app.py"}, CODE),
        ({"path": "src/app.py", "head": 2}, "def f():\n    if x:"),
        ({"path": "src/app.py", "tail": 2}, "        return 1\n    return 2"),
        ({"path": "src/app.py", "head": 0, "tail": 1}, "    return 2"),
        ({"path": "src/deep/b.txt", "tail": 2}, "two\nthree"),
        ({"path": "src/deep/b.txt", "head": 100}, "one\ntwo\nthree"),
        ({"path": "latin.txt"}, "caf\N{REPLACEMENT CHARACTER}\n"),
        ({"path": "src/app.py", "head": 1, "tail": 1}, "refused: head and tail cannot both be given"),
        ({"path": "bin"}, "refused: bin is binary"),
        ({"path": "src"}, "refused: src is a directory"),
        ({"path": "nope"}, "refused: nope does not exist"),
        ({"path": "../nope"}, "refused: ../nope leads outside /workspace;"),
        ({"path": "/etc/passwd"}, "refused: /etc/passwd leads outside /workspace;"),
        ({}, "refused: read_text_file cannot be called so: Object missing required field `path`"),
        (
            {"path": "bin", "limit": 3},
            "refused: read_text_file cannot be called so: Object contains unknown field `limit`; its arguments: path",
        ),
    ],
)
def test_reading_a_text_file(workspace: InMemoryFilesystem, arguments: dict[str, Any], said: str) -> None:
    answer = ask_one(workspace, "read_text_file", **arguments)
    assert answer.startswith(said) if said.startswith("refused") else answer == said


def test_tail_of_a_large_file_is_found_from_its_end(workspace: InMemoryFilesystem) -> None:
    workspace.write("big.txt", "".join(f"{'x' * 100} {number}\n" for number in range(20_000)))
    answer = ask_one(workspace, "read_text_file", path="big.txt", tail=1_000)
    assert [line.split()[1] for line in answer.split("\n")] == [str(number) for number in range(19_000, 20_000)]


def test_reading_what_is_no_text_and_several_files(workspace: InMemoryFilesystem) -> None:
    image, document, several = ask(
        workspace,
        ("read_media_file", {"path": "pic.png"}),
        ("read_media_file", {"path": "doc.pdf"}),
        ("read_multiple_files", {"paths": ["latin.txt", "nope", "src/deep/b.txt"]}),
    )
    assert image == [{"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"}]
    contents = {"uri": "file:///workspace/doc.pdf", "mimeType": "application/pdf", "blob": "JVBERg=="}
    assert document == [{"type": "resource", "resource": contents}]
    first, second, third = several.split("\n---\n")
    assert first == "latin.txt:\ncaf\N{REPLACEMENT CHARACTER}\n\n"
    assert second.startswith("nope: Error - nope does not exist")
    assert third == "src/deep/b.txt:\none\ntwo\nthree\n"


def test_listings(workspace: InMemoryFilesystem) -> None:
    plain, sized, tree, found, nothing, info = ask(
        workspace,
        ("list_directory", {"path": "/workspace/src"}),
        ("list_directory_with_sizes", {"path": "src", "sortBy": "size"}),
        ("directory_tree", {"path": "src", "excludePatterns": ["*.py"]}),
        ("search_files", {"path": ".", "pattern": "**/*.{py,txt}", "excludePatterns": ["*.txt"]}),
        ("search_files", {"path": "src", "pattern": "*.md"}),
        ("get_file_info", {"path": "src/deep/b.txt"}),
    )
    assert plain == "[FILE] app.py\n[DIR] deep"
    lines = sized.split("\n")
    assert lines[0] == f"[FILE] {'app.py':<30} {'49 B':>10}"
    assert lines[1].rstrip() == "[DIR] deep"
    assert lines[2:] == ["", "Total: 1 files, 1 directories", "Combined size: 49 B"]
    children = [{"name": "b.txt", "type": "file"}]
    assert json.loads(tree) == [{"name": "deep", "type": "directory", "children": children}]
    assert found == "/workspace/src/app.py\n/workspace/src/deep/b.txt"
    assert nothing == "No matches found"
    assert {"size: 13", "isDirectory: false", "isFile: true"} <= set(info.split("\n"))


def edit(*pairs: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"edits": [{"oldText": old, "newText": new} for old, new in pairs], **more}


@pytest.mark.parametrize(
    ("path", "edits", "content"),
    [
        (
            "src/app.py",
            edit(("return 1", "return 3"), ("return 2", "return 4")),
            "def f():\n    if x:\n        return 3\n    return 4\n",
        ),
        ("src/app.py", edit(("return", "yield")), "def f():\n    if x:\n        yield 1\n    return 2\n"),
        (
            "src/app.py",
            edit(("if x:\n    return 1", "if y:\n\n    return 3\n    pass")),
            "def f():\n    if y:\n\n        return 3\n        pass\n    return 2\n",
        ),
        ("src/app.py", edit(("return 1", "return 3"), dryRun=True), CODE),
        ("crlf.txt", edit(("one\ntwo", "1\n2")), "1\r\n2\r\nthree\r\n"),
        ("crlf.txt", edit(("  two", "2\n2")), "one\r\n2\r\n2\r\nthree\r\n"),
    ],
)  # fmt: skip
def test_edits(workspace: InMemoryFilesystem, path: str, edits: dict[str, Any], content: str) -> None:
    before = workspace.read(path).content
    answer = ask_one(workspace, "edit_file", path=path, **edits)
    assert answer.startswith(f"```diff\ndiff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ ")
    assert workspace.read(path).content == content
    assert (content == before) == ("dryRun" in edits)


@pytest.mark.parametrize(
    ("path", "edits", "why"),
    [
        ("src/app.py", edit(("return 1", "return 3"), ("nowhere", "x")), "src/app.py does not hold the oldText of edit 2"),
        ("src/app.py", edit(("", "x")), "the oldText of edit 1 is empty"),
        ("latin.txt", edit(("caf", "x")), "latin.txt is not UTF-8 text (byte 3)"),
        ("src/app.py", {"edits": [{"oldText": "x"}]}, "edit_file cannot be called so: Object missing required field `newText`"),
    ],
)
def test_edits_that_are_refused_change_nothing(workspace: InMemoryFilesystem, path: str, edits: dict[str, Any], why: str) -> None:
    before = workspace.read_bytes(path).content
    assert ask_one(workspace, "edit_file", path=path, **edits).startswith(f"refused: {why}")
    assert workspace.read_bytes(path).content == before


def test_fence_of_a_patch_is_longer_than_any_in_it(workspace: InMemoryFilesystem) -> None:
    workspace.write("a.md", "```\nx\n```\n")
    assert ask_one(workspace, "edit_file", path="a.md", **edit(("x", "y"))).startswith("````diff\n")


def test_writing_and_moving_replace_nothing_by_accident(workspace: InMemoryFilesystem) -> None:
    answers = ask(
        workspace,
        ("write_file", {"path": "new/a.txt", "content": "a"}),
        ("create_directory", {"path": "new/deep"}),
        ("write_file", {"path": "new/a.txt", "content": "a"}),
        ("move_file", {"source": "new/a.txt", "destination": "pic.png"}),
        ("move_file", {"source": "new/a.txt", "destination": "none/a.txt"}),
        ("move_file", {"source": "new", "destination": "moved"}),
        ("create_directory", {"path": "pic.png"}),
    )
    assert answers == [
        "refused: the directory new does not exist; create_directory makes it",
        "Successfully created directory new/deep",
        "Successfully wrote to new/a.txt",
        "refused: pic.png exists already",
        "refused: the directory none does not exist; create_directory makes it",
        "Successfully moved new to moved",
        "refused: pic.png exists already",
    ]
    assert workspace.read("moved/a.txt").content == "a"


def test_home_directory_is_not_a_directory_called_tilde(workspace: InMemoryFilesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [
        ("create_directory", {"path": "~/x"}),
        ("write_file", {"path": "~/a.txt", "content": "a"}),
        ("move_file", {"source": "bin", "destination": "~/bin"}),
        ("glob", {"pattern": "~/*"}),
        ("read_multiple_files", {"paths": ["~/a.txt"]}),
        ("create_directory", {"path": "./~"}),
    ]
    monkeypatch.setenv("HOME", "/home/me")
    *outside, several, made = ask(workspace, *calls)
    assert all(said.startswith("refused: /home/me/") and "leads outside /workspace" in said for said in outside)
    assert several.startswith("~/a.txt: Error - /home/me/a.txt leads outside /workspace")
    assert made == "Successfully created directory ./~"
    monkeypatch.setenv("HOME", "/workspace/src")
    assert ask_one(workspace, "read_text_file", path="~/app.py") == CODE


def test_names_that_are_equal_in_unicode_are_one_file(workspace: InMemoryFilesystem) -> None:
    """As a model that composes characters otherwise than the disk means it; the reference server does the same."""
    composed, decomposed = "\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"
    _, _, read, _, moved = ask(
        workspace,
        ("create_directory", {"path": f"caf{composed}"}),
        ("write_file", {"path": f"caf{decomposed}/{decomposed}.txt", "content": "1"}),
        ("read_text_file", {"path": f"/workspace/caf{composed}/{composed}.txt"}),
        ("write_file", {"path": f"caf{composed}/{composed}.txt", "content": "2"}),
        ("move_file", {"source": f"caf{decomposed}", "destination": f"r{composed}sum{composed}"}),
    )
    assert read == "1"
    assert workspace.read(f"r{composed}sum{composed}/{decomposed}.txt").content == "2"
    assert moved.startswith("Successfully")

    workspace.write(f"{composed}o", "1")
    workspace.write(f"{decomposed}o", "2")
    assert ask_one(workspace, "read_text_file", path=f"{decomposed}o") == "2"
    workspace.write(f"A{composed}{decomposed}", "1")
    workspace.write(f"A{decomposed}{composed}", "1")
    assert "can be any of 2 files" in ask_one(workspace, "read_text_file", path=f"A{composed}{composed}")


def test_searching_in_files_leaves_out_what_git_ignores(workspace: InMemoryFilesystem) -> None:
    workspace.write(".gitignore", "*.log\n")
    workspace.write("x.log", "return 9\n")
    files, lines, wrong = ask(
        workspace, ("glob", {"pattern": "**/*.{py,log}"}), ("grep", {"pattern": r"return \d"}), ("grep", {"pattern": "("})
    )
    assert files.startswith("src/app.py\n[1 file left out")
    assert lines.startswith("src/app.py:3:        return 1\nsrc/app.py:4:    return 2\n[1 file left out")
    assert wrong.startswith("refused: Invalid regex")


def test_snapshots_of_any_backend(workspace: InMemoryFilesystem) -> None:
    none, first, _, second, _, names, since_first, _, back = ask(
        workspace,
        ("diff", {}),
        ("snapshot", {"tag": "good"}),
        ("write_file", {"path": "pic.png", "content": "x"}),
        ("snapshot", {}),
        ("write_file", {"path": "z", "content": "x"}),
        ("diff", {}),
        ("diff", {"base": "good"}),
        ("restore", {"snapshot": "mem-1"}),
        ("diff", {"base": "good"}),
    )
    assert none == "refused: there is no snapshot to compare with yet; snapshot takes one"
    assert first.startswith("Took snapshot mem-1") and second.startswith("Took snapshot mem-2")
    assert (names, since_first, back) == ("A z", "M pic.png\nA z", "Nothing differs")


def test_read_only_file_system_is_served_without_tools_that_change(workspace: InMemoryFilesystem) -> None:
    async def session() -> None:
        async with Client(make_server(InMemoryFilesystem({"a": "a"}, read_only=True))) as client:
            offered = {tool.name for tool in (await client.list_tools()).tools}
            assert offered == {name for name, row in REFERENCE.items() if row[1]} | {"glob", "grep", "list_snapshots", "diff"}
            said = _answer(await client.call_tool("write_file", {"path": "a", "content": "b"}))
            assert said.startswith("refused: there is no tool write_file; there are read_text_file, ")

    anyio.run(session)


def test_symlinks_of_a_host_directory_lead_neither_out_nor_round(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/f").write_text("f")
    (tmp_path / "a/loop").symlink_to("..")
    (tmp_path / "out").symlink_to("/etc")
    tree, found, outside = ask(
        HostFilesystem(tmp_path),
        ("directory_tree", {"path": str(tmp_path)}),
        ("search_files", {"path": ".", "pattern": "**"}),
        ("read_text_file", {"path": "out/passwd"}),
    )
    loop = {"name": "loop", "type": "directory", "children": [], "link": True}
    children = [{"name": "f", "type": "file"}, loop]
    assert json.loads(tree) == [{"name": "a", "type": "directory", "children": children}, {"name": "out", "type": "file"}]
    assert found.split("\n") == [f"{tmp_path}/a", f"{tmp_path}/a/f", f"{tmp_path}/a/loop"]
    assert outside.startswith(f"refused: out/passwd leads outside {tmp_path};")


def test_names_that_are_no_utf8_are_spelt_out(tmp_path: Path) -> None:
    """As they are, they could not be sent: the server would end."""
    (tmp_path / "bad\udcff").write_text("x\n")
    filesystem = HostFilesystem(tmp_path)
    listed, found, missing, tree = ask(
        filesystem, ("list_directory", {"path": "."}), ("grep", {"pattern": "x"}),
        ("get_file_info", {"path": "bad\udcff/x"}), ("directory_tree", {"path": "."}),
    )  # fmt: skip
    assert listed == "[FILE] bad\\udcff"
    assert found == "bad\\udcff:1:x"
    assert missing.startswith("refused: bad\\udcff")
    assert json.loads(tree.encode())[0]["name"] == "bad\udcff"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("!(*.py)", "!c b.txt d"),
        ("@(a|b).*", "a.py b.txt"),
        ("?(a).py", "a.py"),
        ("!**/*.py", "!c b.txt d d/x.md"),
        ("!!*.py", "a.py"),
        ("**/!(*.py|!c)", "b.txt d d/x.md"),
        ("**/**/**/!(*.py|!c)", "b.txt d d/x.md"),
        (r"\!c", "!c"),
        ("[!a]*", "!c b.txt d"),
        (r"**/+\(x)", "No matches found"),
        ("+(a|b).*", "refused: '+(a|b).*' cannot be matched: *(...) and +(...) are no patterns here; \\( stands for a bracket"),
    ],
)
def test_search_files_takes_patterns_of_the_reference_server(pattern: str, found: str) -> None:
    filesystem = InMemoryFilesystem(dict.fromkeys(("a.py", "b.txt", "!c", "d/x.md", "d/y.py"), ""), mount_point="/w")
    assert ask_one(filesystem, "search_files", path=".", pattern=pattern).replace("/w/", "").replace("\n", " ") == found
    assert ask_one(filesystem, "directory_tree", path=".", excludePatterns=["!*.py"]).count("name") == 1
    assert "search_files knows !(...)" in ask_one(filesystem, "glob", pattern="!*.md")


def test_two_calls_at_once_do_not_meet(workspace: InMemoryFilesystem) -> None:
    seen: list[str] = []

    class Watched(InMemoryFilesystem):
        def write(self, path: str, content: str, **options: Any) -> Any:
            seen.append("begin")
            result = super().write(path, content, **options)
            seen.append("end")
            return result

    call: Callable[[Client, str], Awaitable[Any]] = lambda client, name: client.call_tool(  # noqa: E731
        "write_file", {"path": name, "content": "x" * 100_000}
    )

    async def session() -> None:
        async with Client(make_server(Watched())) as client, anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(call, client, f"f{number}")

    anyio.run(session)
    assert seen == ["begin", "end"] * 8
