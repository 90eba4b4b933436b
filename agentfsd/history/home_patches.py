"""Makes patches of a branch's changes to the home directory. (Which paths differ: home_changes.py.)"""

import os
import stat
from typing import IO

from agentfsd.history.compare import Content, Job, Pair, PairPatch, compare
from agentfsd.history.home_changes import HomeChange

_MOST_BYTES = 64 << 20  # a larger file gets no patch


def home_patches(
    changes: list[HomeChange], upper: str, home: str, spool: IO[bytes], *,
    stat_only: bool, context_lines: int, ignore_space: bool = False,
) -> list[PairPatch]:  # fmt: skip
    """Make patches of changes, with paths relative to the home directory.

    Args:
        changes: From home_changes().
        upper: The layer's upper directory.
        home: The home directory.
        spool: An empty unbuffered file for the contents.
        stat_only: Count lines only.
        context_lines: Lines of context.
        ignore_space: Lines that differ in white space only are equal.

    Raises:
        OSError: A file cannot be read.
    """
    pairs = [
        Pair(
            change.status, change.path, change.path, _copied(os.path.join(os.fsencode(home), change.path), change.old, spool),
            _copied(os.path.join(os.fsencode(upper), change.path), change.new, spool), _size(change.old), _size(change.new),
            "" if _is_shown(change.old) or _is_shown(change.new) else "a directory or special file", False, _is_large(change),
        )
        for change in changes
    ]  # fmt: skip
    return compare(Job(pairs, stat_only, context_lines, ignore_space), spool.fileno()).patches


def _copied(path: bytes, info: os.stat_result | None, spool: IO[bytes]) -> Content | None:
    if info is None or not _is_shown(info) or info.st_size > _MOST_BYTES:
        return None
    if stat.S_ISLNK(info.st_mode):
        mode, content = 0o120000, os.readlink(path)
    else:
        mode = 0o100755 if info.st_mode & 0o100 else 0o100644
        with open(path, "rb") as file:
            content = file.read()
    offset = spool.seek(0, os.SEEK_END)
    spool.write(content)
    return Content(mode, offset, len(content))


def _is_shown(info: os.stat_result | None) -> bool:
    return info is not None and (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode))


def _is_large(change: HomeChange) -> bool:
    return any(
        info is not None and stat.S_ISREG(info.st_mode) and info.st_size > _MOST_BYTES for info in (change.old, change.new)
    )


def _size(info: os.stat_result | None) -> int:
    return -1 if info is None else info.st_size if stat.S_ISREG(info.st_mode) else 0
