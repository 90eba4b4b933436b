"""Prompt sections with a file system and its tools: in memory, or a directory of this machine."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from agentfs_files.backends.host_mounts import HostMount, Paths, hydrate, resolve
from agentfs_files.filesystem.filesystem_protocol import ArchivableFilesystem, Filesystem
from agentfs_files.session.prompt import MarkdownSection, PromptError, Section
from agentfs_files.session.typevars import ParamsT
from agentfs_files.tools.catalogue import FILESYSTEM_TOOLS
from agentfs_files.tools.tool import Tool, Tools

if TYPE_CHECKING:
    from agentfs_files.backends.host import HostFilesystem
    from agentfs_files.backends.in_memory import InMemoryFilesystem
    from agentfs_files.snapshots.manager import SnapshotManager

_PATHS = "Paths are relative to its root; there is no shell."
_WORKSPACE_TEMPLATE = (
    f"You work on files through tools: ls, read_file, glob and grep to look, and those that write where allowed. {_PATHS}"
)
_VFS_TEMPLATE = f"You work on a copy of the files, which is held in memory: what you change there changes nothing else. {_PATHS}"
_HOST_TEMPLATE = f"You work on the files of a directory. What you change there is changed for everybody who uses it. {_PATHS}"


class FilesystemSection(MarkdownSection[ParamsT]):
    """A section with a file system: the given one, or the one that ``_create_backend`` creates at the first use.

    ``read_only`` omits the tools that write (a read-only file system refuses their calls anyway). ``snapshot_dir`` is where
    ``snapshots`` keeps its archives.
    """

    def __init__(
        self,
        *,
        title: str = "Workspace",
        key: str = "workspace",
        template: str = _WORKSPACE_TEMPLATE,
        filesystem: Filesystem | None = None,
        snapshot_dir: Path | None = None,
        read_only: bool = False,
        tools: Sequence[Tool[Any, Any]] = FILESYSTEM_TOOLS,
        children: Sequence[Section[Any]] = (),
        params: ParamsT | None = None,
        accepts_overrides: bool = True,
    ) -> None:
        super().__init__(
            title=title, key=key, template=template, tools=tools, children=children, params=params,
            accepts_overrides=accepts_overrides,
        )  # fmt: skip
        self._backend = filesystem
        self._read_only = read_only or (filesystem is not None and filesystem.read_only)
        self._snapshot_dir = snapshot_dir
        self._snapshots: SnapshotManager[ArchivableFilesystem] | None = None

    @property
    def tools(self) -> Tools:
        return tuple(tool for tool in self._tools if not (tool.writes and self._read_only))

    @property
    def filesystem(self) -> Filesystem:
        if self._backend is None:
            self._backend = self._create_backend()
        return self._backend

    @property
    def snapshots(self) -> "SnapshotManager[ArchivableFilesystem]":
        """Named snapshots of the file system, as archives that any other backend can restore."""
        if self._snapshots is None:
            from agentfs_files.snapshots.manager import SnapshotManager

            filesystem = self.filesystem
            if not isinstance(filesystem, ArchivableFilesystem):
                raise PromptError(f"the file system of {self.key!r} exports no archives, which snapshots by name are made of")
            self._snapshots = SnapshotManager(filesystem, self._snapshot_dir)
        return self._snapshots

    def _create_backend(self) -> Filesystem:
        """Create the file system; subclasses implement this."""
        raise PromptError(f"the section {self.key!r} has no file system: give it filesystem=, or a class with _create_backend()")


class SectionOptions(TypedDict, total=False):
    """Options that every section with a file system accepts."""

    title: str
    key: str
    template: str
    snapshot_dir: Path | None
    read_only: bool
    tools: Sequence[Tool[Any, Any]]
    children: Sequence[Section[Any]]
    params: Any
    accepts_overrides: bool


_VFS: SectionOptions = {
    "title": "Virtual Filesystem", "key": "vfs.tools", "template": _VFS_TEMPLATE, "accepts_overrides": False,
}  # fmt: skip
_HOST: SectionOptions = {"template": _HOST_TEMPLATE, "accepts_overrides": False}


class VfsToolsSection(FilesystemSection[ParamsT]):
    """A section with a file system in memory.

    ``mounts`` are host files to copy in, all from beneath ``allowed_host_roots``. The constructor checks that they exist and are
    allowed.

    Raises:
        PathEscapeError: a mount lies beneath none of the roots.
        FileNotFoundError: a mount does not exist.
    """

    def __init__(
        self, *, mounts: Sequence[HostMount] = (), allowed_host_roots: Paths = (), **options: Unpack[SectionOptions]
    ) -> None:
        super().__init__(**(_VFS | options))
        self._mounts = [resolve(mount, allowed_host_roots) for mount in mounts]

    @property
    def filesystem(self) -> "InMemoryFilesystem":
        return cast("InMemoryFilesystem", super().filesystem)

    def _create_backend(self) -> Filesystem:
        from agentfs_files.backends.in_memory import InMemoryFilesystem

        filesystem = InMemoryFilesystem()
        hydrate(filesystem, self._mounts)
        return filesystem


VfsSection = VfsToolsSection  # the name in the tool operations


class WorkspaceToolsSection(FilesystemSection[ParamsT]):
    """A section with a directory of this machine: ``root``, or a new directory of its own."""

    def __init__(self, *, root: os.PathLike[str] | str | None = None, **options: Unpack[SectionOptions]) -> None:
        super().__init__(**(_HOST | options))
        self._root = root

    @property
    def filesystem(self) -> "HostFilesystem":
        return cast("HostFilesystem", super().filesystem)

    def _create_backend(self) -> Filesystem:
        from agentfs_files.backends.host import HostFilesystem

        root = tempfile.mkdtemp(prefix="agentfs-workspace-") if self._root is None else self._root
        return HostFilesystem(root, read_only=self._read_only)
