"""The queries of what the lower had under a name when a branch first hid or changed it."""

from collections.abc import Collection, Container, Iterator

from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import OriginRow

_COLUMNS = ", ".join(OriginRow._fields)
_SELECT = f"SELECT {_COLUMNS} FROM origin WHERE dir = ? AND name = ?"
_UPSERT = f"INSERT OR REPLACE INTO origin ({_COLUMNS}) VALUES ({', '.join('?' * len(OriginRow._fields))})"


def find(store: Store, directory: int, name: bytes, chain: Container[int]) -> OriginRow | None:
    """Return the row that counts in a chain of layers: the one of the newest layer."""
    rows = map(OriginRow._make, store.db.execute(_SELECT, (directory, name)))
    return max((row for row in rows if row.layer in chain), key=lambda row: row.layer, default=None)


def find_all(store: Store, chain: Collection[int]) -> dict[tuple[int, bytes], OriginRow]:
    """Return every row that find() would return, by directory and name."""
    rows: dict[tuple[int, bytes], OriginRow] = {}
    for layer in sorted(chain):
        for row in map(OriginRow._make, store.db.execute(f"SELECT {_COLUMNS} FROM origin WHERE layer = ?", (layer,))):
            rows[row.dir, row.name] = row
    return rows


def directories(store: Store, chain: Collection[int]) -> Iterator[tuple[int, int, bytes]]:
    """Return (inode, link count, path in the lower) of each stored directory with names from the lower, also of removed ones."""
    query = "SELECT id, nlink, lower_path FROM inode WHERE layer = ? AND mode & 61440 = 16384"
    newest: dict[int, tuple[int, bytes | None]] = {}
    for layer in sorted(chain):
        newest.update((number, (nlink, path)) for number, nlink, path in store.db.execute(query, (layer,)))
    return ((number, nlink, path) for number, (nlink, path) in newest.items() if path is not None)


def put(store: Store, row: OriginRow) -> None:
    store.db.execute(_UPSERT, row)


def oldest(store: Store, directory: int) -> int:
    """Return when anything in a directory was first recorded, in ns; 2 ** 63 for never."""
    row = store.db.execute("SELECT min(since_ns) FROM origin WHERE dir = ?", (directory,)).fetchone()
    return 1 << 63 if row[0] is None else int(row[0])
