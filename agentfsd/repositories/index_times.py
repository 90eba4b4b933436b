"""Fill in what git's index notes of working files, as `git update-index --refresh` does.

Without it `git merge --abort` takes each file that a merge has just written for one that somebody changed, and refuses.
Source: gitformat-index(5).
"""

import hashlib
import struct
from collections.abc import Generator, Iterator
from typing import NamedTuple

from agentfsd.core import inode_stat
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.repositories import reading
from agentfsd.repositories.checkouts import is_as
from agentfsd.repositories.commits import Entry

_NOTES = struct.Struct(">10I")  # ctime, mtime (s, ns each), device, inode, mode, uid, gid, size
_EXTENDED, _STAGE, _WORD = 0x4000, 0x3000, (1 << 32) - 1


class _IndexEntry(NamedTuple):
    start: int
    path: bytes
    entry: Entry
    is_unknown: bool  # stage 0, and nothing is noted of the file
    is_conflict: bool


def refreshed(tree: Tree, database: bytes, work_tree: bytes) -> Generator[tuple[int, int, str], None, bytes | None]:
    """Return the index of a database with what *tree* shows of each file that is as the index has it.

    Only entries of which nothing is noted yet change. Yields (done, total, what).

    Args:
        tree: The tree. It must not change meanwhile.
        database: The path of the database.
        work_tree: The directory that holds the tracked files.

    Returns:
        The index; None if there is none, or if it has a format that is not known here.
    """
    old = reading.text(tree, join(database, b"index"), reading.REFS_BYTES)
    side = None
    for step in reading.database(tree, database):
        side = step or side
        yield 0, 0, "reading refs"
    if old is None or side is None or old[:4] != b"DIRC":
        return None
    hashing = hashlib.sha256 if side.format == "sha256" else hashlib.sha1
    index = bytearray(old)
    try:
        for done, found in enumerate(_entries(old, hashing().digest_size)):
            inode = reading.at(tree, join(work_tree, found.path)) if found.is_unknown else None
            if inode is not None and not inode.is_dir and is_as(inode, found.entry):
                _note(index, found.start, inode)
            yield done, 0, "reading the index"
    except (struct.error, ValueError, IndexError):  # no index that git wrote
        return None
    index[-hashing().digest_size :] = hashing(index[: -hashing().digest_size]).digest()
    return bytes(index)


def unmerged_in(index: bytes, id_size: int) -> set[bytes]:
    """Return the paths that an index has as conflicts; none if git has not written it. *id_size*: of an object id, in bytes."""
    try:
        return {found.path for found in _entries(index, id_size) if found.is_conflict} if index[:4] == b"DIRC" else set()
    except (struct.error, ValueError, IndexError):
        return set()


def _note(index: bytearray, start: int, inode: Inode) -> None:
    shown, mode = inode_stat.attributes(inode), _NOTES.unpack_from(index, start)[6]
    ctime, mtime = divmod(shown.ctime_ns, 10**9), divmod(shown.mtime_ns, 10**9)
    fields = (*ctime, *mtime, 0, shown.ino, mode, shown.uid, shown.gid, shown.size)
    _NOTES.pack_into(index, start, *(number & _WORD for number in fields))


def _entries(index: bytes, id_size: int) -> Iterator[_IndexEntry]:
    version, count = struct.unpack_from(">II", index, 4)
    at, path = 12, b""
    for _ in range(count if version in (2, 3, 4) else 0):
        start, noted = at, _NOTES.unpack_from(index, at)
        oid = index[at + _NOTES.size : at + _NOTES.size + id_size].hex().encode()
        at += _NOTES.size + id_size
        flags = int.from_bytes(index[at : at + 2], "big")
        at += 4 if flags & _EXTENDED else 2
        if version == 4:
            cut, at = _number(index, at)
            path = path[: len(path) - cut]
        end = index.index(b"\0", at)
        path = (path if version == 4 else b"") + index[at:end]
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        is_unknown = not flags & (_STAGE | _EXTENDED) and not any(noted[:4]) and not noted[9]
        yield _IndexEntry(start, path, Entry(b"%o" % noted[6], oid), is_unknown, bool(flags & _STAGE))


def _number(index: bytes, at: int) -> tuple[int, int]:
    """Read a number of the form that git uses for offsets in packs. Return it and the place behind it."""
    number = index[at] & 127
    while index[at] & 128:
        at += 1
        number = (number + 1 << 7) + (index[at] & 127)
    return number, at + 1
