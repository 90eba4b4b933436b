"""Why a database cannot be opened or written, and what to do about it, in words for people."""

import errno
import os
import sqlite3
import tempfile

from agentfsd.domain_errors import Refusal


def why_not_written(directory: str) -> int:
    """Try a write to find the errno: SQLite recognizes a full disk, but not an exceeded quota."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(1 << 16))
    except OSError as exc:
        return exc.errno or 0
    return 0


def no_room(path: str) -> Refusal:
    """Return the refusal to start where the database has no room."""
    return Refusal(
        errno.ENOSPC, "no-room", f"there is no room to open the metadata database {path}",
        "make room on its file system; a ramdisk grows with a larger --ramdisk-size",
    )  # fmt: skip


def damaged(path: str, problems: list[str]) -> Refusal:
    """Return the refusal to start with a damaged database: what is damaged, and what to do."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Refusal(
        errno.EIO, "state-corrupt", f"the state {os.path.dirname(path)} is damaged: {problems[0]}{more}",
        f"nothing was changed; 'agentfsd fsck --state {os.path.dirname(path)}' says all, and what can be done",
    )  # fmt: skip


def in_use(path: str) -> Refusal:
    """Return the refusal to start with a database that another process has locked."""
    return Refusal(errno.EBUSY, "state-in-use", f"{path} is held by another process", "stop it, or choose another --state")


def unreadable(path: str, exc: sqlite3.DatabaseError) -> Refusal:
    """Return the refusal to start with a database that cannot be read: why, and what to do."""
    code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return in_use(path)
    if code == sqlite3.SQLITE_FULL:
        return no_room(path)
    return Refusal(
        errno.EIO,
        "state-corrupt",
        f"the metadata database {path} cannot be read: {exc}",
        f"nothing was changed; 'agentfsd fsck --state {os.path.dirname(path)}' says more, and what can be done",
    )
