"""The tools as a model meets them: JSON in, text out; the same in memory and in a host directory."""

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.tools.catalogue import FILESYSTEM_TOOLS, filesystem_tools, tools_for
from agentfs_files.tools.context import BudgetExceededError, Deadline, ToolContext, ToolResult
from agentfs_files.tools.dispatch import call_tool
from agentfs_files.tools.tool import Tool, json_schema
from agentfs_files.tools.tool_limits import ToolLimits

FILES: dict[str, str | bytes] = {
    "README.md": "# Title\n",
    "src/main.py": "import os\n\n\ndef main():\n\treturn os.getcwd()\n",
    "src/pkg/deep.py": "import sys\n",
    "node_modules/x/index.py": "import os\n",
    ".gitignore": "node_modules/\n*.log\n",
    "debug.log": "import trouble\n",
    ".git/config": "import = nothing\n",
    "logo.png": b"\x89PNG\r\n\0\0",
    "crlf.txt": "one\r\ntwo\r\nthree",
}

Ask = Callable[..., ToolResult[Any]]


@pytest.fixture(params=["memory", "host"])
def filesystem(request: pytest.FixtureRequest, tmp_path: Path) -> Filesystem:
    made = InMemoryFilesystem() if request.param == "memory" else HostFilesystem(tmp_path)
    for path, content in FILES.items():
        made.write_bytes(path, content.encode() if isinstance(content, str) else content)
    return made


@pytest.fixture
def ask(filesystem: Filesystem) -> Ask:
    return lambda name, **arguments: call_tool(name, json.dumps(arguments), ToolContext(filesystem=filesystem))


def good(result: ToolResult[Any]) -> Any:
    assert result.success, result.message
    return result.value


def refused(result: ToolResult[Any]) -> str:
    assert not result.success, result.message
    assert result.value is None
    return result.message


def test_ls_shows_directories_first_and_sizes(ask: Ask) -> None:
    result = ask("ls")
    assert good(result).total == 8
    lines = result.message.splitlines()
    assert lines[:3] == [".git/", "node_modules/", "src/"]
    assert "README.md  8 bytes" in lines


def test_ls_of_a_file_points_to_read_file(ask: Ask) -> None:
    assert "read_file" in refused(ask("ls", path="README.md"))


def test_ls_of_many_entries_says_how_many_there_are() -> None:
    filesystem = InMemoryFilesystem({f"f{number:03}": "" for number in range(30)})
    tools = filesystem_tools(ToolLimits(entries=10))
    result = call_tool("ls", "", ToolContext(filesystem=filesystem), tools=tools)
    assert (len(good(result).entries), good(result).total) == (10, 30)
    assert "10 of 30 entries" in result.message


def test_reader_sees_numbered_lines(ask: Ask) -> None:
    result = ask("read_file", path="src/main.py")
    assert result.message.splitlines()[3] == "     4\tdef main():"
    assert good(result).content == FILES["src/main.py"]
    assert not good(result).truncated


def test_window_says_how_to_go_on_and_the_next_one_does(ask: Ask, filesystem: Filesystem) -> None:
    filesystem.write("long.txt", "".join(f"line {number}\n" for number in range(10_312)))
    first = ask("read_file", path="long.txt")
    assert "[lines 1-2000 of 10,312; continue with offset=2000]" in first.message
    second = good(ask("read_file", path="long.txt", offset=good(first).next_offset, limit=2))
    assert (second.content, second.next_offset) == ("line 2000\nline 2001\n", 2002)
    last = ask("read_file", path="long.txt", offset=10_311)
    assert last.message.splitlines() == [" 10312\tline 10311", "[lines 10312-10312 of 10,312]"]
    assert "10,312 lines" in refused(ask("read_file", path="long.txt", offset=10_312))


def test_windows_put_together_are_the_file(filesystem: Filesystem) -> None:
    text = "".join(f"{'ä' * (number % 97)}\n" for number in range(3_000)) + "end"
    filesystem.write("text", text)
    context, offset, read = ToolContext(filesystem=filesystem), 0, ""
    tools = filesystem_tools(ToolLimits(result_characters=20_000))
    while offset is not None:
        value = good(call_tool("read_file", {"path": "text", "offset": offset}, context, tools=tools))
        assert value.total_lines == 3_001
        read, offset = read + value.content, value.next_offset
    assert read == text


def test_long_lines_are_cut_with_a_note(ask: Ask, filesystem: Filesystem) -> None:
    filesystem.write("wide.txt", "short\n" + "é" * 5_000 + "\nshort\n")
    result = ask("read_file", path="wide.txt")
    assert good(result).cut_lines == (2,)
    assert result.message.splitlines()[1] == "     2\t" + "é" * 2_000 + " … [cut]"
    assert "too long" in result.message


