"""The SQLite connection and the journal: each operation is acknowledged by the journal, and many are committed at once."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from agentfs_host import syncing
from agentfsd.metadata import database_lock, operation_journal, page_checksums
from agentfsd.metadata.operation_journal import OperationJournal, Statement
from agentfsd.metadata.page_checksums import PageChecksums

JOURNAL = "-acknowledged"  # what its name ends with
_BATCH = 500  # operations between two commits
_LONG = 100  # an operation with more statements is committed instead of journaled
_CHANGES = ("INSERT", "UPDATE", "DELETE")
_DONE = "SELECT ?"  # a statement that changes nothing: its value is the number of the request that the record carries out
_UNANSWERED = "unanswered"  # key of what a commit says of such requests


class Database:
    """A database with operations. An operation lasts from begin() to keep() or undo(). It is acknowledged when keep() returns.

    Attributes:
        request: The number of the request that is being carried out, if it must not be carried out twice; else 0.
        unanswered: Requests that were carried out; after a start, also those of the daemon before. Whoever has answered one
            takes it out.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._journal: OperationJournal | None = None
        self._redo: list[Statement] | None = None  # what the operation under way has changed
        self._uncommitted = 0
        self._commits = self._synced = 0
        self.pages: PageChecksums | None = None
        self._is_closed = False
        self._lock_fd = -1
        self.request = 0
        self.unanswered: set[int] = set()
        self._says_unanswered = False

    def execute(self, text: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Run one statement and return its cursor."""
        if self._redo is not None and text.startswith(_CHANGES):
            self._redo.append((text, values))
        return self._connection.execute(text, values)

    def execute_many(self, text: str, values: list[tuple[Any, ...]]) -> None:
        """Run one statement once for each of some values."""
        if self._redo is not None:
            self._redo += [(text, each) for each in values]
        self._connection.executemany(text, values)

    @property
    def in_operation(self) -> bool:
        """Whether an operation is open."""
        return self._redo is not None

    @property
    def total_changes(self) -> int:
        """The number of rows changed since the database was opened."""
        return self._connection.total_changes

    def trace(self, tell: Callable[[str], object] | None) -> None:
        """Call *tell* with the text of every statement; None ends that."""
        self._connection.set_trace_callback(tell)

    # -- operations

    def begin(self) -> None:
        """Begin an operation."""
        if not self._connection.in_transaction:
            self.execute("BEGIN IMMEDIATE")
        self.execute("SAVEPOINT operation")
        self._redo = []

    def keep(self) -> None:
        """Acknowledge the operation. OSError or sqlite3.Error when that fails; the caller then calls undo()."""
        redo, self._redo = self._redo or [], None
        if self.request:
            redo.append((_DONE, (self.request,)))
            self.unanswered.add(self.request)
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
        """Roll back the current operation."""
        self._redo = None
        self.unanswered.discard(self.request)
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.OperationalError):  # there is no such savepoint any more
                self.execute("ROLLBACK TO operation")
                self.execute("RELEASE operation")

    @contextlib.contextmanager
    def unjournaled(self) -> Iterator[None]:
        """Commit at once what is done inside, or nothing of it: the journal cannot have changes of the tables themselves."""
        self.commit()
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK")
            raise
        self.commit()

    def commit(self) -> None:
        """Commit what the journal holds. sqlite3.Error when that fails; nothing is lost then."""
        if not self._connection.in_transaction:
            return
        try:
            if self._journal is not None:
                said = f"{self._journal.number} {self._commits + 1}"
                self.execute("INSERT OR REPLACE INTO fact VALUES ('journal', ?)", (said,))
            if self.unanswered or self._says_unanswered:
                self._say_unanswered()
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

    def _say_unanswered(self) -> None:
        """Store the requests that are carried out and not answered: the journal, which says so until now, begins anew."""
        self.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (_UNANSWERED, " ".join(map(str, self.unanswered))))
        self._says_unanswered = bool(self.unanswered)

    # -- the journal

    def open_journal(self, path: str, run: bytes, *, is_old: bool = False) -> None:
        """Replay the journal of the database at *path*, and acknowledge operations by it from now on.

        *is_old*: the journal is in an older format.
        """
        number, self._commits = self._taken_over()
        row = self.execute("SELECT value FROM fact WHERE key = ?", (_UNANSWERED,)).fetchone()
        self.unanswered = set(map(int, row[0].split())) if row else set()
        self._says_unanswered = bool(self.unanswered)
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
        """Return (number of the last journal record, commits) that the database has."""
        row = self.execute("SELECT value FROM fact WHERE key = 'journal'").fetchone()
        return parse_taken_over(row[0] if row else "")

    def note_synced(self, commits: int) -> None:
        """Record that the first *commits* commits have reached the disk."""
        self._synced = max(self._synced, commits)

    @property
    def commits(self) -> int:
        """The number of commits since the database was made."""
        return self._commits

    def _restore_batch(self) -> None:
        """Replay the journal after a failed commit that SQLite rolled back."""
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
                if text == _DONE:
                    self.unanswered.add(int(values[0]))
                self.execute(text, values)

    def open_pages(self, path: str, *, anew: bool) -> None:
        """Keep a checksum of every page of the main file from now on. On a full disk none are kept.

        *anew*: compute all checksums instead of the missing ones.
        """
        with contextlib.suppress(OSError):
            self.pages = PageChecksums(path, self._connection)
            self.execute("PRAGMA wal_autocheckpoint = 0")
            self.pages.begin(anew=anew)

    def hold(self, path: str) -> None:
        """Keep other programs out of the file until we close it. Raises BlockingIOError if one has it."""
        self._lock_fd = database_lock.hold(path)

    def close(self, path: str, make_room: Callable[[], bool] = lambda: False) -> None:
        """Close in order and remove the journal. It stays if the write-ahead log cannot be copied, even after *make_room*."""
        if self._is_closed:
            return
        has_journal = self._journal is not None
        is_done = self._end() or (make_room() and self._end())
        self.abandon(path, is_done=is_done)
        if is_done and has_journal:  # last: until SQLite has removed the log, its absence would look like damage
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + JOURNAL)

    def _end(self) -> bool:
        """Copy the log into the main file. Return whether all of it is there, with its checksums."""
        with contextlib.suppress(sqlite3.Error):
            self.commit()
            return self.pages is not None and self.pages.end()
        return False

    def abandon(self, path: str, *, is_done: bool = False) -> None:
        """Close and keep the journal. SQLite then copies its log by itself, so the checksums are removed first."""
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
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        if self.pages is not None:
            self.pages.close(in_step=is_done or os.path.exists(path + "-wal"))
            self.pages = None


def parse_taken_over(value: str) -> tuple[int, int]:
    """Parse (number of the last journal record that the database has, commits)."""
    number, _, commits = value.partition(" ")
    return int(number or 0), int(commits or 0)
