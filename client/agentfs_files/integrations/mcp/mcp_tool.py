"""A tool of this server: a record of its arguments that can run on a workspace. Nothing here knows an MCP library."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from agentfs_files.filesystem.filesystem_protocol import Filesystem, PatchingFilesystem, SnapshotableFilesystem
from agentfs_files.filesystem.records import FilesystemSnapshot
from agentfs_files.integrations.mcp.mcp_paths import locate

CUT_AT_BYTES = 32 << 20  # most that one call returns


class Text(msgspec.Struct, frozen=True):
    """A result whose text a model reads. Other fields of a result are for programs."""

    content: str


class Workspace:
    """The file system that is served, and the snapshots that were taken of it. ``root`` is the beginning of absolute paths."""

    def __init__(self, filesystem: Filesystem) -> None:
        self.filesystem = filesystem
        self.root = filesystem.mount_point or filesystem.root
        self._taken: list[FilesystemSnapshot] = []

    def absolute(self, path: str) -> str:
        """Return a path of the file system in the form that clients use."""
        if path in ("", "."):
            return self.root
        return f"{self.root.rstrip('/')}/{path}"

    def locate(self, path: str) -> str:
        """Return a path that a client gave in the form that the file system takes. Raises PathEscapeError or ValueError."""
        return locate(self.filesystem, path)

    def snapshot(self, tag: str | None = None) -> FilesystemSnapshot:
        """Take a snapshot."""
        assert isinstance(self.filesystem, SnapshotableFilesystem)
        taken = self.filesystem.snapshot(tag=tag or None)
        self._taken.append(taken)
        return taken

    def snapshots(self) -> Sequence[FilesystemSnapshot]:
        """Return the snapshots, newest first: all if the file system lists them, else those taken here."""
        return self.filesystem.log() if isinstance(self.filesystem, PatchingFilesystem) else self._taken[::-1]


class McpTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A tool. Its docstring is the description for the model, and its fields are the arguments. Fields that are called path,
    source or destination hold what Workspace.locate returns.

    Attributes:
        changes: The tool writes something.
        destroys: It may overwrite or delete something.
        repeatable: Calling it twice has the same effect as calling it once.
        needs: The protocol that the file system must implement.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    changes: ClassVar[bool] = False
    destroys: ClassVar[bool] = False
    repeatable: ClassVar[bool] = False
    needs: ClassVar[type] = Filesystem
    result: ClassVar[type[Any]] = Text

    def run(self, workspace: Workspace) -> Any:
        """Run the tool, and return an instance of ``result``. Raises McpRefused, OSError, ValueError or RuntimeError."""
        raise NotImplementedError
