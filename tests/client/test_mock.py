"""The mock records what is asked of it, as it was asked, and answers like any other file system."""

import pytest

from agentfs_files.filesystem.filesystem_protocol import DiffableFilesystem, Filesystem
from agentfs_files.testing.mock import Call, MockFilesystem
from agentfs_files.tools.context import ToolContext
from agentfs_files.tools.dispatch import call_tool


def test_it_is_a_filesystem_and_remembers() -> None:
    mock = MockFilesystem({"a.txt": "one\n", "b": b"\0"})
    assert isinstance(mock, Filesystem)
    assert isinstance(mock, DiffableFilesystem)
    assert (mock.calls, mock.read_calls, mock.write_calls) == ([], [], [])
    assert mock.read("./a.txt", limit=1).content == "one\n"
    with pytest.raises(FileNotFoundError):
        mock.read_bytes(path="missing")
    mock.write("c", "text")
    mock.write_bytes("d", content=b"\xff", mode="create")
    with mock.open_write("e") as writer:
        writer.write(b"stream")
    assert mock.read_calls == ["./a.txt", "missing"]
    assert mock.write_calls == [("c", "text"), ("d", b"\xff"), ("e", "stream")]
    assert mock.calls[0] == Call("read", ("./a.txt",), {"limit": 1})
    assert [each.method for each in mock.calls] == ["read", "read_bytes", "write", "write_bytes", "open_write"]


def test_refused_calls_are_on_record_and_the_next_ones_too() -> None:
    mock = MockFilesystem(read_only=True)
    with pytest.raises(PermissionError):
        mock.write("a", "x")
    assert mock.list() == []
    assert mock.write_calls == [("a", "x")]
    assert [each.method for each in mock.calls] == ["write", "list"]


def test_tools_can_be_tested_with_it() -> None:
    mock = MockFilesystem({"a.txt": "one\n"})
    assert call_tool(
        "edit_file", {"path": "a.txt", "old_string": "one", "new_string": "two"}, ToolContext(filesystem=mock)
    ).success
    assert mock.read_calls == ["a.txt"]
    assert mock.write_calls == [("a.txt", b"two\n")]
