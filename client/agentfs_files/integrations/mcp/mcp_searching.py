"""The tools glob and grep, as in the rest of this library: they respect ignore files and say what they leave out."""

import re
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentfs_files.integrations.mcp.mcp_listing import DirectoryPath
from agentfs_files.integrations.mcp.mcp_refusal import McpRefused
from agentfs_files.integrations.mcp.mcp_tool import McpTool, Text, Workspace
from agentfs_files.tools.catalogue import glob_handler, grep_handler
from agentfs_files.tools.context import ToolContext, ToolResult
from agentfs_files.tools.parameters import GlobParams, GrepParams, OutputMode

_EXTENDED = re.compile(r"^!|[?*+@!]\(")  # what is a pattern elsewhere
_LITERAL = "Here ! and brackets stand for themselves; search_files knows !(...), @(...), ?(...) and ! at the beginning."
_IncludeIgnored = Annotated[bool, Meta(description="Also what .gitignore and .ignore files exclude, and .git.")]


class Glob(McpTool, frozen=True):
    """Find files by a pattern of their paths; `**` stands for any number of directories. Files that .gitignore excludes are left
    out. Returns paths relative to the root, one on a line.
    """

    name: ClassVar[str] = "glob"
    title: ClassVar[str] = "Find files by pattern"

    pattern: Annotated[str, Meta(min_length=1, description="Such as `**/*.py`.")]
    path: DirectoryPath = "."
    include_ignored: _IncludeIgnored = False

    def run(self, workspace: Workspace) -> Text:
        parameters = GlobParams(workspace.locate(self.pattern), self.path, include_ignored=self.include_ignored)
        result = glob_handler(parameters, context=ToolContext(filesystem=workspace.filesystem))
        if result.value is not None and not result.value.matches and _EXTENDED.search(self.pattern):
            return Text(f"{result.message} {_LITERAL}")
        return _said(result)


class Grep(McpTool, frozen=True):
    """Search the lines of text files for a regular expression. Files that .gitignore excludes are left out. Returns path, line
    number and line; paths are relative to the root.
    """

    name: ClassVar[str] = "grep"
    title: ClassVar[str] = "Search in files"

    pattern: Annotated[str, Meta(min_length=1, description="A regular expression (RE2), tried on each line.")]
    path: Annotated[str, Meta(description="A file or directory in which to search.")] = "."
    glob: Annotated[str, Meta(description="Only files that match, such as `*.py`.")] | None = None
    output_mode: Annotated[OutputMode, Meta(description="The lines, which files have any, or how many each has.")] = "content"
    ignore_case: bool = False
    context: Annotated[int, Meta(ge=0, le=20, description="How many lines around each match.")] = 0
    max_matches: Annotated[int, Meta(ge=1, description="How many matching lines at most.")] | None = None
    include_ignored: _IncludeIgnored = False

    def run(self, workspace: Workspace) -> Text:
        parameters = GrepParams(
            self.pattern, self.path, self.glob, self.output_mode, self.ignore_case, self.context, self.max_matches,
            self.include_ignored,
        )  # fmt: skip
        return _said(grep_handler(parameters, context=ToolContext(filesystem=workspace.filesystem)))


def _said(result: ToolResult[Any]) -> Text:
    if not result.success:
        raise McpRefused(result.message)
    return Text(result.message)
