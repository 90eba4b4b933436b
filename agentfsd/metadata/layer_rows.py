"""The queries of layers, branches and snapshots: what history looks like in the database."""

import errno
import json
import sqlite3
from collections.abc import Iterable, Iterator

from agentfsd.domain_errors import Refusal
from agentfsd.metadata import conflict_rows
from agentfsd.metadata.row_store import GARBAGE, Store
from agentfsd.metadata.rows import WHITEOUT, BranchRow, SnapshotRow, UndoRow, is_whiteout

_PAGE = 500  # rows that are looked at in one step of what takes long
_BRANCH = f"SELECT {', '.join(BranchRow._fields)} FROM branch"
_SNAPSHOT = f"SELECT {', '.join(SnapshotRow._fields)} FROM snapshot"
_SNAPSHOT_INSERT = f"INSERT INTO snapshot ({', '.join(SnapshotRow._fields)}) VALUES ({', '.join('?' * len(SnapshotRow._fields))})"


def new_layer(store: Store, parent: int, base: str = "") -> int:
    """Make an empty layer. *base*: the frozen base that it shows; "" for the same as its parent."""
    number = store.next_id("layer")
    store.db.execute("INSERT INTO layer (id, parent, base) VALUES (?, ?, ?)", (number, parent, base))
    return number


def bases(store: Store) -> dict[int, str]:
    """Return the frozen base of each live layer that has one of its own."""
    return dict(store.db.execute("SELECT id, rtrim(base, '*') FROM layer WHERE base != '' AND dead = 0"))


def mixed_layers(store: Store) -> set[int]:
    """Return the layers with a frozen base that have rows, too, which were made before they had it."""
    return {row[0] for row in store.db.execute("SELECT id FROM layer WHERE base LIKE '%*'")}


def has_base(store: Store, layer: int) -> bool:
    """Return whether a layer has a frozen base of its own."""
    return store.db.execute("SELECT 1 FROM layer WHERE id = ? AND base != ''", (layer,)).fetchone() is not None


def parents(store: Store) -> dict[int, int]:
    """Return the parent of every live layer."""
    return dict(store.db.execute("SELECT id, parent FROM layer WHERE dead = 0"))


def chain(store: Store, layer: int) -> tuple[int, ...]:
    """Return a layer and its ancestors, newest first, without the bare lower (0)."""
    rows = store.db.execute(
        "WITH RECURSIVE up(id, parent) AS (SELECT id, parent FROM layer WHERE id = ? "
        "UNION ALL SELECT layer.id, layer.parent FROM layer JOIN up ON layer.id = up.parent) SELECT id FROM up",
        (layer,),
    )
    return tuple(row[0] for row in rows)


def is_empty(store: Store, layer: int) -> bool:
    row = store.db.execute(
        "SELECT EXISTS (SELECT 1 FROM inode WHERE layer = ?) OR EXISTS (SELECT 1 FROM dentry WHERE layer = ?)"
        " OR EXISTS (SELECT 1 FROM decision WHERE layer = ?)",
        (layer, layer, layer),
    ).fetchone()
    return not row[0]


def hold_more(store: Store, layers: Iterable[int], count: int) -> bool:
    """Return whether these layers hold more than *count* files and names."""
    for layer in layers:
        for table in ("inode", "dentry"):
            some = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE layer = ? LIMIT ?)"
            count -= store.db.execute(some, (layer, count + 1)).fetchone()[0]
            if count < 0:
                return True
    return False


def counting_entries(store: Store, layers: list[int]) -> Iterator[int]:
    """Count the stored changes in some layers, step by step. The caller adds up the numbers.

    Changes are files, new directories and whiteouts. A lower directory in which something changed is not counted itself.
    """
    for layer in layers:
        rows, last = _PAGE, 0
        while rows == _PAGE:
            found, last, rows = store.db.execute(_SOME_INODES, (layer, last, _PAGE)).fetchone()
            yield found
        for names in names_in(store, layer):
            yield sum(is_whiteout(child) for _, _, child in names)


