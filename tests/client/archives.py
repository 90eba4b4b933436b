"""File systems to export from and import to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentfs_files.backends.base_filesystem import BaseFilesystem
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.file_results import WriteMode
from agentfs_files.filesystem.file_streams import Sink, Source

Make = Callable[[str], BaseFilesystem]
KINDS = ("memory", "host", "plainest")


class Plainest(InMemoryFilesystem):
    """A backend that supplies the primitives and nothing else. Writing what begins with ``broken`` fails, reading likewise."""

    broken = unreadable = "-"

    _open_archive = BaseFilesystem._open_archive
    _replace_all = BaseFilesystem._replace_all

    def _open_read(self, path: str) -> Source:
        if path.startswith(self.unreadable):
            raise PermissionError(13, "Permission denied", path)
        return super()._open_read(path)

    def _open_write(self, path: str, mode: WriteMode) -> Sink:
        if path.startswith(self.broken):
            raise OSError(28, "No space left on device", path)
        return super()._open_write(path, mode)


@contextmanager
def factory(base: Path) -> Iterator[Make]:
    """Makes a file system of a kind; a host directory is new each time."""
    made: list[HostFilesystem] = []

    def new(kind: str) -> BaseFilesystem:
        if kind != "host":
            return InMemoryFilesystem() if kind == "memory" else Plainest()
        root = base / f"root{len(made)}"
        root.mkdir()
        made.append(HostFilesystem(root))
        return made[-1]

    yield new
    for host in made:
        host.close()


def content(filesystem: BaseFilesystem, where: str = "") -> dict[str, bytes | None]:
    """Files and, as None, directories."""
    found: dict[str, bytes | None] = {}
    for entry in filesystem.list(where):
        if entry.is_directory:
            found |= {entry.path: None} | content(filesystem, entry.path)
        else:
            found[entry.path] = filesystem.read_bytes(entry.path).content
    return found
