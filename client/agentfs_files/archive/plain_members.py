"""Reduce an archive to directories and files, for file systems without symlinks."""

from dataclasses import replace

from agentfs_files.archive.members import too_large
from agentfs_files.archive.unpack import Archive
from agentfs_files.trees.tree_source import Chunks, TreeEntry, walk
from agentfs_host.descent import join

_MAX_HOPS = 40  # the kernel's own limit


class Plain:
    """An archive without symlinks and special files.

    A symlink to a file in the archive becomes a copy of that file. Other symlinks, devices, FIFOs and sockets are omitted.

    Raises:
        ArchiveTooLargeError: the result would exceed the archive's limit.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._origins: dict[bytes, TreeEntry] = {}  # path -> file of the archive that has the content
        files = [entry for entry in walk(self) if entry.is_file]
        self.file_count = len(files)
        if (total := sum(entry.size for entry in files)) > archive.max_bytes:
            raise too_large(archive.path, total, archive.max_bytes)

    def root(self) -> TreeEntry:
        return self._archive.root()

    def children(self, directory: TreeEntry) -> list[TreeEntry]:
        found = (self._as_plain(entry) for entry in self._archive.children(directory))
        return [entry for entry in found if entry is not None]

    def chunks(self, entry: TreeEntry) -> Chunks:
        return self._archive.chunks(self._origins.get(entry.path, entry))

    def _as_plain(self, entry: TreeEntry) -> TreeEntry | None:
        if entry.is_dir or entry.is_file:
            return entry
        origin = self._follow(entry.path) if entry.is_link else None
        if origin is None or not origin.is_file:
            return None
        self._origins[entry.path] = origin
        return replace(origin, path=entry.path)

    def _follow(self, path: bytes) -> TreeEntry | None:
        """Return the target; None if it does not exist or lies outside the archive."""
        way, rest, hops = b"", path.split(b"/")[::-1], 0
        entry: TreeEntry | None = self._archive.root()
        while rest and entry is not None:
            name = rest.pop()
            if name == b"..":
                if not way:
                    return None
                way = way.rpartition(b"/")[0]
            elif name not in (b"", b"."):
                way = join(way, name)
            entry = self._archive.find(way)
            if entry is not None and entry.is_link:
                hops += 1
                if hops > _MAX_HOPS or entry.target.startswith(b"/"):
                    return None
                way = entry.parent
                rest.extend(entry.target.split(b"/")[::-1])
                entry = self._archive.root()
        return entry
