"""The seven tools for a file system, ready for a model."""

from collections.abc import Iterable
from typing import Any

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.tools import edit_tools, read_tools, search_tools, write_tools
from agentfs_files.tools.handling import on_filesystem
from agentfs_files.tools.parameters import (
    EditFileParams,
    GlobParams,
    GrepParams,
    LsParams,
    ReadFileParams,
    RmParams,
    WriteFileParams,
)
from agentfs_files.tools.tool import Tool, Tools
from agentfs_files.tools.tool_limits import DEFAULT_TOOL_LIMITS, ToolLimits
from agentfs_files.tools.tool_results import (
    EditFileResult,
    GlobResult,
    GrepResult,
    LsResult,
    ReadFileResult,
    RmResult,
    WriteFileResult,
)


def filesystem_tools(limits: ToolLimits = DEFAULT_TOOL_LIMITS) -> Tools:
    """Return the tools with other limits."""
    return (
        Tool(
            "ls",
            "List one directory: directories first, then files with their sizes.",
            on_filesystem(read_tools.ls, limits=limits), LsParams, LsResult,
        ),
        Tool(
            "read_file",
            f"Show a text file with line numbers, up to {limits.read_lines:,} lines at a time; offset goes on behind those. "
            "The numbers and the tab behind them are not part of the file.",
            on_filesystem(read_tools.read_file, limits=limits), ReadFileParams, ReadFileResult,
        ),
        Tool(
            "write_file",
            f"Write a text file, up to {limits.write_characters:,} characters per call; directories above it are made. "
            "For a change to a file that exists, prefer edit_file.",
            on_filesystem(write_tools.write_file, writes=True, limits=limits), WriteFileParams, WriteFileResult, writes=True,
        ),
        Tool(
            "edit_file",
            "Replace a piece of a text file by another. old_string must be in the file exactly once (add lines around it) "
            "unless replace_all is set. Line endings stay as the file has them.",
            on_filesystem(edit_tools.edit_file, writes=True, limits=limits), EditFileParams, EditFileResult, writes=True,
        ),
        Tool(
            "glob",
            "Find files by a pattern of their paths. What .gitignore excludes is left out unless include_ignored is set.",
            on_filesystem(search_tools.glob, limits=limits), GlobParams, GlobResult,
        ),
        Tool(
            "grep",
            "Search the lines of text files for a regular expression. What .gitignore excludes is left out unless "
            "include_ignored is set.",
            on_filesystem(search_tools.grep, limits=limits), GrepParams, GrepResult,
        ),
        Tool(
            "rm",
            "Remove a file, an empty directory, or, with recursive, a directory with all that is in it. It cannot be undone.",
            on_filesystem(write_tools.rm, writes=True, limits=limits), RmParams, RmResult, writes=True,
        ),
    )  # fmt: skip


FILESYSTEM_TOOLS = filesystem_tools()

ls_handler, read_file_handler, write_file_handler, edit_file_handler, glob_handler, grep_handler, rm_handler = (
    tool.handler for tool in FILESYSTEM_TOOLS
)


def tools_for(filesystem: Filesystem, tools: Iterable[Tool[Any, Any]] = FILESYSTEM_TOOLS) -> Tools:
    """Return those of *tools* that *filesystem* supports: without the writing ones if it is read-only."""
    return tuple(tool for tool in tools if not (tool.writes and filesystem.read_only))
