"""The audit trail on disk: a ring of records in an SQLite database of its own, bounded in bytes. It knows no listener.

Its calls may come from any thread, one at a time. What was written survives a kill of the daemon; a power failure may lose
the last records, never older ones.
"""

import contextlib
import errno
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentfsd.domain_errors import Refusal

log = logging.getLogger(__name__)

_WAL_BYTES = 1 << 20
_TRIM_SHARE = 8  # the oldest 1/8 of the records is deleted at a time
_PAGE = 1000
_EVER = 1 << 62
_ROWS = 500  # in one statement, which holds the interpreter lock and so stops the event loop
_COLUMNS = "time_ns, branch_id, branch, uid, pid, command, kind, path, old_path, name"

LOST = "lost"  # the kind of a record for those that could not be kept; ``name`` says how many, or why nobody knows:
KILLED, UNREADABLE = "killed", "unreadable"
_NOBODY = -1
_OPEN = 1  # as user_version: the database was not closed in order

_SCHEMA = """
CREATE TABLE IF NOT EXISTS record (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,  -- in the order in which things happened
    time_ns   INTEGER NOT NULL,
    branch_id TEXT NOT NULL,
    branch    TEXT NOT NULL,                      -- its name then
    uid       INTEGER NOT NULL,                   -- -1: nobody knows
    pid       INTEGER NOT NULL,                   -- 0: nobody knows
    command   TEXT NOT NULL,
    kind      TEXT NOT NULL,                      -- see core/branch_events.py
    path      BLOB NOT NULL,                      -- from the branch's root
    old_path  BLOB NOT NULL,                      -- of what was renamed
    name      TEXT NOT NULL                       -- of the snapshot, or whatever the kind is about
);
CREATE TABLE IF NOT EXISTS changed (              -- when each branch was last changed: outlives the records
    branch_id TEXT PRIMARY KEY,
    time_ns   INTEGER NOT NULL
) WITHOUT ROWID;
"""


class AuditRecord(NamedTuple):
    """One row of the table ``record``. ``id`` is 0 until the record is written."""

    time_ns: int
    branch_id: str
    branch: str
    uid: int
    pid: int
    command: str
    kind: str
    path: bytes
    old_path: bytes
    name: str
    id: int = 0


class AuditQuery(NamedTuple):
    """Select audit records. Every condition that is given must hold.

    Use ``branch_id`` for a branch that exists and ``branch`` (its name then) for one that was deleted. ``after``: only records
    with a greater id.
    """

    branch_id: str = ""
    branch: str = ""
    since_ns: int = 0
    until_ns: int = 0
    pid: int = 0
    kind: str = ""
    after: int = 0


