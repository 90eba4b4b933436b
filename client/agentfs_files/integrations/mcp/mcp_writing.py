"""Tools that change files."""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from agentfs_files.filesystem.filesystem_protocol import MovableFilesystem
from agentfs_files.integrations.mcp import mcp_edits
from agentfs_files.integrations.mcp.mcp_reading import FilePath
from agentfs_files.integrations.mcp.mcp_refusal import McpRefused
from agentfs_files.integrations.mcp.mcp_tool import McpTool, Text, Workspace

_AnyPath = Annotated[str, Meta(description="An absolute path, or one relative to the root of the workspace.")]


class WriteFile(McpTool, frozen=True):
    """Create a text file, or replace its whole content. Its directory must exist."""

    name: ClassVar[str] = "write_file"
    title: ClassVar[str] = "Write a file"
    changes: ClassVar[bool] = True
    destroys: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True

    path: FilePath
    content: Annotated[str, Meta(description="The whole text.")]

    def run(self, workspace: Workspace) -> Text:
        workspace.filesystem.write(self.path, self.content, create_parents=False)
        return Text(f"Successfully wrote to {self.path}")


class Edit(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One edit of edit_file."""

    old_text: Annotated[str, Meta(description="What to replace; it must be in the file.")]
    new_text: Annotated[str, Meta(description="What to put in its place.")]


class EditFile(McpTool, frozen=True):
    """Change parts of a text file, one after the other; each edit replaces the first occurrence of its oldText. If oldText is
    whole lines, their indentation may differ. Makes all edits or none. Returns a patch of the changes (with dryRun, without
    making them).
    """

    name: ClassVar[str] = "edit_file"
    title: ClassVar[str] = "Edit a file"
    changes: ClassVar[bool] = True
    destroys: ClassVar[bool] = True

    path: FilePath
    edits: list[Edit]
    dry_run: Annotated[bool, Meta(description="Only show what would change.")] = False

    def run(self, workspace: Workspace) -> Text:
        content = workspace.filesystem.read_bytes(self.path)
        try:
            text = content.content.decode()
        except UnicodeDecodeError as exc:
            raise McpRefused(f"{self.path} is not UTF-8 text (byte {exc.start}), and only such can be edited") from exc
        edited = mcp_edits.apply(text, ((edit.old_text, edit.new_text) for edit in self.edits), self.path)
        if edited != text and not self.dry_run:
            workspace.filesystem.write(self.path, edited)
        return Text(mcp_edits.fenced(mcp_edits.patch(content.path, text, edited)))


class CreateDirectory(McpTool, frozen=True):
    """Create a directory and its missing parent directories. An existing directory stays as it is."""

    name: ClassVar[str] = "create_directory"
    title: ClassVar[str] = "Make a directory"
    changes: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True

    path: _AnyPath

    def run(self, workspace: Workspace) -> Text:
        workspace.filesystem.mkdir(self.path)
        return Text(f"Successfully created directory {self.path}")


class MoveFile(McpTool, frozen=True):
    """Move or rename a file or directory. The destination must not exist, but its directory must."""

    name: ClassVar[str] = "move_file"
    title: ClassVar[str] = "Move or rename"
    changes: ClassVar[bool] = True
    destroys: ClassVar[bool] = True
    needs: ClassVar[type] = MovableFilesystem

    source: _AnyPath
    destination: _AnyPath

    def run(self, workspace: Workspace) -> Text:
        assert isinstance(workspace.filesystem, MovableFilesystem)
        workspace.filesystem.move(self.source, self.destination, create_parents=False)
        return Text(f"Successfully moved {self.source} to {self.destination}")
