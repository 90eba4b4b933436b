"""The queries of notes about branches, and of what sessions were told of them."""

from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import NoteRow

_LAST = "last note"
_COLUMNS = ", ".join(NoteRow._fields)
_SELECT = f"SELECT {_COLUMNS} FROM note"
_INSERT = f"INSERT INTO note ({_COLUMNS}) VALUES ({', '.join('?' * len(NoteRow._fields))})"
_UNTOLD = (
    "branch_id = ? AND answers = 0 AND resolved_ns = 0 "
    "AND news > coalesce((SELECT news FROM told WHERE branch_id = ? AND session = ?), 0)"
)
_TELL = (
    "INSERT INTO told (branch_id, session, news) VALUES (?, ?, ?) "
    "ON CONFLICT (branch_id, session) DO UPDATE SET news = max(news, excluded.news)"
)
_OLD_SESSIONS = (
    "DELETE FROM told WHERE branch_id = ? AND session NOT IN "
    "(SELECT session FROM told WHERE branch_id = ? ORDER BY news DESC LIMIT ?)"
)


def find(store: Store, note_id: int) -> NoteRow | None:
    """Return a note or an answer; None if there is none."""
    row = store.db.execute(f"{_SELECT} WHERE id = ?", (note_id,)).fetchone()
    return None if row is None else NoteRow._make(row)


def read(store: Store, branch_id: str) -> list[NoteRow]:
    """Return the notes of a branch and the answers to them, oldest first."""
    return list(map(NoteRow._make, store.db.execute(f"{_SELECT} WHERE branch_id = ? ORDER BY id", (branch_id,))))


def answers(store: Store, note: NoteRow) -> list[NoteRow]:
    """Return the answers to a note, oldest first."""
    query = f"{_SELECT} WHERE branch_id = ? AND answers = ? ORDER BY id"
    return list(map(NoteRow._make, store.db.execute(query, (note.branch_id, note.id))))


def amount(store: Store, branch_id: str) -> tuple[int, int]:
    """Return how many notes and answers a branch has, and their size in bytes."""
    query = "SELECT count(*), coalesce(sum(size), 0) FROM note WHERE branch_id = ?"
    count, size = store.db.execute(query, (branch_id,)).fetchone()
    return int(count), int(size)


def open_counts(store: Store) -> dict[str, int]:
    """Return the number of open notes by branch id, of branches that have some."""
    return dict(store.db.execute("SELECT branch_id, count(*) FROM note WHERE answers = 0 AND resolved_ns = 0 GROUP BY branch_id"))


def next_number(store: Store) -> int:
    """Return a number that was never used before, in the open transaction. None is left out, as people type them."""
    number = int(store.value(_LAST) or 0) + 1
    store.put_value(_LAST, str(number))
    return number


def put(store: Store, row: NoteRow) -> None:
    """Store a note or an answer, in the open transaction."""
    store.db.execute(_INSERT, row)


def change(store: Store, row: NoteRow) -> None:
    """Store when and by whom a note was settled, and its news, in the open transaction."""
    query = "UPDATE note SET resolved_ns = ?, resolved_by = ?, news = ? WHERE id = ?"
    store.db.execute(query, (row.resolved_ns, row.resolved_by, row.news, row.id))


def delete(store: Store, note: NoteRow) -> None:
    """Delete a note and the answers to it, in the open transaction."""
    store.db.execute("DELETE FROM note WHERE branch_id = ? AND answers = ?", (note.branch_id, note.id))
    store.db.execute("DELETE FROM note WHERE id = ?", (note.id,))


def untold_count(store: Store, branch_id: str, session: str) -> int:
    """Return how many open notes of a branch have news of which a session was not told."""
    query = f"SELECT count(*) FROM note WHERE {_UNTOLD}"
    return int(store.db.execute(query, (branch_id, branch_id, session)).fetchone()[0])


def untold(store: Store, branch_id: str, session: str) -> list[tuple[int, bytes]]:
    """Return the ids and paths of these notes, the oldest news first."""
    query = f"SELECT id, path FROM note WHERE {_UNTOLD} ORDER BY news"
    return list(store.db.execute(query, (branch_id, branch_id, session)))


def tell(store: Store, branch_id: str, session: str, mark: int, keep: int) -> None:
    """Store that a session was told of the news below *mark*, in the open transaction. The last *keep* sessions stay."""
    store.db.execute(_TELL, (branch_id, session, mark))
    store.db.execute(_OLD_SESSIONS, (branch_id, branch_id, keep))


def branches(store: Store) -> set[str]:
    """Return the ids of the branches that have rows here."""
    return {row[0] for row in store.db.execute("SELECT branch_id FROM note UNION SELECT branch_id FROM told")}


def delete_branch(store: Store, branch_id: str) -> None:
    """Delete all rows of a branch, in the open transaction."""
    store.db.execute("DELETE FROM note WHERE branch_id = ?", (branch_id,))
    store.db.execute("DELETE FROM told WHERE branch_id = ?", (branch_id,))
