"""The interface that all forms of a directory tree share: entries, and how to read them. This module knows no form."""

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

Step = Callable[[int, int], None]  # number done, total (0: unknown)

Chunks = Iterator[tuple[int, bytes]]  # (offset, data) in order; gaps are zeros


class PathEntry:
    """What follows from an entry's ``path`` beneath the root and its ``mode`` (st_mode). It holds no fields of its own."""

    __slots__ = ()

    path: bytes
    mode: int

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    @property
    def name(self) -> bytes:
        return self.path.rpartition(b"/")[2]

    @property
    def parent(self) -> bytes:
        return self.path.rpartition(b"/")[0]


@dataclass(frozen=True, slots=True)
class TreeEntry(PathEntry):
    """One name of a tree. None, or no xattrs as None, means that this form does not record the value, so an existing value may
    stay.

    ``path`` is relative to the root, which is b""; ``mode`` is st_mode. Entries with the same ``group`` (not 0) are names of one
    file. ``loose``: of the permissions only the executable bit counts. ``settled``: the entry and everything below it is known to
    be in place.
    """

    path: bytes
    mode: int
    uid: int | None = None
    gid: int | None = None
    size: int = 0
    mtime_ns: int | None = None
    rdev: int = 0
    target: bytes = b""
    xattrs: dict[str, bytes] | None = None
    group: int = 0
    loose: bool = False
    settled: bool = False


class TreeSource(Protocol):
    """A tree that can be read, in any form."""

    def root(self) -> TreeEntry: ...

    def children(self, directory: TreeEntry) -> list[TreeEntry]:
        """Return the entries of a directory, sorted by name."""
        ...

    def chunks(self, entry: TreeEntry) -> Chunks:
        """Yield the content of a regular file."""
        ...


def walk(tree: TreeSource) -> Iterator[TreeEntry]:
    """Yield every entry, each directory before its content; the root first."""
    stack = [iter([tree.root()])]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            continue
        yield entry
        if entry.is_dir:
            stack.append(iter(tree.children(entry)))
