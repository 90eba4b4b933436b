"""What one of two processes does that share a branch: ``python shared_load.py KIND FILE ROUNDS [SIDE]``; prints what it did."""

import fcntl
import mmap
import os
import sqlite3
import struct
import sys
import time
from collections.abc import Callable

_PATIENCE_S = 60.0


def count(path: str, rounds: int, lock: Callable[[int], None], unlock: Callable[[int], None]) -> int:
    """Adds one to the number in a file, again and again, while it has the lock."""
    fd = os.open(path, os.O_RDWR)
    for _ in range(rounds):
        lock(fd)
        number = int(os.pread(fd, 20, 0) or b"0")
        os.pwrite(fd, b"%020d" % (number + 1), 0)
        unlock(fd)
    return rounds


def flock(path: str, rounds: int) -> int:
    return count(path, rounds, lambda fd: fcntl.flock(fd, fcntl.LOCK_EX), lambda fd: fcntl.flock(fd, fcntl.LOCK_UN))


def record(path: str, rounds: int) -> int:
    return count(path, rounds, lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX, 8, 4), lambda fd: fcntl.lockf(fd, fcntl.LOCK_UN, 8, 4))


def set_journal(database: sqlite3.Connection, journal: str) -> str:
    """Set the journal mode; return what it is now.

    SQLite's busy timeout does not hold for this: of two that set it at the same moment one may be told that the database is
    locked, on ext4 too.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return str(database.execute(f"PRAGMA journal_mode = {journal}").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def transactions(path: str, rounds: int, journal: str) -> int:
    """Inserts rows, each in a transaction of its own; how many were acknowledged."""
    with sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None) as database:
        assert set_journal(database, journal) == journal
        database.execute("CREATE TABLE IF NOT EXISTS done (pid INTEGER, number INTEGER)")
        for number in range(rounds):
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO done VALUES (?, ?)", (os.getpid(), number))
            database.execute("COMMIT")
    return rounds


def turns(path: str, rounds: int, side: int) -> int:
    """Two take turns in a shared mapping: each waits for the other's number, and adds one to a number of its own."""
    fd = os.open(path, os.O_RDWR)
    with mmap.mmap(fd, 4096) as page:
        for number in range(rounds):
            deadline = time.monotonic() + _PATIENCE_S
            while struct.unpack_from("q", page, 0)[0] != 2 * number + side:
                assert time.monotonic() < deadline, f"the other's turn {2 * number + side} was never seen"
                time.sleep(0.0002)
            mine = 8 + 8 * side
            struct.pack_into("q", page, mine, struct.unpack_from("q", page, mine)[0] + 1)
            struct.pack_into("q", page, 0, 2 * number + side + 1)
        return int(struct.unpack_from("q", page, 8 + 8 * side)[0])


def main() -> None:
    kind, path, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if kind == "flock":
        done = flock(path, rounds)
    elif kind == "record":
        done = record(path, rounds)
    elif kind == "turns":
        done = turns(path, rounds, int(sys.argv[4]))
    else:
        done = transactions(path, rounds, kind)
    sys.stdout.write(f"{done}\n")


if __name__ == "__main__":
    main()
