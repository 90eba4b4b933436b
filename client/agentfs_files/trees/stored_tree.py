"""The attributes of an entry as JSON, lossless for any name. The ZIP's manifest and the attributes beside git commits use this
form.
"""

import base64
import os
import stat
from collections.abc import Iterator
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from agentfs_files.trees.tree_source import Chunks, TreeEntry

_PLAIN = "".join(chr(code) for code in range(33, 127) if chr(code) != "%")
HOLE = 1 << 16  # bytes; aligned runs of zeros of this size become holes
_ZEROS = bytes(HOLE)
_MAX_NAME_BYTES = 255
_TYPES = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK)


class Stored(msgspec.Struct, omit_defaults=True):
    """The attributes of one entry.

    ``path`` is text; ``raw`` holds the exact bytes in base64 if ``path`` does not. Entries with the same ``links`` are names of
    one file. ``name`` is the member's name in the archive, if it differs from the path.
    """

    path: str
    mode: int
    uid: int | None = None
    gid: int | None = None
    mtime_ns: int | None = None
    size: int = 0
    rdev: int = 0
    links: int = 0
    raw: str = ""
    name: str = ""
    xattrs: dict[str, bytes] = {}
    loose: bool = False

    def path_bytes(self) -> bytes:
        """The exact path. Raises ValueError if ``raw`` is not base64."""
        return base64.b64decode(self.raw, validate=True) if self.raw else self.path.encode("utf-8")


def store(entry: TreeEntry, path: bytes, name: str = "") -> Stored:
    """Return the record of an entry. *path* is the path to record."""
    try:
        text, raw = path.decode("utf-8"), ""
    except UnicodeDecodeError:
        text, raw = path.decode("utf-8", "backslashreplace"), base64.b64encode(path).decode()
    xattrs = {quote_from_bytes(os.fsencode(key), _PLAIN): value for key, value in (entry.xattrs or {}).items()}
    return Stored(
        text, entry.mode, entry.uid, entry.gid, entry.mtime_ns, entry.size, entry.rdev, entry.group, raw, name, xattrs,
        entry.loose,
    )  # fmt: skip


def restore(stored: Stored, path: bytes) -> TreeEntry:
    """Return the entry at *path*. The caller adds a symlink's target."""
    xattrs = {os.fsdecode(unquote_to_bytes(key)): value for key, value in stored.xattrs.items()}
    return TreeEntry(
        path, stored.mode, stored.uid, stored.gid, stored.size, stored.mtime_ns, stored.rdev, b"",
        None if stored.loose else xattrs, stored.links, stored.loose,
    )  # fmt: skip


def is_possible(stored: Stored) -> bool:
    """Tell whether a file can have these attributes: type, owner, time, device number and xattr names are in range."""
    owners = (0 if stored.uid is None else stored.uid, 0 if stored.gid is None else stored.gid)
    seconds = (stored.mtime_ns or 0) // 1_000_000_000
    return (
        all(0 <= owner < 2**32 - 1 for owner in owners) and -(2**33) <= seconds < 2**34 and 0 <= stored.rdev < 2**64
        and all(len(name) <= _MAX_NAME_BYTES and "%00" not in name and "\0" not in name for name in stored.xattrs)
        and stat.S_IFMT(stored.mode) in _TYPES and 0 <= stored.mode <= 0xFFFF and 0 <= stored.links < 2**64
    )  # fmt: skip


def without_holes(data: bytes, offset: int) -> Chunks:
    """Yield the parts of *data* that are not zeros, block by block."""
    start = 0
    for block in range(0, len(data), HOLE):
        if data.startswith(_ZEROS[: len(data) - block], block):
            if start < block:
                yield offset + start, data[start:block]
            start = block + HOLE
    if start < len(data):
        yield offset + start, data[start:]


def stream(chunks: Chunks, size: int) -> Iterator[bytes]:
    """Yield the content of a file: exactly *size* bytes, with holes as zeros."""
    position = 0
    for offset, data in chunks:
        yield from _zeros(offset - position)
        yield data[: size - offset]
        position = offset + len(data)
    yield from _zeros(size - position)


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield _ZEROS[: min(count, len(_ZEROS))]
        count -= len(_ZEROS)
