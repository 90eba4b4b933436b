"""The queries of the table ``seal``: checksums of sealed objects."""

from typing import NamedTuple

from agentfsd.metadata.row_store import Store

_SEALED = (
    "object.layer != 0 AND object.layer NOT IN (SELECT head FROM branch) "
    "AND object.layer NOT IN (SELECT id FROM layer WHERE dead = 1)"
)


class ObjectChecksum(NamedTuple):
    """The checksum of one object. ``size`` in bytes; ``digest`` as core/content_checksums.py computes it."""

    object: int
    layer: int
    size: int
    digest: bytes


def sealed_layers(store: Store) -> frozenset[int]:
    query = "SELECT id FROM layer WHERE dead = 0 AND id NOT IN (SELECT head FROM branch)"
    return frozenset(row[0] for row in store.db.execute(query))


def missing(store: Store, first: int, end: int) -> list[tuple[int, int]]:
    """Return (object, layer) of sealed objects without a checksum, with numbers from *first* to before *end*."""
    query = (
        "SELECT id, object.layer FROM object LEFT JOIN seal ON seal.object = id AND seal.layer = object.layer "
        f"WHERE id >= ? AND id < ? AND seal.object IS NULL AND {_SEALED}"
    )
    return store.db.execute(query, (first, end)).fetchall()


def known(store: Store, above: int, limit: int) -> list[ObjectChecksum]:
    """Return the valid checksums of objects with numbers greater than *above*, at most *limit*."""
    query = (
        "SELECT seal.object, seal.layer, size, digest FROM seal JOIN object ON seal.object = id AND seal.layer = object.layer "
        f"WHERE id > ? AND {_SEALED} ORDER BY id LIMIT ?"
    )
    return list(map(ObjectChecksum._make, store.db.execute(query, (above, limit))))


def holds(store: Store, seal: ObjectChecksum) -> bool:
    """Return whether the object is still sealed, and in that layer."""
    query = f"SELECT 1 FROM object WHERE id = ? AND object.layer = ? AND {_SEALED}"
    return store.db.execute(query, (seal.object, seal.layer)).fetchone() is not None


def count(store: Store) -> int:
    return int(store.db.execute("SELECT count(*) FROM seal").fetchone()[0])


def put(store: Store, found: list[ObjectChecksum]) -> None:
    for seal in found:
        if holds(store, seal):
            store.db.execute("INSERT OR REPLACE INTO seal VALUES (?, ?, ?, ?)", seal)


def size_of(store: Store, number: int) -> int:
    """Return the size of a sealed object, in bytes; 0 when it is not known."""
    row = store.db.execute("SELECT size FROM seal WHERE object = ?", (number,)).fetchone()
    return int(row[0]) if row else 0
