"""A copy of the database from the last start that found no damage, and the way back to it.

Only a checkpoint changes the main file, and checkpoints wait during the copy. So any thread can copy it without blocking others.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable

from agentfs_host import syncing
from agentfs_host.copying import copy_content
from agentfsd.metadata.database import JOURNAL
from agentfsd.metadata.page_checksums import SUFFIX, ChecksumFile

COPY = "-clean"
_PARTS = ("", "-wal", JOURNAL, SUFFIX)
_SPARE_BYTES = 64 << 20  # that must be left on the disk


def copy(path: str, *, share: bool, between: Callable[[], object] = lambda: None) -> bool:
    """Copy the main file and its checksums.

    Args:
        path: The database.
        share: Share blocks where the file system can.
        between: Called after each part; when it raises, the earlier copy stays.

    Returns:
        False when the disk has no room for the copy.
    """
    room = os.statvfs(os.path.dirname(path))
    if room.f_bavail * room.f_frsize < 2 * os.path.getsize(path) + _SPARE_BYTES:
        return False
    made = []
    try:
        for part in (SUFFIX, ""):
            target = f"{path}{COPY}{part}"
            made.append(f"{target}.new")
            _copy_file(path + part, made[-1], share=share, between=between)
        between()
        for name in made:
            os.replace(name, name.removesuffix(".new"))
            _say_unused(path + COPY)
    except BaseException:
        for name in made:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        raise
    syncing.sync_directory(os.path.dirname(path))
    return True


def _copy_file(source: str, target: str, *, share: bool, between: Callable[[], object] = lambda: None) -> None:
    with open(source, "rb") as old, open(target, "wb") as new:
        os.fchmod(new.fileno(), 0o600)
        copy_content(old.fileno(), new.fileno(), set() if share else None, between=between)
        os.fsync(new.fileno())


def _say_unused(path: str) -> None:
    sums = ChecksumFile(path, writes=True)
    if sums.is_sound:
        sums.write_header(sums.page_bytes, sums.count, in_use=False)
        sums.sync()
    sums.close()


def made_at(path: str) -> float | None:
    """Return when the copy was made, in seconds since 1970; None if there is no copy."""
    return os.path.getmtime(path + COPY) if os.path.exists(path + COPY) else None


def keep_damaged(path: str) -> str:
    """Copy the database and the files next to it into a new directory, as evidence. Return that directory."""
    stamp = time.strftime("damaged-%Y%m%dT%H%M%SZ", time.gmtime())
    place = os.path.join(os.path.dirname(path), stamp)
    while os.path.exists(place):
        place += "+"
    os.mkdir(place, 0o700)
    for part in _PARTS:
        if os.path.isfile(path + part):
            shutil.copy2(path + part, place)
    return place


def go_back(path: str) -> None:
    """Replace the database by the copy. Call keep_damaged() first. Raises FileNotFoundError if there is no copy."""
    for part in ("", SUFFIX):
        _copy_file(path + COPY + part, f"{path}{part}.new", share=True)
    for part in ("-wal", JOURNAL):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + part)
    os.replace(f"{path}{SUFFIX}.new", path + SUFFIX)
    os.replace(f"{path}.new", path)