def names_in(store: Store, layer: int) -> Iterator[list[tuple[int, bytes, int]]]:
    """Yield (directory, name, child) of every row of a layer, in steps."""
    at = (0, b"")
    while rows := store.db.execute(_SOME_NAMES, (layer, *at, _PAGE)).fetchall():
        yield rows
        at = rows[-1][:2]


def files_in(store: Store, layer: int) -> Iterator[list[int]]:
    """Yield the inodes of a layer that are no directories and have names, in steps."""
    last = 0
    while rows := store.db.execute(_SOME_FILES, (layer, last, _PAGE)).fetchall():
        yield [row[0] for row in rows]
        last = rows[-1][0]


_SOME_FILES = "SELECT id FROM inode WHERE layer = ? AND id > ? AND nlink > 0 AND mode & 61440 != 16384 ORDER BY id LIMIT ?"
_SOME_INODES = (
    "SELECT count(*) FILTER (WHERE nlink > 0 AND NOT (mode & 61440 = 16384 AND lower_path IS NOT NULL)), max(id), count(*)"
    " FROM (SELECT id, nlink, mode, lower_path FROM inode WHERE layer = ? AND id > ? ORDER BY id LIMIT ?)"
)
_SOME_NAMES = "SELECT dir, name, child FROM dentry WHERE layer = ? AND (dir, name) > (?, ?) ORDER BY dir, name LIMIT ?"


