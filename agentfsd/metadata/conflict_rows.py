"""The queries of merges that left conflicts in their target, and of what was decided about these."""

from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import UnfinishedRow

ITSELF = b"/"  # the path of a decision about the merge itself
_COLUMNS = ", ".join(UnfinishedRow._fields)


def read(store: Store) -> list[UnfinishedRow]:
    """Return all such merges, oldest first. A branch is in those alone whose layer is in its chain."""
    return list(map(UnfinishedRow._make, store.db.execute(f"SELECT {_COLUMNS} FROM unfinished ORDER BY id")))


def put(store: Store, layer: int, before: int, record: bytes) -> UnfinishedRow:
    """Store a merge, in the open transaction."""
    row = UnfinishedRow(store.next_id("merge"), layer, before, record)
    store.db.execute(f"INSERT INTO unfinished ({_COLUMNS}) VALUES (?, ?, ?, ?)", row)
    return row


def delete(store: Store, merge: int) -> None:
    """Delete a merge and its decisions, in the open transaction."""
    store.db.execute("DELETE FROM unfinished WHERE id = ?", (merge,))
    store.db.execute("DELETE FROM decision WHERE merge = ?", (merge,))


def finished(store: Store, merge: int) -> set[int]:
    """Return the layers in which a merge was finished: it is in all states above them."""
    rows = store.db.execute("SELECT layer FROM decision WHERE merge = ? AND path = ?", (merge, ITSELF))
    return {row[0] for row in rows}


def decide(store: Store, merge: int, path: bytes, layer: int, how: str) -> None:
    """Store a decision, in the open transaction, for all states from *layer* on."""
    store.db.execute("INSERT OR REPLACE INTO decision (merge, path, layer, how) VALUES (?, ?, ?, ?)", (merge, path, layer, how))


def decisions(store: Store, merge: int, chain: frozenset[int]) -> dict[bytes, str]:
    """Return what was decided by path, in the state whose layers are *chain*."""
    rows = store.db.execute("SELECT path, layer, how FROM decision WHERE merge = ? ORDER BY layer", (merge,))
    return {path: how for path, layer, how in rows if layer in chain}


def merge_down(store: Store, layer: int, child: int) -> None:
    """Move the decisions of *layer* to its only child, whose own win. A layer that a merge made is kept as long as its row."""
    store.db.execute("UPDATE OR IGNORE decision SET layer = ? WHERE layer = ?", (child, layer))
    store.db.execute("DELETE FROM decision WHERE layer = ?", (layer,))
