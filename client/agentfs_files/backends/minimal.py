"""The smallest file system interface of the specification's tool operations: eight methods, as a view of any backend.

Where it differs from `Filesystem`: results are tuples of entries, writing and deleting return numbers, deleting takes whole
directories and what is not there. Source: tool operations, Filesystem protocol and backend implementations.
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
    """Eight methods over a *backend*, which stays the owner of everything."""

    def __init__(self, backend: BaseFilesystem) -> None:
        self.backend = backend

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Lines, as Filesystem.read. FileNotFoundError."""
        return self.backend.read(path, offset=offset, limit=limit)

    def write(self, path: str, content: str) -> int:
        """How many bytes were written; directories above are made."""
        return self.backend.write(path, content).bytes_written

    def delete(self, path: str) -> int:
        """A file, or a directory with all that is in it; how many files and directories those were, 0 where nothing was."""
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
        """How many files were written to the ZIP."""
        return self.backend.export_archive(path)

    def import_archive(self, path: str | os.PathLike[str]) -> int:
        """Replaces everything; how many files the ZIP has."""
        return self.backend.import_archive(path)

    def _entries(self, paths: Iterable[str]) -> tuple[FileEntry, ...]:
        return tuple(entry_of(self.backend.stat(path)) for path in paths)

    def _count(self, path: str) -> int:
        """How many files and directories are at and beneath a path."""
        count, pending = 0, [self.backend.stat(path).path]
        while pending:
            where = pending.pop()
            count += 1
            if self.backend.stat(where).is_directory:
                pending.extend(entry.path for entry in self.backend.list(where))
        return count


class InMemoryBackend(MinimalFilesystem):
    """``mounts``: files of this machine that are copied in; a relative one counts from the current directory."""

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
    """A running podman container, as PodmanFilesystem takes it. ``backend.close()`` ends the shell in it."""

    backend: "PodmanFilesystem"

    def __init__(self, container: Any, workdir: str = "/workspace") -> None:
        from agentfs_files.backends.podman import PodmanFilesystem

        super().__init__(PodmanFilesystem(container, workdir=workdir))