def possible_copies(store: Store, layer: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield, in steps, files with content in a layer that changed none of their attributes and names.

    Yields:
        (object, size, mtime in ns) with the size and time of the lower's file. If the object still has both, its content is the
        lower's.
    """
    last = 0
    while True:
        rows = store.db.execute(_SOME_COPIES, (layer, last, _PAGE)).fetchall()
        yield [(content, size, mtime_ns) for _, is_one, content, size, mtime_ns in rows if is_one]
        if len(rows) < _PAGE:
            return
        last = rows[-1][0]


_SOME_COPIES = (
    "SELECT id, content != 0 AND nlink > 0 AND lower_path IS NOT NULL AND ctime_ns = lower_ctime,"
    " content, lower_size, lower_mtime FROM inode WHERE layer = ? AND id > ? ORDER BY id LIMIT ?"
)


def branches(store: Store) -> list[BranchRow]:
    return list(map(BranchRow._make, store.db.execute(_BRANCH + " ORDER BY id")))


def put_branch(store: Store, row: BranchRow) -> None:
    try:
        store.db.execute("INSERT INTO branch VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    except sqlite3.IntegrityError as exc:
        raise _taken("branch", row.name) from exc


def set_head(store: Store, branch_id: str, head: int) -> None:
    store.db.execute("UPDATE branch SET head = ? WHERE id = ?", (head, branch_id))


def set_base_layer(store: Store, branch_id: str, layer: int) -> None:
    store.db.execute("UPDATE branch SET base_layer = ? WHERE id = ?", (layer, branch_id))


def rename_branch(store: Store, branch_id: str, name: str) -> None:
    try:
        store.db.execute("UPDATE branch SET name = ? WHERE id = ?", (name, branch_id))
    except sqlite3.IntegrityError as exc:
        raise _taken("branch", name) from exc


def delete_branch(store: Store, branch_id: str) -> None:
    store.db.execute("DELETE FROM branch WHERE id = ?", (branch_id,))


def snapshots(store: Store) -> list[SnapshotRow]:
    return list(map(SnapshotRow._make, store.db.execute(_SNAPSHOT + " ORDER BY id")))


def put_snapshot(store: Store, row: SnapshotRow) -> None:
    try:
        store.db.execute(_SNAPSHOT_INSERT, row)
    except sqlite3.IntegrityError as exc:
        raise _taken("snapshot", row.name) from exc


def set_snapshot_counts(store: Store, snapshot_id: str, file_count: int, bytes_changed: int) -> None:
    store.db.execute(
        "UPDATE snapshot SET file_count = ?, bytes_changed = ? WHERE id = ?", (file_count, bytes_changed, snapshot_id)
    )


def delete_snapshot(store: Store, snapshot_id: str, parent: str) -> None:
    """Delete a snapshot. Its children get its parent."""
    store.db.execute("DELETE FROM snapshot WHERE id = ?", (snapshot_id,))
    store.db.execute("UPDATE snapshot SET parent = ? WHERE parent = ?", (parent, snapshot_id))


def merges(store: Store) -> dict[int, list[int]]:
    """Return the merged sealed layers of other branches, by the layer they were merged into."""
    sources: dict[int, list[int]] = {}
    for layer, other in store.db.execute("SELECT layer, other FROM merged"):
        sources.setdefault(layer, []).append(other)
    return sources


def has_merges(store: Store, layer: int) -> bool:
    """Return whether layers of other branches were merged into a layer."""
    return store.db.execute("SELECT 1 FROM merged WHERE layer = ? LIMIT 1", (layer,)).fetchone() is not None


def put_merge(store: Store, layer: int, other: int) -> None:
    store.db.execute("INSERT OR IGNORE INTO merged (layer, other) VALUES (?, ?)", (layer, other))


# -- what can be undone


def undo_rows(store: Store) -> list[UndoRow]:
    """Return the undo log, oldest entry first."""
    rows = store.db.execute("SELECT id, kind, branch_id, branch, snapshot FROM deed ORDER BY id")
    return [UndoRow(row[0], row[1], row[2], BranchRow(*json.loads(row[3])), row[4]) for row in rows]


def put_undo_entry(store: Store, kind: str, branch: BranchRow, snapshot: str) -> UndoRow:
    row = (kind, branch.id, json.dumps(branch), snapshot)
    number = store.next_id("deed")
    store.db.execute("INSERT INTO deed (id, kind, branch_id, branch, snapshot) VALUES (?, ?, ?, ?, ?)", (number, *row))
    return UndoRow(number, kind, branch.id, branch, snapshot)


def delete_undo_entry(store: Store, entry_id: int) -> None:
    store.db.execute("DELETE FROM deed WHERE id = ?", (entry_id,))


def mark_dead(store: Store, layer: int) -> None:
    store.db.execute("UPDATE layer SET dead = 1 WHERE id = ?", (layer,))


def dead(store: Store) -> list[int]:
    return [row[0] for row in store.db.execute("SELECT id FROM layer WHERE dead = 1")]


def reap(store: Store, layer: int, limit: int) -> bool:
    """Delete up to *limit* rows of each table from a dead layer. Return True when the layer is gone."""
    gone = True
    for table, key in (("dentry", "dir, name, layer"), ("inode", "id, layer"), ("origin", "dir, name, layer")):
        match = f"({key}) IN (SELECT {key} FROM {table} WHERE layer = ? LIMIT ?)"
        if store.db.execute(f"DELETE FROM {table} WHERE {match}", (layer, limit)).rowcount:
            gone = False
    if gone:
        store.db.execute("DELETE FROM layer WHERE id = ?", (layer,))
        store.db.execute("DELETE FROM merged WHERE layer = ?", (layer,))
        store.db.execute("DELETE FROM merged WHERE other = ?", (layer,))
    return gone


def merge_down(store: Store, layer: int, child: int) -> list[int]:
    """Move the rows of *layer* to its only child, whose own rows win, and delete the layer.

    Returns:
        The objects without any reference left; they are marked as garbage.
    """
    db = store.db
    dropped = [
        row[0]
        for row in db.execute(
            "SELECT old.content FROM inode AS old JOIN inode AS new ON new.id = old.id AND new.layer = ? "
            "JOIN object ON object.id = old.content AND object.layer = ? "
            "WHERE old.layer = ? AND new.content != old.content",
            (child, layer, layer),
        )
    ]
    dropped += [
        row[0]
        for row in db.execute(
            "SELECT old.base FROM origin AS old JOIN origin AS new ON new.dir = old.dir AND new.name = old.name "
            "AND new.layer = ? WHERE old.layer = ? AND old.base != 0",
            (child, layer),
        )
    ]
    if not is_empty(store, layer):
        db.execute("UPDATE layer SET base = rtrim(base, '*') || '*' WHERE id = ? AND base != ''", (child,))
    for table in ("dentry", "inode", "origin"):
        db.execute(f"UPDATE OR IGNORE {table} SET layer = ? WHERE layer = ?", (child, layer))
        db.execute(f"DELETE FROM {table} WHERE layer = ?", (layer,))
    for number in dropped:
        store.put_object(number, GARBAGE)
    db.execute("UPDATE object SET layer = ? WHERE layer = ?", (child, layer))
    db.execute("UPDATE layer SET base = (SELECT base FROM layer WHERE id = ?) WHERE id = ? AND base = ''", (layer, child))
    db.execute("UPDATE layer SET parent = (SELECT parent FROM layer WHERE id = ?) WHERE id = ?", (layer, child))
    db.execute("DELETE FROM layer WHERE id = ?", (layer,))
    db.execute("UPDATE OR IGNORE merged SET layer = ? WHERE layer = ?", (child, layer))
    db.execute("DELETE FROM merged WHERE layer = ?", (layer,))
    conflict_rows.merge_down(store, layer, child)
    db.execute("DELETE FROM merged WHERE other = ?", (layer,))  # that state is no more: what is above it holds more
    return dropped


def idle_whiteouts(store: Store, layer: int, child: int) -> list[tuple[int, bytes]]:
    """Return (directory, name) of the child's whiteouts that hide a name of *layer* and of no other layer."""
    return list(
        store.db.execute(
            "SELECT new.dir, new.name FROM dentry AS new JOIN dentry AS old ON old.dir = new.dir AND old.name = new.name "
            f"AND old.layer = ? WHERE new.layer = ? AND new.child = {WHITEOUT} AND NOT EXISTS "
            "(SELECT 1 FROM dentry AS other WHERE other.dir = new.dir AND other.name = new.name AND other.layer NOT IN (?, ?))",
            (layer, child, layer, child),
        )
    )


def drop_tombstones(store: Store, layer: int) -> None:
    """Delete the rows of removed inodes that no other layer knows, with the names beneath a removed directory.

    The row of a removed lower directory stays: it tells which names the branch had seen there (core/seen_names.py).
    """
    gone = (
        "SELECT id FROM inode AS gone WHERE layer = ? AND nlink = 0 AND (mode & 61440 != 16384 OR lower_path IS NULL) "
        "AND NOT EXISTS (SELECT 1 FROM inode AS other WHERE other.id = gone.id AND other.layer != gone.layer)"
    )
    store.db.execute(f"DELETE FROM dentry WHERE layer = ? AND dir IN ({gone})", (layer, layer))
    store.db.execute(f"DELETE FROM inode WHERE layer = ? AND id IN ({gone})", (layer, layer))


def times_to_stamp(store: Store, layer: int, child: int) -> list[tuple[int, int, int]]:
    """Return (object, atime_ns, mtime_ns) of the child's rows whose objects the child would get in a merge."""
    return list(
        store.db.execute(
            "SELECT content, atime_ns, mtime_ns FROM inode JOIN object ON object.id = content AND object.layer = ? "
            "WHERE inode.layer = ?",
            (layer, child),
        )
    )


def contents_of(store: Store, layer: int) -> list[tuple[int, int]]:
    """Return (inode, object) of every object that a layer owns."""
    query = "SELECT DISTINCT inode.id, content FROM inode JOIN object ON object.id = content AND object.layer = ?"
    return list(store.db.execute(query, (layer,)))


def _taken(kind: str, name: str) -> Refusal:
    return Refusal(errno.EEXIST, f"{kind}-exists", f"there is a {kind} named {name!r} already", "choose another name")
