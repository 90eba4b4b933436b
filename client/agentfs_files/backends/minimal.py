"""The smallest file system interface of the specification's tool operations: eight methods, as a view of any backend.

It differs from `Filesystem`: results are tuples of entries, write and delete return numbers, and delete accepts whole directories
and missing paths. Source: tool operations, Filesystem protocol and backend implementations.
"""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from agentfs_files.backends.base_filesystem import BaseFilesystem, entry_of
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.file_results import FileContent, FileEntry, GrepMatch

if TYPE_CHECKING:
    from agentfs_files.backends.host import HostFilesystem
    from agentfs_files.backends.host_mounts import HostMount
    from agentfs_files.backends.podman import PodmanFilesystem


class MinimalFilesystem:
    """Eight methods over a *backend*, which still owns all state."""

    def __init__(self, backend: BaseFilesystem) -> None:
        self.backend = backend

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Return lines like Filesystem.read(). Raises FileNotFoundError."""
        return self.backend.read(path, offset=offset, limit=limit)

    def write(self, path: str, content: str) -> int:
        """Write a file, create its parent directories, and return the number of bytes."""
        return self.backend.write(path, content).bytes_written

    def delete(self, path: str) -> int:
        """Delete a file or a directory tree. Return the number of files and directories deleted, 0 if there was nothing."""
        if not self.backend.exists(path):
            return 0
        count = self._count(path)
        self.backend.delete(path, recursive=True)
        return count

    def list(self, path: str = "") -> tuple[FileEntry, ...]:
        return tuple(self.backend.list(path))

    def glob(self, pattern: str) -> tuple[FileEntry, ...]:
        return self._entries(match.path for match in self.backend.glob(pattern))

    def grep(self, pattern: str, *, file_glob: str | None = None) -> tuple[GrepMatch, ...]:
        return tuple(self.backend.grep(pattern, file_glob=file_glob))

    def export_archive(self, path: str | os.PathLike[str]) -> int:
        """Write a ZIP and return the number of files in it."""
        return self.backend.export_archive(path)

    def import_archive(self, path: str | os.PathLike[str]) -> int:
        """Replace everything by a ZIP and return the number of files in it."""
        return self.backend.import_archive(path)

    def _entries(self, paths: Iterable[str]) -> tuple[FileEntry, ...]:
        return tuple(entry_of(self.backend.stat(path)) for path in paths)

    def _count(self, path: str) -> int:
        """Return the number of files and directories at and beneath a path."""
        count, pending = 0, [self.backend.stat(path).path]
        while pending:
            where = pending.pop()
            count += 1
            if self.backend.stat(where).is_directory:
                pending.extend(entry.path for entry in self.backend.list(where))
        return count


class InMemoryBackend(MinimalFilesystem):
    """A file system in memory. ``mounts`` are files of this machine to copy in; relative paths start at the current directory."""

    backend: InMemoryFilesystem

    def __init__(self, mounts: "Sequence[HostMount]" = ()) -> None:
        super().__init__(InMemoryFilesystem())
        if mounts:
            from agentfs_files.backends.host_mounts import hydrate, resolve

            hydrate(self.backend, [resolve(mount, [os.getcwd(), "/"]) for mount in mounts])


class HostBackend(MinimalFilesystem):
    backend: "HostFilesystem"

    def __init__(self, root: str | os.PathLike[str]) -> None:
        from agentfs_files.backends.host import HostFilesystem

        super().__init__(HostFilesystem(root))


class ContainerBackend(MinimalFilesystem):
    """A directory of a running podman container, as for PodmanFilesystem. ``backend.close()`` ends the shell in it."""

    backend: "PodmanFilesystem"

    def __init__(self, container: Any, workdir: str = "/workspace") -> None:
        from agentfs_files.backends.podman import PodmanFilesystem

        super().__init__(PodmanFilesystem(container, workdir=workdir))
