"""A git repository in memory. Contents become blobs in it, so that libgit2 can compare and merge them.

It must never know where contents come from.
"""

from collections.abc import Iterator
from typing import Any

import pygit2
from pygit2.enums import FileMode, ObjectType


class _Memory(pygit2.OdbBackend):
    """Stores (type, content) of each object by its hexadecimal id."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, tuple[int, bytes]] = {}

    def read_cb(self, oid: object) -> tuple[int, bytes]:
        return self.objects[str(oid)]

    def read_header_cb(self, oid: object) -> tuple[int, int]:
        kind, data = self.objects[str(oid)]
        return kind, len(data)

    def read_prefix_cb(self, prefix: object) -> tuple[int, bytes, object]:
        raise KeyError(prefix)

    def exists_cb(self, oid: object) -> bool:
        return str(oid) in self.objects

    def exists_prefix_cb(self, prefix: object) -> object:
        raise KeyError(prefix)

    def write_cb(self, oid: object, data: bytes, kind: int) -> None:
        self.objects[str(oid)] = kind, bytes(data)

    def refresh_cb(self) -> None:
        return

    def __iter__(self) -> Iterator[pygit2.Oid]:
        return (pygit2.Oid(hex=name) for name in self.objects)


class Objects:
    """Blobs and trees in memory. Ids are git's own; paths are bytes, separated by slashes. Used by one thread at a time."""

    def __init__(self) -> None:
        self._memory = _Memory()
        odb = pygit2.Odb()
        odb.add_backend(self._memory, 1)
        self.repository = pygit2.Repository()
        self.repository.set_odb(odb)

    def blob(self, data: bytes) -> pygit2.Oid:
        """Store a content and return its id."""
        return self.repository.create_blob(data)

    def data(self, oid: pygit2.Oid) -> bytes:
        """Return the content of a blob made here or by a merge.

        Raises:
            KeyError: There is no such blob.
        """
        return self._memory.objects[str(oid)][1]

    def tree(self, files: dict[bytes, tuple[pygit2.Oid, FileMode]]) -> pygit2.Tree:
        """Create the tree that contains *files*, (blob id, mode) by path, and nothing else."""
        root: dict[bytes, Any] = {}
        for path, entry in files.items():
            directory = root
            *parents, name = path.split(b"/")
            for parent in parents:
                directory = directory.setdefault(parent, {})
            directory[name] = entry
        item = self.repository[self._write(root)]
        assert isinstance(item, pygit2.Tree)
        return item

    def _write(self, directory: dict[bytes, Any]) -> pygit2.Oid:
        lines = []
        for name, entry in directory.items():
            if isinstance(entry, dict):
                lines.append((name + b"/", b"40000 " + name + b"\0" + self._write(entry).raw))
            else:
                oid, mode = entry
                lines.append((name, b"%o " % int(mode) + name + b"\0" + oid.raw))
        return self.repository.write(ObjectType.TREE, b"".join(line for _, line in sorted(lines)))
