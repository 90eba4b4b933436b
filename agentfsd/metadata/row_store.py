"""The SQLite database of one state directory: opening, numbers, and the queries of files, names and objects.

It stores what core tells it and knows nothing of overlay rules. One process holds it at a time. transaction.py has what surrounds
each write.
"""

import contextlib
import errno
import os
import sqlite3
import stat
import threading
from collections import Counter
from collections.abc import Container, Iterator
from typing import Any

from agentfs_host import syncing
from agentfsd.domain_errors import NO_ROOM, Refusal
from agentfsd.metadata import inspection
from agentfsd.metadata.database import Database
from agentfsd.metadata.database_refusals import damaged, in_use, no_room, unreadable, why_not_written
from agentfsd.metadata.inspection import Findings
from agentfsd.metadata.reserve import Reserve
from agentfsd.metadata.rows import InodeRow, LowerUse, Touch
from agentfsd.metadata.schema import DDL, MIGRATIONS, SCHEMA_VERSION
from agentfsd.metadata.transaction import Transaction

GARBAGE = 0  # the layer of an object that is to be removed from the backstore
_COUNTER_BLOCK = 1000
_BUSY_S = 1.0  # no other process should use the database

INODE_COLUMNS = ", ".join(InodeRow._fields)
_INODE_UPSERT = f"INSERT OR REPLACE INTO inode ({INODE_COLUMNS}) VALUES ({', '.join('?' * len(InodeRow._fields))})"
_DENTRY_UPSERT = "INSERT OR REPLACE INTO dentry VALUES (?, ?, ?, ?)"
_OBJECT_UPSERT = "INSERT OR REPLACE INTO object VALUES (?, ?)"
_INODE_SELECT = f"SELECT {INODE_COLUMNS} FROM inode WHERE id = ?"
_INODE_ORIGIN = f"SELECT {INODE_COLUMNS} FROM inode WHERE linked = 1 AND lower_ino = ? AND lower_dev = ?"

_ERRNO = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_READONLY: errno.EROFS, sqlite3.SQLITE_NOMEM: errno.ENOMEM}


