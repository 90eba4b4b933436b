"""Rows of layers, read all at once for work that needs many of them: one query instead of one for each file."""

from collections.abc import Iterator

from agentfsd.metadata.rows import InodeRow
from agentfsd.metadata.store import INODE_COLUMNS, Store

_TOUCHED = "(SELECT id FROM inode WHERE layer = ?)"
_INODES = f"SELECT {INODE_COLUMNS} FROM inode WHERE id IN {_TOUCHED}"
_NAMES = f"SELECT child, dir, name, layer FROM dentry WHERE child IN {_TOUCHED}"
_OBJECTS = "SELECT id, layer FROM object WHERE id IN (SELECT content FROM inode WHERE layer = ?)"


class Foretold:
    """All versions of every inode that has a row in one of the layers, with the objects and names of these.

    ``names``: (directory, name, layer) by inode; ``objects``: the layer that owns each.
    """

    def __init__(self) -> None:
        self.inodes: dict[int, list[InodeRow]] = {}
        self.objects: dict[int, int] = {}
        self.names: dict[int, list[tuple[int, bytes, int]]] = {}

    def add(self, store: Store, layer: int) -> None:
        known = set(self.inodes)
        for row in map(InodeRow._make, store.db.execute(_INODES, (layer,))):
            if row.id not in known:
                self.inodes.setdefault(row.id, []).append(row)
                self.names.setdefault(row.id, [])
        for child, directory, name, found_in in store.db.execute(_NAMES, (layer,)):
            if child not in known:
                self.names[child].append((directory, name, found_in))
        self.objects.update(store.db.execute(_OBJECTS, (layer,)))


def names_in(store: Store, layer: int) -> Iterator[tuple[int, bytes]]:
    """(directory, name) of every row of a layer."""
    return store.db.execute("SELECT dir, name FROM dentry WHERE layer = ?", (layer,))
