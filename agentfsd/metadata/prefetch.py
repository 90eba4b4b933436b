"""Read many rows of layers at once, for work that would otherwise need a query for each file."""

from collections.abc import Container, Iterator, Sequence

from agentfsd.metadata.row_store import INODE_COLUMNS, Store
from agentfsd.metadata.rows import InodeRow

_PAGE = 500  # rows of one step
_FEW = 50  # inodes of which each is asked for: it may have a version in each of hundreds of layers, most of which nobody looks at
_SOME_IDS = "SELECT id FROM inode WHERE layer = ? AND id > ? ORDER BY id LIMIT ?"
_TOUCHED = "(SELECT id FROM inode WHERE layer = ? AND id BETWEEN ? AND ?)"
_INODES = f"SELECT {INODE_COLUMNS} FROM inode WHERE id IN {_TOUCHED}"
_NAMES = f"SELECT child, dir, name, layer FROM dentry WHERE child IN {_TOUCHED}"
_OBJECTS = "SELECT id, layer FROM object WHERE id IN (SELECT content FROM inode WHERE layer = ? AND id BETWEEN ? AND ?)"


class Prefetch:
    """The versions of every inode that has a row in one of the layers, with their objects and names.

    With *chains*, versions may be missing that are the newest in none of these chains of layers.

    Attributes:
        names: (directory, name, layer) of each name, by inode.
        objects: The layer that owns each object.
    """

    def __init__(self, chains: Sequence[Container[int]] = ()) -> None:
        self._chains = chains
        self.inodes: dict[int, list[InodeRow]] = {}
        self.objects: dict[int, int] = {}
        self.names: dict[int, list[tuple[int, bytes, int]]] = {}

    def adding(self, store: Store, layer: int) -> Iterator[None]:
        """Read a layer in steps."""
        last = 0
        while ids := [number for (number,) in store.db.execute(_SOME_IDS, (layer, last, _PAGE))]:
            which, last = (layer, ids[0], ids[-1]), ids[-1]
            known = self.inodes.keys() & ids
            is_each_asked_for = self._chains and len(ids) <= _FEW
            for row in self._newest(store, ids) if is_each_asked_for else map(InodeRow._make, store.db.execute(_INODES, which)):
                if row.id not in known:
                    self.inodes.setdefault(row.id, []).append(row)
                    self.names.setdefault(row.id, [])
            for child, directory, name, found_in in store.db.execute(_NAMES, which):
                if child not in known:
                    self.names[child].append((directory, name, found_in))
            self.objects.update(store.db.execute(_OBJECTS, which))
            yield

    def _newest(self, store: Store, ids: Sequence[int]) -> Iterator[InodeRow]:
        """Yield the versions of inodes that are the newest in one of the chains."""
        for number in ids:
            left = list(self._chains)
            for row in store.newer_versions_first(number):
                if any(row.layer in chain for chain in left):
                    yield row
                    left = [chain for chain in left if row.layer not in chain]
                if not left:
                    break