def test_line_of_the_greatest_length_is_whole(ask: Ask, filesystem: Filesystem) -> None:
    filesystem.write("wide.txt", "🦊" * 2_000 + "\r\n" + "🦊" * 2_001)
    result = good(ask("read_file", path="wide.txt"))
    assert result.cut_lines == (2,)
    assert result.content == "🦊" * 2_000 + "\r\n" + "🦊" * 2_000


def test_file_in_one_endless_line_is_read_in_little_memory(ask: Ask, filesystem: Filesystem) -> None:
    with filesystem.open_write("endless") as writer:
        writer.write_all(b"x" * (1 << 20) for _ in range(40))
    assert good(ask("read_file", path="endless")).content == "x" * 2_000


def test_binary_file_is_named_as_such(ask: Ask, filesystem: Filesystem) -> None:
    assert "binary (8 bytes)" in refused(ask("read_file", path="logo.png"))
    filesystem.write_bytes("latin", b"fine\ncaf\xe9\n")
    assert "line 2" in refused(ask("read_file", path="latin"))
    assert good(ask("read_file", path="latin", limit=1)).content == "fine\n"


def test_empty_file_and_missing_last_newline_are_said(ask: Ask, filesystem: Filesystem) -> None:
    filesystem.write("empty", "")
    assert ask("read_file", path="empty").message == "[empty is empty]"
    assert "[no newline at the end of the file]" in ask("read_file", path="crlf.txt").message


def test_written_file_can_be_read_and_appended_to(ask: Ask, filesystem: Filesystem) -> None:
    written = ask("write_file", path="new/dir/a.txt", content="one\n")
    assert good(written).created
    assert written.message == "Created new/dir/a.txt: 4 bytes written."
    good(ask("write_file", path="new/dir/a.txt", content="two\n", mode="append"))
    assert filesystem.read("new/dir/a.txt").content == "one\ntwo\n"
    assert not good(ask("write_file", path="new/dir/a.txt", content="")).created
    assert "mode=overwrite" in refused(ask("write_file", path="new/dir/a.txt", content="", mode="create"))


def test_more_than_one_call_takes_is_refused_with_the_way_out(ask: Ask, filesystem: Filesystem) -> None:
    assert "mode=append" in refused(ask("write_file", path="big", content="x" * 48_001))
    assert not filesystem.exists("big")
    good(ask("write_file", path="big", content="x" * 48_000))


def test_glob_leaves_out_what_is_ignored_and_says_so(ask: Ask) -> None:
    result = ask("glob", pattern="**/*.py")
    assert [match.path for match in good(result).matches] == ["src/main.py", "src/pkg/deep.py"]
    assert "1 file left out" in result.message
    everything = good(ask("glob", pattern="**/*.py", include_ignored=True)).matches
    assert [match.path for match in everything] == ["node_modules/x/index.py", "src/main.py", "src/pkg/deep.py"]


def test_ignored_directory_is_shown_to_whoever_names_it(ask: Ask) -> None:
    assert [match.path for match in good(ask("glob", pattern="**/*", path="node_modules")).matches] == ["node_modules/x/index.py"]
    assert [match.path for match in good(ask("grep", pattern="import", path=".git")).matches] == [".git/config"]
    assert [match.path for match in good(ask("grep", pattern="import", path="debug.log")).matches] == ["debug.log"]


def test_glob_by_newest(tmp_path: Path) -> None:
    filesystem = HostFilesystem(tmp_path)
    for age, name in enumerate(("b", "a", "c")):
        filesystem.write(name, "")
        os.utime(tmp_path / name, (1_700_000_000 - age, 1_700_000_000 - age))
    result = call_tool("glob", {"pattern": "*", "order": "newest"}, ToolContext(filesystem=filesystem))
    assert [match.path for match in good(result).matches] == ["b", "a", "c"]


def test_grep_shows_path_line_and_text(ask: Ask) -> None:
    result = ask("grep", pattern=r"^import \w+")
    assert result.message.splitlines()[:2] == ["src/main.py:1:import os", "src/pkg/deep.py:1:import sys"]
    assert "3 files left out" in result.message
    assert len(good(ask("grep", pattern="import", include_ignored=True)).matches) == 5


def test_grep_modes(ask: Ask, filesystem: Filesystem) -> None:
    filesystem.write("src/many.py", "import a\nimport b\n")
    assert ask("grep", pattern="import", path="src", output_mode="files").message.splitlines() == [
        "src/main.py", "src/many.py", "src/pkg/deep.py",
    ]  # fmt: skip
    assert "src/many.py:2" in ask("grep", pattern="import", output_mode="count").message.splitlines()


