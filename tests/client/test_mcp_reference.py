"""The MCP server beside the reference server, where that is installed: see compare_mcp.py."""

import os
import shutil
from pathlib import Path

import pytest

from tests.client import compare_mcp

EXPLAINED = {  # in client/README.md
    "another text": {
        "directory_tree", "edit_file", "get_file_info", "list_directory_with_sizes", "read_multiple_files", "read_text_file",
        "search_files",
    },
    "only the reference refuses": {"move_file", "read_text_file", "write_file"},
    "only we refuse": {"edit_file", "read_file", "read_text_file"},
}  # fmt: skip


def test_nothing_differs_but_what_the_readme_explains() -> None:
    place = os.environ.get("AGENTFSD_TEST_MCP_REFERENCE", "")
    if not place or shutil.which("node") is None:
        pytest.skip("AGENTFSD_TEST_MCP_REFERENCE does not say where the reference server is: see compare_mcp.py")
    found = compare_mcp.compare(Path(place))
    alike = found.pop("")
    assert {what: {call.tool for call, _, _ in those} for what, those in found.items()} == EXPLAINED
    assert len(alike) >= 577
