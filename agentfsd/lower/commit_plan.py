"""What a commit asks of the lower: a list of steps by path. Plain records; nothing here does any work."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec


class Identity(NamedTuple):
    """By which one tells that a name still leads to the same, unchanged file. As Lower.stat() says."""

    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int


ABSENT = Identity(0, 0, 0, 0)  # nothing has that name


class ContentSource(Protocol):
    """Where a regular file's content comes from. ``size`` in bytes, -1 when it is not known."""

    @property
    def size(self) -> int: ...
    def open(self) -> int:
        """A read-only descriptor; the caller closes it. Called once, in the thread that stages."""
        ...


class FileAttributes(msgspec.Struct, frozen=True, array_like=True):
    """``mode`` is type and permission bits, as st_mode."""

    mode: int
    uid: int
    gid: int
    atime_ns: int
    mtime_ns: int
    xattrs: dict[bytes, bytes] = {}


class Put(msgspec.Struct, frozen=True):
    """What shall stand at a path, in the place of whatever is there, also of a whole tree.

    A directory's Put makes an empty one; what shall be in it has Puts of its own. Puts with the same nonzero ``link`` are
    names of one file, and the first one counts. ``expected``: what the path must lead to (None: does not matter).
    """

    path: bytes
    attributes: FileAttributes
    content: ContentSource | None = None  # regular files; None for an empty one
    target: bytes = b""  # symlinks
    rdev: int = 0  # devices
    link: int = 0
    expected: Identity | None = None


class Remove(msgspec.Struct, frozen=True):
    """A file, or a directory with all that is in it. Nothing happens where nothing is, unless something is expected."""

    path: bytes
    expected: Identity | None = None


class Adjust(msgspec.Struct, frozen=True):
    """Attributes only, of what is there; its type stays. A directory gets its times after all that happens inside."""

    path: bytes
    attributes: FileAttributes
    expected: Identity | None = None


Step = Put | Remove | Adjust


class Drifted(Exception):
    """Somebody else changed these paths of the lower meanwhile. Everything was undone."""

    def __init__(self, paths: Sequence[bytes]) -> None:
        super().__init__(f"{len(paths)} paths of the lower were changed by somebody else, {paths[0]!r} among them")
        self.paths = list(paths)
