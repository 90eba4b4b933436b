"""The steps of a commit into the lower, by path. These are plain records; no code here changes a file."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec


class Identity(NamedTuple):
    """The stat fields that tell whether a name still leads to the same, unchanged file, as Lower.stat() returns them."""

    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int


ABSENT = Identity(0, 0, 0, 0)  # the identity of a name that does not exist


class ContentSource(Protocol):
    """The source of a regular file's content. ``size`` is in bytes, -1 if it is not known."""

    @property
    def size(self) -> int: ...
    def open(self) -> int:
        """Return a read-only descriptor, which the caller closes. The staging thread calls this once."""
        ...


class FileAttributes(msgspec.Struct, frozen=True, array_like=True):
    """Owner, mode, times and extended attributes of a file. ``mode`` holds type and permission bits, as st_mode does."""

    mode: int
    uid: int
    gid: int
    atime_ns: int
    mtime_ns: int
    xattrs: dict[bytes, bytes] = {}


class Put(msgspec.Struct, frozen=True):
    """Create a file at a path and replace whatever is there, even a whole directory tree.

    The Put of a directory creates it empty; each of its entries has its own Put. Puts with the same nonzero ``link`` are names of
    one file, and the first one determines its content. ``expected`` is what the path must lead to before the commit; None accepts
    anything. Names whose steps have a lower ``rank`` change first, and change back last; of the names in a new directory, that of
    the directory counts. What ``stays`` and was not there before is left where it is if the commit is undone: somebody may have
    read what refers to it by then, and referred to it from elsewhere.
    """

    path: bytes
    attributes: FileAttributes
    content: ContentSource | None = None  # of a regular file; None for an empty one
    target: bytes = b""  # symlinks
    rdev: int = 0  # devices
    link: int = 0
    expected: Identity | None = None
    rank: int = 0
    stays: bool = False


class Remove(msgspec.Struct, frozen=True):
    """Remove a file, or a directory and everything in it. A path that does not exist is no error unless ``expected`` names
    something. ``rank``: as in Put.
    """

    path: bytes
    expected: Identity | None = None
    rank: int = 0


class Adjust(msgspec.Struct, frozen=True):
    """Change only the attributes of an existing path; its type stays. A directory gets its times after all steps inside it."""

    path: bytes
    attributes: FileAttributes
    expected: Identity | None = None


Step = Put | Remove | Adjust


class Drifted(Exception):
    """Somebody else changed these paths of the lower while the commit ran or since it was interrupted."""

    def __init__(self, paths: Sequence[bytes]) -> None:
        super().__init__(f"{len(paths)} paths of the lower were changed by somebody else, {paths[0]!r} among them")
        self.paths = list(paths)