@pytest.mark.parametrize("glob", ["*.md", "src/*.py", "**/deep.py"])
def test_grep_in_some_files_is_grep_in_all_of_those(ask: Ask, filesystem: Filesystem, glob: str) -> None:
    """Whether ignored files are passed over or there are none: the same matches."""
    found = good(ask("grep", pattern=".", glob=glob)).matches
    assert found
    filesystem.delete(".gitignore")
    filesystem.delete(".git", recursive=True)
    assert [match for match in good(ask("grep", pattern=".", glob=glob)).matches if "node" not in match.path] == list(found)


def test_grep_with_context_marks_gaps(ask: Ask, filesystem: Filesystem) -> None:
    filesystem.write("t.txt", "".join(f"{number}\n" for number in range(1, 21)))
    result = ask("grep", pattern="^(3|5|15)$", path="t.txt", context=1)
    assert result.message.splitlines() == [
        "--", "t.txt-2-2", "t.txt:3:3", "t.txt-4-4", "t.txt:5:5", "t.txt-6-6", "--", "t.txt-14-14", "t.txt:15:15", "t.txt-16-16",
    ]  # fmt: skip


def test_grep_says_when_there_are_more(ask: Ask, filesystem: Filesystem) -> None:
    filesystem.write("t.txt", "hit\n" * 20)
    result = ask("grep", pattern="hit", path="t.txt", max_matches=5)
    assert good(result).truncated
    assert "first 5 matching lines" in result.message
    assert not good(ask("grep", pattern="hit", path="t.txt", max_matches=20)).truncated


def test_grep_shows_the_part_of_a_long_line_that_matches(ask: Ask, filesystem: Filesystem) -> None:
    filesystem.write("min.js", "a" * 9_000 + "needle" + "b" * 9_000)
    result = ask("grep", pattern="needle")
    assert "needle" in result.message
    assert len(result.message) < 700


def test_malicious_expression_takes_linear_time(ask: Ask, filesystem: Filesystem) -> None:
    filesystem.write("a.txt", ("a" * 5_000 + "!\n") * 20)
    start = time.monotonic()
    assert not good(ask("grep", pattern="(a+)+$", path="a.txt")).matches
    assert "No line" in ask("grep", pattern="(a|aa)*c", path="a.txt").message
    assert time.monotonic() - start < 2


def test_malicious_ignore_file_takes_linear_time(ask: Ask, filesystem: Filesystem) -> None:
    filesystem.write(".gitignore", "*a" * 30 + "b\n")
    filesystem.write("a" * 70, "x")
    start = time.monotonic()
    good(ask("glob", pattern="*"))
    assert time.monotonic() - start < 2


def test_wrong_expression_is_explained(ask: Ask) -> None:
    assert "Invalid regex" in refused(ask("grep", pattern="foo("))


def test_missing_path_is_refused_by_glob_and_grep(ask: Ask) -> None:
    assert "scr does not exist. Did you mean src?" in refused(ask("glob", pattern="*", path="scr"))
    assert "nowhere does not exist" in refused(ask("grep", pattern="x", path="nowhere"))


def test_rm_of_a_directory_needs_recursive_and_says_how_many_files_went(ask: Ask, filesystem: Filesystem) -> None:
    assert "2 files" in refused(ask("rm", path="src"))
    result = ask("rm", path="src", recursive=True)
    assert good(result).files == 2
    assert result.message == "Removed the directory src with 2 files in it."
    assert not filesystem.exists("src")
    assert good(ask("rm", path="README.md")).files == 1


@pytest.mark.parametrize("path", ["/", ".", "src/..", "./"])
def test_rm_never_removes_the_root(ask: Ask, filesystem: Filesystem, path: str) -> None:
    message = refused(ask("rm", path=path, recursive=True))
    assert "root" in message or "leads out" in message
    assert filesystem.exists("README.md")


def test_rm_of_a_symlink_leaves_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "nowhere").symlink_to("gone")
    context = ToolContext(filesystem=HostFilesystem(tmp_path))
    good(call_tool("rm", {"path": "link", "recursive": True}, context))
    good(call_tool("rm", {"path": "nowhere"}, context))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "real"]


@pytest.mark.parametrize("name", ["read_file", "ls", "write_file", "edit_file", "glob", "grep", "rm"])
def test_path_out_of_the_workspace_is_refused(ask: Ask, name: str) -> None:
    more: dict[str, Any] = {
        "write_file": {"content": ""}, "edit_file": {"old_string": "a", "new_string": "b"}, "glob": {"pattern": "*"},
        "grep": {"pattern": "x"},
    }.get(name, {})  # fmt: skip
    assert "leads out of the workspace" in refused(ask(name, path="../../etc/passwd", **more))