class AuditDatabase:
    """The database file of the audit trail.

    ``gap`` says why records from before the file was opened may be missing: KILLED, UNREADABLE, or "" for no gap.

    Raises:
        Refusal: The file cannot be opened.
    """

    def __init__(self, path: str, max_bytes: int) -> None:
        self._path, self._lock = path, threading.Lock()
        self.max_bytes, self.gap = max_bytes, ""
        try:
            self._database = self._open()
        except sqlite3.DatabaseError as exc:
            try:
                if not _is_damaged(exc):
                    raise
                self._begin_anew(exc)
            except (sqlite3.Error, OSError) as why:
                raise Refusal(errno.EIO, "no-audit-trail", f"the audit trail {path} cannot be opened: {why}") from why

    def _begin_anew(self, exc: sqlite3.Error) -> None:
        """Move the damaged file aside and create an empty one. sqlite3.Error, OSError."""
        log.warning("the audit trail %s cannot be read (%s): it is moved aside and begun anew", self._path, exc)
        os.replace(self._path, self._path + ".unreadable")
        self._remove_log()
        self._database = self._open()
        self.gap = UNREADABLE

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the lock for one use of the database. A damaged database is replaced, and sqlite3.Error is raised."""
        with self._lock:
            try:
                yield
            except sqlite3.DatabaseError as exc:
                if _is_damaged(exc):
                    self._database.close()
                    with contextlib.suppress(sqlite3.Error, OSError):  # a full disk: it stays closed, and each use fails
                        self._begin_anew(exc)
                        self._insert([lost(UNREADABLE)])
                raise

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        try:
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
            database.executescript(_SCHEMA)
            if database.execute("PRAGMA user_version").fetchone()[0] == _OPEN:
                self.gap = KILLED
            database.execute(f"PRAGMA user_version = {_OPEN}")
        except BaseException:
            database.close()
            raise
        return database

    def _remove_log(self) -> None:
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path + suffix)

    def close(self) -> None:
        with self._lock:
            with contextlib.suppress(sqlite3.Error):  # a full disk: the next start reports a kill
                self._database.execute("PRAGMA user_version = 0")
            self._database.close()

    def write(self, records: Sequence[AuditRecord], changed: Mapping[str, int], gone: Iterable[str] = ()) -> None:
        """Write records in one transaction, and delete the oldest ones when the file exceeds ``max_bytes``.

        Args:
            records: The new records, oldest first.
            changed: When each branch was last changed, in ns, by branch id.
            gone: Ids of deleted branches.

        Raises:
            sqlite3.Error: Nothing was written.
        """
        with self._held():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                for begin in range(0, len(records), _ROWS):
                    self._insert(records[begin : begin + _ROWS])
                self._database.executemany("INSERT OR REPLACE INTO changed VALUES (?, ?)", changed.items())
                self._database.executemany("DELETE FROM changed WHERE branch_id = ?", [(branch_id,) for branch_id in gone])
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # SQLite has rolled back by itself when the disk is full
                    self._database.execute("ROLLBACK")
                raise
            self._trim()

    def _insert(self, records: Sequence[AuditRecord]) -> None:
        rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(records))
        values = [value for record in records for value in record[:-1]]
        self._database.execute(f"INSERT INTO record ({_COLUMNS}) VALUES {rows}", values)

    def _trim(self) -> None:
        if self.size_bytes() <= self.max_bytes:
            return
        while self.size_bytes() > self.max_bytes:
            oldest, newest = self._database.execute("SELECT min(id), max(id) FROM record").fetchone()
            if oldest is None:
                break
            self._database.execute("DELETE FROM record WHERE id < ?", (oldest + max(1, (newest - oldest) // _TRIM_SHARE),))
        self._database.executescript("PRAGMA incremental_vacuum")  # a page for each step, and execute() takes only one
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def size_bytes(self) -> int:
        """Return the size of the pages in use."""
        page, pages, free = (
            self._database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
        return int(page * (pages - free))

    def changed(self) -> dict[str, int]:
        """Return when each branch was last changed, in ns, by branch id. sqlite3.Error."""
        with self._held():
            return dict(self._database.execute("SELECT branch_id, time_ns FROM changed"))

    def read(self, question: AuditQuery, keep: Callable[[AuditRecord], bool], limit: int) -> list[AuditRecord]:
        """Return records in the order in which they were written.

        Records that mark a gap are always included, so that a reader of part of the trail knows that something is missing.

        Args:
            question: The conditions. With ``after``, the first matching records are returned, else the last.
            keep: Filters the matching records.
            limit: The most records to return.

        Raises:
            sqlite3.Error: The database cannot be read.
        """
        terms = [
            ("branch_id = ?", question.branch_id), ("branch = ?", question.branch), ("time_ns >= ?", _stored(question.since_ns)),
            ("time_ns <= ?", _stored(question.until_ns)), ("pid = ?", _stored(question.pid)), ("kind = ?", question.kind),
        ]  # fmt: skip
        given = [(term, value) for term, value in terms if value]
        wanted, values = " AND ".join(term for term, _ in given) or "1", [value for _, value in given]
        if not question.kind:  # gaps are always included
            wanted += " OR kind = ? AND time_ns BETWEEN ? AND ?"
            values += [LOST, _stored(question.since_ns), _stored(question.until_ns) or _EVER]
        records: list[AuditRecord] = []
        forward, at = bool(question.after), _stored(question.after) or _EVER
        query = (
            f"SELECT {_COLUMNS}, id FROM record WHERE id {'>' if forward else '<'} ? AND ({wanted})"
            f" ORDER BY id {'ASC' if forward else 'DESC'} LIMIT {_PAGE}"
        )
        while len(records) < limit:
            with self._held():
                page = [AuditRecord(*row) for row in self._database.execute(query, (at, *values))]
            records += [record for record in page if record.kind == LOST or keep(record)]
            if len(page) < _PAGE:
                break
            at = page[-1].id
        records = records[:limit]
        return records if forward else records[::-1]


def lost(reason: str) -> AuditRecord:
    """Return a record that marks a gap. *reason*: how many records were lost, or the reason when the number is unknown."""
    return AuditRecord(time.time_ns(), "", "", _NOBODY, 0, "", LOST, b"", b"", reason)


def _is_damaged(exc: sqlite3.Error) -> bool:
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _stored(number: int) -> int:
    """Return the nearest number that SQLite can compare with: years before 1677 and after 2262 have others in nanoseconds."""
    return max(-_EVER, min(number, _EVER))
