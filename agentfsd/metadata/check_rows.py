"""Queries for checking a state directory: fsck in a running daemon; doctor and repair without one."""

from agentfsd.metadata import inspection
from agentfsd.metadata.row_store import Store

_TABLES_WITH_LAYERS = ("inode", "dentry", "object", "origin")
_OBJECTS_IN_USE = (
    "SELECT DISTINCT content, layer FROM inode WHERE content != 0 UNION SELECT base, layer FROM origin WHERE base != 0"
)
_LIVE_OBJECTS = "SELECT id FROM object WHERE layer != 0 AND layer NOT IN (SELECT id FROM layer WHERE dead = 1)"


# -- of the open database


def size_bytes(store: Store) -> int:
    """Return the size of the database's main file."""
    (size,) = store.db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()
    return int(size)


def structural_problems(store: Store) -> list[str]:
    """Return what SQLite finds wrong with the database, in its words; takes long for a large one."""
    return [row[0] for row in store.db.execute("PRAGMA integrity_check") if row[0] != "ok"]


def layers_in_use(store: Store) -> dict[str, set[int]]:
    """Return the layers that rows belong to, by table."""
    return {table: {row[0] for row in store.db.execute(f"SELECT DISTINCT layer FROM {table}")} for table in _TABLES_WITH_LAYERS}


def object_layers(store: Store) -> dict[int, int]:
    """Return the layer of every object."""
    return dict(store.db.execute("SELECT id, layer FROM object"))


def objects_in_use(store: Store) -> list[tuple[int, int]]:
    """Return (object, layer of the row that refers to it) of every reference to an object."""
    return store.db.execute(_OBJECTS_IN_USE).fetchall()


# -- of a database that nobody has open; sqlite3.DatabaseError when it cannot be read


def read_live_objects(path: str) -> set[int]:
    """Return the objects that some branch or snapshot may refer to."""
    with inspection.reading(path) as db:
        return {row[0] for row in db.execute(_LIVE_OBJECTS)}


def read_first_problem(path: str) -> str:
    """Return the first thing that SQLite finds wrong, in its words; "ok" for nothing."""
    with inspection.reading(path) as db:
        return str(db.execute("PRAGMA integrity_check(1)").fetchone()[0])


def read_ref_names(path: str) -> dict[tuple[str, str], str]:
    """Return the name of every branch and snapshot, by ("branch" or "snapshot", id)."""
    with inspection.reading(path) as db:
        return {
            (kind, ref_id): name
            for kind in ("branch", "snapshot")
            for ref_id, name in db.execute(f"SELECT id, name FROM {kind} ORDER BY id")
        }
