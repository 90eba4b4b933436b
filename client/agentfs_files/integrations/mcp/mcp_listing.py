"""Tools that list files and describe them."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from agentfs_files.filesystem.file_results import FileEntry
from agentfs_files.filesystem.search import path_matcher
from agentfs_files.filesystem.virtual_paths import join
from agentfs_files.integrations.mcp.mcp_tool import McpTool, Text, Workspace

DirectoryPath = Annotated[
    str, Meta(description="A directory: an absolute path, or one relative to the root of the workspace; `.` is the root.")
]
_NAME_WIDTH, _SIZE_WIDTH = 30, 10
_UNITS = ("B", "KB", "MB", "GB", "TB")

Excluded = Callable[[str], bool]


class ListDirectory(McpTool, frozen=True):
    """List a directory, sorted by name: one name on a line, after [DIR] or [FILE]."""

    name: ClassVar[str] = "list_directory"
    title: ClassVar[str] = "List a directory"

    path: DirectoryPath

    def run(self, workspace: Workspace) -> Text:
        return Text("\n".join(f"{_mark(entry)} {entry.name}" for entry in workspace.filesystem.list(self.path)))


class ListDirectoryWithSizes(McpTool, frozen=True):
    """List a directory with the sizes of files, sorted by name or largest first, and with their total size."""

    name: ClassVar[str] = "list_directory_with_sizes"
    title: ClassVar[str] = "List a directory with sizes"

    path: DirectoryPath
    sort_by: Annotated[Literal["name", "size"], Meta(description="By name, or the largest first.")] = "name"

    def run(self, workspace: Workspace) -> Text:
        entries = [(entry, 0 if entry.is_directory else entry.size_bytes or 0) for entry in workspace.filesystem.list(self.path)]
        if self.sort_by == "size":
            entries.sort(key=lambda pair: pair[1], reverse=True)
        lines = [
            f"{_mark(entry)} {entry.name:<{_NAME_WIDTH}} {'' if entry.is_directory else size_text(size).rjust(_SIZE_WIDTH)}"
            for entry, size in entries
        ]
        directories = sum(entry.is_directory for entry, _ in entries)
        total = size_text(sum(size for _, size in entries))
        summary = ["", f"Total: {len(entries) - directories} files, {directories} directories", f"Combined size: {total}"]
        return Text("\n".join(lines + summary))


class DirectoryTree(McpTool, frozen=True):
    """Show a directory with everything beneath it, as a JSON array of {name, type: file or directory, children}. Files have no
    children. Symlinks to directories are not followed.
    """

    name: ClassVar[str] = "directory_tree"
    title: ClassVar[str] = "Show a directory tree"

    path: DirectoryPath
    exclude_patterns: Annotated[
        list[str], Meta(description="Leave out what matches; a name without * is left out wherever it is, such as node_modules.")
    ] = []

    def run(self, workspace: Workspace) -> Text:
        widened = [wide for pattern in self.exclude_patterns for wide in _anywhere(pattern)]
        entries = workspace.filesystem.list(self.path)
        return Text(json.dumps(list(_tree(workspace, entries, "", _matching(widened))), indent=2, ensure_ascii=False))


class SearchFiles(McpTool, frozen=True):
    """Find files and directories beneath a directory by a pattern of their paths. `*.py` matches in that directory alone,
    `**/*.py` at any depth, `!(*.py)` all others in it, `!**/*.py` all others at any depth. Returns absolute paths, one on a line.
    """

    name: ClassVar[str] = "search_files"
    title: ClassVar[str] = "Search files by name"

    path: DirectoryPath
    pattern: Annotated[str, Meta(description="Matched against paths relative to that directory, such as `**/test_*.py`.")]
    exclude_patterns: Annotated[list[str], Meta(description="Leave out what matches, and all beneath it.")] = []

    def run(self, workspace: Workspace) -> Text:
        wanted = path_matcher(self.pattern, extended=True)
        entries = workspace.filesystem.list(self.path)
        found = [
            workspace.absolute(entry.path)
            for relative, entry in _walk(workspace, entries, _matching(self.exclude_patterns))
            if entry.kind != "other" and wanted(relative)
        ]
        return Text("\n".join(found) or "No matches found")


class GetFileInfo(McpTool, frozen=True):
    """Return the size in bytes, times, kind and permissions of a file or directory."""

    name: ClassVar[str] = "get_file_info"
    title: ClassVar[str] = "Tell about a file"

    path: Annotated[str, Meta(description="A file or directory.")]

    def run(self, workspace: Workspace) -> Text:
        stat = workspace.filesystem.stat(self.path)
        known = {
            "size": stat.size_bytes,
            "created": stat.created_at and stat.created_at.isoformat(),
            "modified": stat.modified_at and stat.modified_at.isoformat(),
            "isDirectory": str(stat.is_directory).lower(),
            "isFile": str(stat.is_file).lower(),
            "permissions": None if stat.mode is None else f"{stat.mode & 0o777:03o}",
        }
        return Text("\n".join(f"{key}: {value}" for key, value in known.items() if value is not None))


class ListAllowedDirectories(McpTool, frozen=True):
    """Return the directory in which all tools work: the root that absolute paths begin with."""

    name: ClassVar[str] = "list_allowed_directories"
    title: ClassVar[str] = "Tell the root of the workspace"

    def run(self, workspace: Workspace) -> Text:
        return Text(f"Allowed directories:\n{workspace.root}")


def size_text(size: int) -> str:
    """Format a size, such as "1023 B" or "1.00 KB"."""
    unit = min((size.bit_length() - 1) // 10, len(_UNITS) - 1) if size else 0
    return f"{size / (1 << 10 * unit):.2f} {_UNITS[unit]}" if unit else f"{size} B"


def _mark(entry: FileEntry) -> str:
    return "[DIR]" if entry.is_directory else "[FILE]"


def _anywhere(pattern: str) -> Sequence[str]:
    return (pattern,) if "*" in pattern else (pattern, f"**/{pattern}", f"**/{pattern}/**")


def _matching(patterns: Sequence[str]) -> Excluded:
    matchers = [path_matcher(pattern, extended=True) for pattern in patterns]
    return lambda path: any(matches(path) for matches in matchers)


def _inside(workspace: Workspace, entry: FileEntry) -> Sequence[FileEntry]:
    """List a directory. Return nothing for a symlink, which may lead back up, and for a directory that cannot be read."""
    if not entry.is_directory or entry.is_link:
        return ()
    try:
        return workspace.filesystem.list(entry.path)
    except OSError:
        return ()


def _walk(workspace: Workspace, entries: Sequence[FileEntry], excluded: Excluded) -> Iterator[tuple[str, FileEntry]]:
    """Yield everything beneath, with the path relative to the start; a directory comes before its content."""
    pending = [(entry.name, entry) for entry in reversed(entries)]
    while pending:
        relative, entry = pending.pop()
        if excluded(relative):
            continue
        yield relative, entry
        pending += [(join(relative, child.name), child) for child in reversed(_inside(workspace, entry))]


def _tree(workspace: Workspace, entries: Sequence[FileEntry], above: str, excluded: Excluded) -> Iterator[dict[str, Any]]:
    for entry in entries:
        relative = join(above, entry.name)
        if excluded(relative):
            continue
        if not entry.is_directory:
            yield {"name": entry.name, "type": "file"}
            continue
        children = list(_tree(workspace, _inside(workspace, entry), relative, excluded))
        yield {"name": entry.name, "type": "directory", "children": children} | ({"link": True} if entry.is_link else {})
