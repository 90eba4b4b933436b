"""The connection to SQLite, and the journal before it: operations are acknowledged one by one and committed many at once."""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from typing import Any

from agentfsd.metadata.journal import Journal, Statement

_JOURNAL = "-acknowledged"
_BATCH = 500  # operations between two commits
_LONG = 100  # statements of one operation, above which the journal is no use
_CHANGES = ("INSERT", "UPDATE", "DELETE")


class Database:
    """An operation is what stands between begin() and keep() or undo(); it is acknowledged when keep() returns."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._journal: Journal | None = None
        self._redo: list[Statement] | None = None  # what the operation under way has changed
        self._uncommitted = 0

    def execute(self, text: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        if self._redo is not None and text.startswith(_CHANGES):
            self._redo.append((text, values))
        return self._connection.execute(text, values)

    @property
    def in_operation(self) -> bool:
        return self._redo is not None

    @property
    def total_changes(self) -> int:
        """Rows changed since the database was opened."""
        return self._connection.total_changes

    def trace(self, tell: Callable[[str], object] | None) -> None:
        """Has every statement told, for those who count them."""
        self._connection.set_trace_callback(tell)

    # -- operations

    def begin(self) -> None:
        if not self._connection.in_transaction:
            self.execute("BEGIN IMMEDIATE")
        self.execute("SAVEPOINT operation")
        self._redo = []

    def keep(self) -> None:
        """Acknowledges the operation; OSError or sqlite3.Error when that is impossible, then undo() it."""
        redo, self._redo = self._redo or [], None
        if self._journal is None or len(redo) > _LONG or not self._journal.append(redo):
            self.commit()
            return
        self.execute("RELEASE operation")
        self._uncommitted += 1
        if self._uncommitted >= _BATCH:
            self._uncommitted = 0  # with a full disk it is not tried again each time: to take a batch up anew takes long
            with contextlib.suppress(sqlite3.Error):  # the journal has it all; the next commit may have more luck
                self.commit()

    def undo(self) -> None:
        """Takes back what the operation under way has changed."""
        self._redo = None
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.OperationalError):  # there is no such savepoint any more
                self.execute("ROLLBACK TO operation")
                self.execute("RELEASE operation")

    def commit(self) -> None:
        """Takes over what the journal holds; sqlite3.Error when that fails, and nothing is lost."""
        if not self._connection.in_transaction:
            return
        try:
            if self._journal is not None:
                self.execute("INSERT OR REPLACE INTO fact VALUES ('journal', ?)", (str(self._journal.number),))
            self.execute("COMMIT")
        except sqlite3.Error:
            self._restore_batch()
            raise
        self._uncommitted = 0
        if self._journal is not None:
            self._journal.reset()

    # -- the journal

    def open_journal(self, path: str) -> None:
        """From now on operations are acknowledged by the journal of the database at *path*; replays what is in it."""
        self._journal = Journal(path + _JOURNAL, self._taken_over())
        self._replay()
        try:
            self.commit()
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL:
                raise
            # the journal goes on holding it, as in keep()

    def _taken_over(self) -> int:
        row = self.execute("SELECT value FROM fact WHERE key = 'journal'").fetchone()
        return int(row[0]) if row else 0

    def _restore_batch(self) -> None:
        """After a commit that failed: some failures make SQLite roll back, and the journal knows what was acknowledged."""
        if self._connection.in_transaction or self._journal is None:
            return
        self._journal.number = self._taken_over()
        self._replay()

    def _replay(self) -> None:
        assert self._journal is not None
        records = self._journal.records()
        if records:
            self.execute("BEGIN IMMEDIATE")
        for statements in records:
            for text, values in statements:
                self.execute(text, values)

    def close(self, path: str) -> None:
        """The journal goes with an orderly end; when the last commit fails, it stays."""
        if self._journal is not None:
            with contextlib.suppress(sqlite3.Error):
                self.commit()
                os.unlink(path + _JOURNAL)
            self._journal.close()
            self._journal = None
        self._connection.close()