def test_errors_say_what_to_do(ask: Ask) -> None:
    assert "Did you mean src/main.py?" in refused(ask("read_file", path="src/mian.py"))
    assert "ls shows" in refused(ask("read_file", path="src"))
    assert "is a file, not a directory" in refused(ask("write_file", path="README.md/x", content=""))
    assert "src is a directory" in refused(ask("write_file", path="src", content=""))


def test_arguments_are_checked_strictly(ask: Ask) -> None:
    assert "unknown field `pth`. It needs path and may have offset, limit." in refused(ask("read_file", pth="a"))
    assert "missing required field `path`" in refused(ask("read_file"))
    assert "Expected `int`, got `str`" in refused(ask("read_file", path="a", offset="3"))
    assert "Did you mean read_file?" in refused(ask("readfile", path="a"))
    context = ToolContext(filesystem=InMemoryFilesystem())
    assert "does not take that" in refused(call_tool("ls", '{"path": ', context))
    assert good(call_tool("ls", "", context)).total == 0


def test_without_a_filesystem_every_tool_says_so() -> None:
    result = call_tool("ls", "{}", ToolContext())
    assert "no file system" in refused(result)


def test_read_only_filesystem_has_reading_tools_and_refuses_the_others() -> None:
    filesystem = InMemoryFilesystem({"a": "x"}, read_only=True)
    assert [tool.name for tool in tools_for(filesystem)] == ["ls", "read_file", "glob", "grep"]
    context = ToolContext(filesystem=filesystem)
    for name, arguments in {"write_file": {"path": "a", "content": ""}, "rm": {"path": "a"}}.items():
        assert "read-only" in refused(call_tool(name, arguments, context))
        tool = next(tool for tool in FILESYSTEM_TOOLS if tool.name == name)
        assert "read-only" in refused(tool.handler(msgspec.convert(arguments, tool.params), context=context))


def test_nothing_is_started_after_the_deadline_or_beyond_the_budget() -> None:
    class Spent:
        def check(self) -> None:
            raise BudgetExceededError("all tokens are used")

    filesystem = InMemoryFilesystem({"a": "x"})
    late = Deadline(datetime.now(UTC) - timedelta(seconds=1))
    assert "time" in refused(call_tool("ls", "{}", ToolContext(filesystem=filesystem, deadline=late)))
    assert "all tokens are used" in refused(call_tool("ls", "{}", ToolContext(filesystem=filesystem, budget_tracker=Spent())))
    soon = Deadline(datetime.now(UTC) + timedelta(hours=1))
    good(call_tool("ls", "{}", ToolContext(filesystem=filesystem, deadline=soon)))


@pytest.mark.parametrize("tool", FILESYSTEM_TOOLS, ids=lambda tool: tool.name)
def test_schema_is_one_plain_object(tool: Tool[Any, Any]) -> None:
    schema = tool.schema()
    text = json.dumps(schema)
    assert "$ref" not in text
    assert "$defs" not in text
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert tool.for_anthropic()["input_schema"] == schema
    assert tool.for_openai()["function"]["parameters"] == schema


def test_schema_of_a_choice_says_that_it_is_a_string() -> None:
    grep = next(tool for tool in FILESYSTEM_TOOLS if tool.name == "grep")
    assert grep.schema()["properties"]["output_mode"]["type"] == "string"


class Point(msgspec.Struct):
    x: Annotated[int, msgspec.Meta(description="across")]


class Line(msgspec.Struct):
    start: Point
    rest: list[Point] = []


class Chain(msgspec.Struct):
    next: "Chain | None" = None


def doubled(params: Line, /, *, context: ToolContext) -> ToolResult[int]:
    if params.start.x < 0:
        raise ValueError("negative numbers are not for me")
    if params.start.x == 0:
        raise KeyError("a fault")
    return ToolResult(str(params.start.x * 2), params.start.x * 2)


def test_tools_of_ones_own() -> None:
    tool = Tool("double", "Doubles.", doubled, Line, int)
    assert tool.schema()["properties"]["rest"]["items"]["properties"]["x"]["description"] == "across"
    assert good(call_tool("double", '{"start": {"x": 2}}', ToolContext(), tools=[tool])) == 4
    assert refused(call_tool("double", '{"start": {"x": -2}}', ToolContext(), tools=[tool])) == "negative numbers are not for me."
    with pytest.raises(KeyError):
        call_tool("double", '{"start": {"x": 0}}', ToolContext(), tools=[tool])
    with pytest.raises(ValueError, match="contains itself"):
        json_schema(Chain)
