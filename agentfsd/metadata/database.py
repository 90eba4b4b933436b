"""The connection to SQLite, and the journal before it: operations are acknowledged one by one and committed many at once."""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from typing import Any

from agentfs_host import syncing
from agentfsd.metadata import operation_journal, page_checksums
from agentfsd.metadata.operation_journal import OperationJournal, Statement
from agentfsd.metadata.page_checksums import PageChecksums

JOURNAL = "-acknowledged"  # what its name ends with
_BATCH = 500  # operations between two commits
_LONG = 100  # statements of one operation, above which the journal is no use
_CHANGES = ("INSERT", "UPDATE", "DELETE")


class Database:
    """An operation is what stands between begin() and keep() or undo(); it is acknowledged when keep() returns."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._journal: OperationJournal | None = None
        self._redo: list[Statement] | None = None  # what the operation under way has changed
        self._uncommitted = 0
        self._commits = self._synced = 0
        self.pages: PageChecksums | None = None
        self._is_closed = False

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
                said = f"{self._journal.number} {self._commits + 1}"
                self.execute("INSERT OR REPLACE INTO fact VALUES ('journal', ?)", (said,))
            self.execute("COMMIT")
        except sqlite3.Error:
            self._restore_batch()
            raise
        self._uncommitted = 0
        if self._journal is not None:
            self._commits += 1
            with contextlib.suppress(OSError):  # its chain goes on then
                self._journal.reset(self._commits, self._synced)
            if self.pages is not None:
                self.pages.after_commit()

    # -- the journal

    def open_journal(self, path: str, run: bytes, *, is_old: bool = False) -> None:
        """From now on operations are acknowledged by the journal of the database at *path*; replays what is in it. *is_old*: it
        is of an older version."""
        number, self._commits = self._taken_over()
        old = operation_journal.read_old(path + JOURNAL, number) if is_old else []
        self._apply(old)
        if self._connection.in_transaction:
            self.execute("INSERT OR REPLACE INTO fact VALUES ('journal', ?)", (f"{number + len(old)} {self._commits}",))
            self.execute("COMMIT")
        self._journal = OperationJournal(path + JOURNAL, number + len(old), run)
        self._replay()
        try:
            self.commit()
            self._journal.reset(self._commits, self._synced)
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL:
                raise
            # the journal goes on holding it, as in keep()
        self._journal.sync()
        syncing.sync_directory(os.path.dirname(path))

    def _taken_over(self) -> tuple[int, int]:
        """(number of the last record, commits)."""
        row = self.execute("SELECT value FROM fact WHERE key = 'journal'").fetchone()
        return parse_taken_over(row[0] if row else "")

    def note_synced(self, commits: int) -> None:
        """So many commits have reached the disk."""
        self._synced = max(self._synced, commits)

    @property
    def commits(self) -> int:
        """How many there were since the database was made."""
        return self._commits

    def _restore_batch(self) -> None:
        """After a commit that failed: some failures make SQLite roll back, and the journal knows what was acknowledged."""
        if self._connection.in_transaction or self._journal is None:
            return
        self._journal.number = self._taken_over()[0]
        self._replay()

    def _replay(self) -> None:
        assert self._journal is not None
        self._apply(self._journal.records())

    def _apply(self, records: list[operation_journal.Record]) -> None:
        if records:
            self.execute("BEGIN IMMEDIATE")
        for statements in records:
            for text, values in statements:
                self.execute(text, values)

    def open_pages(self, path: str, *, anew: bool) -> None:
        """From now on every page of the main file has a checksum. On a full disk there are none. *anew*: those there are not."""
        with contextlib.suppress(OSError):
            self.pages = PageChecksums(path, self._connection)
            self.execute("PRAGMA wal_autocheckpoint = 0")
            self.pages.begin(anew=anew)

    def close(self, path: str, make_room: Callable[[], bool] = lambda: False) -> None:
        """The journal goes with an orderly end; where the log could not be taken up, even after *make_room*, it stays."""
        if self._is_closed:
            return
        has_journal = self._journal is not None
        is_done = self._end() or (make_room() and self._end())
        self.abandon(path, is_done=is_done)
        if is_done and has_journal:  # last: until SQLite has removed the log, its absence would look like damage
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + JOURNAL)

    def _end(self) -> bool:
        """Whether the main file has everything now, and its checksums say so."""
        with contextlib.suppress(sqlite3.Error):
            self.commit()
            return self.pages is not None and self.pages.end()
        return False

    def abandon(self, path: str, *, is_done: bool = False) -> None:
        """Closes; what is in the journal stays there. SQLite then takes the log up by itself: the checksums go before."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._connection.in_transaction:
            self._connection.rollback()
        if self.pages is None and os.path.exists(path + page_checksums.SUFFIX):
            with contextlib.suppress(OSError):
                self.pages = PageChecksums(path, self._connection)
        is_done = is_done or self.pages is None or self.pages.checkpoint()
        self._connection.close()
        if self.pages is not None:
            self.pages.close(in_step=is_done or os.path.exists(path + "-wal"))
            self.pages = None


def parse_taken_over(value: str) -> tuple[int, int]:
    """What the database says of the journal: (number of its last record that it has, commits)."""
    number, _, commits = value.partition(" ")
    return int(number or 0), int(commits or 0)