class Store:
    """Typed access to the tables. Every write belongs inside ``with store.transaction()``.

    Operations are acknowledged when the journal has them; the database commits many at once.
    """

    def __init__(self, db: sqlite3.Connection, path: str, findings: Findings, reserve: Reserve) -> None:
        self.db = Database(db)
        self._path = path
        self._next: dict[str, tuple[int, int]] = {}
        self._wal_fd = -1
        self._syncing = threading.Lock()
        self._whole: Transaction | None = None  # see as_one()
        self.reserve = reserve
        self.findings = findings
        self.first_object = 0  # of those that the daemon before this one may have made
        self.touched: set[Touch] | None = None  # what was written since take_touched(); None: nobody takes it
        self.writes = Counter[int]()  # of inodes and names, by layer: who reads a layer in steps sees whether it held still

    @classmethod
    def open(cls, path: str, lower_identity: str, *, mends: bool = False) -> "Store":
        """Open or create the database at *path*. The database ":memory:" ends with the process.

        Args:
            path: The database file.
            lower_identity: The lower that the state belongs to.
            mends: Open a damaged database too, and continue with what is there.

        Raises:
            Refusal: It was made for another lower or by a newer version, cannot be read, or is damaged (without *mends*).
        """
        findings = inspection.inspect(path) if path != ":memory:" else Findings()
        if findings.damage and not mends:
            raise damaged(path, findings.damage)
        findings.is_proven = findings.is_proven and not mends
        reserve = Reserve("" if path == ":memory:" else path + "-reserve")  # before: the database may need that room
        db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=256)
        store = cls(db, path, findings, reserve)
        try:
            store._configure()
            version = store._version()
            if version:
                store._check_lower(lower_identity)
                store._open_journal()  # before: its statements are for the tables as they are
            store._migrate(version, lower_identity)
            if path != ":memory:":
                store._open_files()
                store.db.hold(path)
            store.reserve.keep()
        except sqlite3.DatabaseError as exc:
            store.db.abandon(path)
            raise unreadable(path, exc) from exc
        except BlockingIOError:
            store.db.abandon(path)
            raise in_use(path) from None
        except OSError as exc:
            store.db.abandon(path)
            raise (no_room(path) if exc.errno in NO_ROOM else exc) from exc
        except BaseException:
            store.db.abandon(path)
            raise
        return store

    def _open_journal(self) -> None:
        if self._path != ":memory:":
            self.db.open_journal(self._path, inspection.this_run(self._path), is_old=self.findings.has_old_journal)

    def _open_files(self) -> None:
        """Open the other files beside the database."""
        self.db.open_pages(self._path, anew=bool(self.findings.damage))
        self.first_object = int(self.value("first object") or 0)
        with contextlib.suppress(OSError), self.transaction():  # a full disk: what is there is a lower bound still
            self.put_value("first object", str(self.reserved("object")))

    def _configure(self) -> None:
        # Exclusive: nobody else reads this file while we run, and the WAL index needs no shared memory.
        self.db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.db.execute("PRAGMA journal_mode = WAL")
        # A commit is in the WAL file, so SIGKILL cannot lose it; sync() below is for power loss.
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.execute("PRAGMA cache_size = -65536")
        self.db.execute("PRAGMA temp_store = MEMORY")  # what an operation might have to take back needs no file

    def _version(self) -> int:
        """Return the version of the database's schema, 0 for a new database. Refusal for one that we do not know."""
        version = int(self.db.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA_VERSION:
            raise Refusal(
                errno.EPROTO,
                "newer-state",
                f"{self._path} was written by a newer agentfsd (schema {version}, this one knows {SCHEMA_VERSION})",
                "use that version, or another --state directory",
            )
        return version

    def _migrate(self, version: int, lower_identity: str) -> None:
        if version == SCHEMA_VERSION:
            return
        with self.db.unjournaled():
            if version == 0:
                _run_script(self.db, DDL)
                self.db.execute("INSERT INTO fact VALUES ('lower', ?)", (lower_identity,))
            for step in range(version or SCHEMA_VERSION, SCHEMA_VERSION):
                _run_script(self.db, MIGRATIONS[step])
            self.db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        if version == 0:
            self._sync_new()
            self._open_journal()

    def _sync_new(self) -> None:
        """Sync a new database before anything refers to it: contents without a database could not be recovered."""
        if self._path != ":memory:":
            with open(self._path, "rb") as file:
                os.fsync(file.fileno())
            self.sync()

    def _check_lower(self, lower_identity: str) -> None:
        made_for = self.value("lower")
        if made_for != lower_identity:
            raise Refusal(
                errno.EINVAL,
                "other-lower",
                f"the state {self.place} belongs to {made_for}, not to {lower_identity}",
                "choose another --state directory for this lower",
            )

    def commit(self) -> None:
        """Commit what the journal holds to the database. sqlite3.Error when that fails; nothing is lost then."""
        self.db.commit()

    def close(self) -> None:
        if self._wal_fd >= 0:
            os.close(self._wal_fd)
            self._wal_fd = -1
        self.db.close(self._path, self.reserve.use)
        self.reserve.keep()  # of what the journal has just given back: the next start may find nothing else

    @property
    def place(self) -> str:
        """The path of the state directory."""
        return os.path.dirname(self._path)

    def forget_ids(self) -> None:
        """Reserve a new block of numbers at the next use."""
        self._next.clear()

    def as_oserror(self, exc: sqlite3.Error) -> OSError:
        """Return the error as an OSError, with the file system's errno if it can be determined."""
        code = getattr(exc, "sqlite_errorcode", 0)
        number = _ERRNO.get(code & 0xFF, errno.EIO)
        if code == sqlite3.SQLITE_IOERR_WRITE and self._path != ":memory:":
            number = why_not_written(self.place) or number
        return OSError(number, f"the metadata database failed: {exc}")

    def transaction(self) -> Transaction:
        """Return a context manager that runs its block as one transaction. Only within as_one() may it be within another one."""
        return Transaction(self.db, self.as_oserror, self.forget_ids, self._whole)

    @contextlib.contextmanager
    def as_one(self) -> Iterator[Transaction]:
        """Make all transactions of the block one: all of them are kept, or none is."""
        with self.transaction() as whole:
            self._whole = whole
            try:
                yield whole
            finally:
                self._whole = None

    @property
    def whole(self) -> Transaction | None:
        """The transaction of as_one(), of which the present one is a part, if it is."""
        return self._whole

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Let the transactions of the block not count as what the present request asks for."""
        request, self.db.request = self.db.request, 0
        try:
            yield
        finally:
            self.db.request = request

    def sync(self) -> None:
        """Make every committed transaction survive a power failure. Call commit() first. Any thread may call."""
        if self._path == ":memory:":
            return
        with self._syncing:
            if self._wal_fd < 0:
                self._wal_fd = os.open(self._path + "-wal", os.O_RDONLY | os.O_CLOEXEC)
                syncing.sync_directory(self.place)
        commits = self.db.commits
        os.fsync(self._wal_fd)
        self.db.note_synced(commits)

    def size_bytes(self) -> int:
        """Return the size of the database and its log."""
        total = 0
        for path in (self._path, self._path + "-wal"):
            if os.path.exists(path):
                total += os.path.getsize(path)
        return total

    def value(self, key: str) -> str:
        """Return a stored value of the state directory; "" if there is none."""
        row = self.db.execute("SELECT value FROM fact WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def put_value(self, key: str, value: str) -> None:
        """Store a value of the state directory."""
        self.db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (key, value))

    def drop_value(self, key: str) -> None:
        """Forget a value of the state directory."""
        self.db.execute("DELETE FROM fact WHERE key = ?", (key,))

    def next_id(self, name: str) -> int:
        """Return a number never handed out before, even after a crash. Call it inside or outside a transaction."""
        value, limit = self._next.get(name, (0, 0))
        if value >= limit and not self.db.in_operation:
            with self.aside(), self.transaction():
                return self.next_id(name)
        if value >= limit:
            row = self.db.execute("SELECT reserved FROM counter WHERE name = ?", (name,)).fetchone()
            value = int(row[0]) if row else 2  # 1 is the root inode
            limit = value + _COUNTER_BLOCK
            self.db.execute("INSERT OR REPLACE INTO counter VALUES (?, ?)", (name, limit))
        self._next[name] = (value + 1, limit)
        return value

    def pass_over(self, name: str, used: int) -> None:
        """Never hand out numbers up to *used*: an object without a row has one of them."""
        if used >= self.reserved(name):
            with self.transaction():
                self.db.execute("INSERT OR REPLACE INTO counter VALUES (?, ?)", (name, used + 1))
            self.forget_ids()

    def reserved(self, name: str) -> int:
        """Return the highest number that was handed out or reserved."""
        row = self.db.execute("SELECT reserved FROM counter WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 2

    def take_touched(self) -> set[Touch]:
        """Return which rows were written since the last call, those of undone transactions among them. The first returns none."""
        touched, self.touched = self.touched, set()
        return touched or set()

    # -- inodes and names

    def inode_versions(self, inode_id: int) -> list[InodeRow]:
        return list(map(InodeRow._make, self.db.execute(_INODE_SELECT, (inode_id,))))

    def newer_versions_first(self, inode_id: int) -> Iterator[InodeRow]:
        """Return the rows of an inode, the newest first. Whoever needs but one does not read the others."""
        return map(InodeRow._make, self.db.execute(_INODE_SELECT + " ORDER BY layer DESC", (inode_id,)))

    def origin_versions(self, lower_ino: int, lower_dev: int) -> list[InodeRow]:
        """Return the rows of inodes that stand for a lower object with several names."""
        return list(map(InodeRow._make, self.db.execute(_INODE_ORIGIN, (lower_ino, lower_dev))))

    def put_inode(self, row: InodeRow) -> None:
        self.writes[row.layer] += 1
        if self.touched is not None and not stat.S_ISDIR(row.mode):
            self.touched.add((row.layer, row.id, b"", 0))
        self.db.execute(_INODE_UPSERT, row)

    def put_new(self, layer: int, inodes: list[InodeRow], names: list[tuple[int, bytes, int]], objects: list[int]) -> None:
        """Store many new files of one layer at once.

        Args:
            layer: The layer.
            inodes: The rows of the inodes.
            names: (directory, name, inode id) of each.
            objects: The numbers of their content objects.
        """
        self.writes[layer] += len(inodes) + len(names)
        if self.touched is not None:
            self.touched.update((layer, directory, name, child) for directory, name, child in names)
        self.db.execute_many(_INODE_UPSERT, list[tuple[Any, ...]](inodes))
        self.db.execute_many(_DENTRY_UPSERT, [(directory, name, layer, child) for directory, name, child in names])
        self.db.execute_many(_OBJECT_UPSERT, [(number, layer) for number in objects])

    def replace_content(self, inode_id: int, old: int, new: int) -> None:
        """Let every version of an inode refer to another object."""
        self.db.execute("UPDATE inode SET content = ? WHERE id = ? AND content = ?", (new, inode_id, old))

    def delete_inode(self, inode_id: int, layer: int) -> None:
        self.writes[layer] += 1
        self.db.execute("DELETE FROM inode WHERE id = ? AND layer = ?", (inode_id, layer))

    def dentries(self, directory: int) -> Iterator[tuple[bytes, int, int]]:
        """Return (name, layer, child) of every version of every name in a directory."""
        return self.db.execute("SELECT name, layer, child FROM dentry WHERE dir = ?", (directory,))

    def versions_of_name(self, directory: int, name: bytes) -> list[tuple[int, int]]:
        """Return (layer, child) of every version of one name."""
        return list(self.db.execute("SELECT layer, child FROM dentry WHERE dir = ? AND name = ?", (directory, name)))

    def layers_of(self, inode_id: int) -> list[int]:
        """Return the layers that hold a version of an inode."""
        return [row[0] for row in self.db.execute("SELECT layer FROM inode WHERE id = ?", (inode_id,))]

    def put_dentry(self, directory: int, name: bytes, layer: int, child: int) -> None:
        self.writes[layer] += 1
        if self.touched is not None:
            self.touched.add((layer, directory, name, child))
        self.db.execute(_DENTRY_UPSERT, (directory, name, layer, child))

    def delete_dentry(self, directory: int, name: bytes, layer: int) -> None:
        self.writes[layer] += 1
        if self.touched is not None:
            self.touched.add((layer, directory, name, 0))
        self.db.execute("DELETE FROM dentry WHERE dir = ? AND name = ? AND layer = ?", (directory, name, layer))

    def clear_directory(self, directory: int, layer: int, *, keep_origins: bool) -> None:
        """Delete what one layer says about the names in a directory.

        *keep_origins*: keep the record of what the branch had seen of the lower there, without its contents.
        """
        self.writes[layer] += 1
        place = (directory, layer)
        self.db.execute("DELETE FROM dentry WHERE dir = ? AND layer = ?", place)
        self.db.execute("UPDATE object SET layer = 0 WHERE id IN (SELECT base FROM origin WHERE dir = ? AND layer = ?)", place)
        if keep_origins:
            self.db.execute("UPDATE origin SET base = 0 WHERE dir = ? AND layer = ?", place)
        else:
            self.db.execute("DELETE FROM origin WHERE dir = ? AND layer = ?", place)

    def names_of(self, child: int) -> list[tuple[int, bytes, int]]:
        """Return (directory, name, layer) of every row that refers to *child*."""
        return list(self.db.execute("SELECT dir, name, layer FROM dentry WHERE child = ?", (child,)))

    def all_inodes(self) -> Iterator[InodeRow]:
        return map(InodeRow._make, self.db.execute(f"SELECT {INODE_COLUMNS} FROM inode"))

    def all_dentries(self) -> Iterator[tuple[int, bytes, int, int]]:
        return self.db.execute("SELECT dir, name, layer, child FROM dentry")

    def linked_inodes(self) -> list[int]:
        """Return the inodes that stand for lower objects with several names, in any layer."""
        return [row[0] for row in self.db.execute("SELECT DISTINCT id FROM inode WHERE linked = 1")]

    def uses_of_lower(self) -> list[LowerUse]:
        """Return the stored files whose data is still the lower's, and the directories of the lower, in each live layer."""
        query = (
            "SELECT inode.id, inode.layer, lower_path, mode & 61440 = 16384 FROM inode JOIN layer ON layer.id = inode.layer "
            "WHERE lower_path IS NOT NULL AND content = 0 AND nlink > 0 AND mode & 61440 IN (16384, 32768) AND NOT dead"
        )
        return [LowerUse(number, layer, path, bool(is_dir)) for number, layer, path, is_dir in self.db.execute(query)]

    def directories_of_lower(self, path: bytes) -> list[int]:
        """Return the inodes of directories that show a directory of the lower, in any layer. It reads the whole table."""
        query = "SELECT DISTINCT id FROM inode WHERE lower_path = ? AND nlink > 0 AND mode & 61440 = 16384"
        return [row[0] for row in self.db.execute(query, (path,))]

    def move_lower_paths(self, moved: dict[bytes, bytes], but: Container[int]) -> None:
        """Replace lower paths in the rows of all layers *but* some."""
        rows = self.db.execute("SELECT id, layer, lower_path FROM inode WHERE lower_path IS NOT NULL")
        for number, layer, path in [row for row in rows if row[2] in moved and row[1] not in but]:
            self.db.execute("UPDATE inode SET lower_path = ? WHERE id = ? AND layer = ?", (moved[path], number, layer))

    def change_lower_identity(self, old: tuple[int, ...], new: tuple[int, ...]) -> None:
        """Replace the identity (ino, dev, size, mtime, ctime) of a lower object in every row."""
        for table in ("inode", "origin"):
            self.db.execute(
                f"UPDATE {table} SET lower_ino = ?, lower_dev = ?, lower_size = ?, lower_mtime = ?, lower_ctime = ? "
                "WHERE lower_ino = ? AND lower_dev = ? AND lower_size = ? AND lower_mtime = ? AND lower_ctime = ?",
                (*new, *old),
            )

    # -- objects

    def put_object(self, object_id: int, layer: int) -> None:
        self.db.execute(_OBJECT_UPSERT, (object_id, layer))

    def object_layer(self, object_id: int) -> int:
        """The layer that owns an object; 0 when there is no such object."""
        row = self.db.execute("SELECT layer FROM object WHERE id = ?", (object_id,)).fetchone()
        return int(row[0]) if row else 0

    def objects_of(self, layer: int, limit: int = -1) -> list[int]:
        return [row[0] for row in self.db.execute("SELECT id FROM object WHERE layer = ? LIMIT ?", (layer, limit))]

    def contents_of(self, layer: int) -> list[int]:
        """Return the objects that hold a layer's files, without those kept for merging."""
        query = "SELECT id FROM object WHERE layer = ? AND id NOT IN (SELECT base FROM origin WHERE layer = ?)"
        return [row[0] for row in self.db.execute(query, (layer, layer))]

    def delete_objects(self, object_ids: list[int]) -> None:
        for number in object_ids:
            self.db.execute("DELETE FROM object WHERE id = ?", (number,))
            self.db.execute("DELETE FROM seal WHERE object = ?", (number,))


def _run_script(db: Database, script: str) -> None:
    """Run a script inside the open transaction, which executescript() would commit."""
    statement = ""
    for line in script.splitlines():
        statement += line.split("--")[0] + "\n"
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""
