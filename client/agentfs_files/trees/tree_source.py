"""What all forms of a directory tree have in common: its entries, and how one asks for them. Knows no form."""

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

Step = Callable[[int, int], None]  # done, and of how many (0: unknown)

Chunks = Iterator[tuple[int, bytes]]  # (offset, data) in order; what lies between is zeros


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One name of a tree. None, and no xattrs as None, means: this form does not say, whatever is there may stay.

    ``path`` is relative to the root, b"" for the root itself; ``mode`` is st_mode. Entries with the same ``group`` (not 0)
    are names of one file. ``loose``: of the permissions only "executable" counts. ``settled``: known to be in place already,
    with all below it.
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


class TreeSource(Protocol):
    """A tree that can be read, in whatever form."""

    def root(self) -> TreeEntry: ...

    def children(self, directory: TreeEntry) -> list[TreeEntry]:
        """What is in a directory, sorted by name."""
        ...

    def chunks(self, entry: TreeEntry) -> Chunks:
        """The content of a regular file."""
        ...


def walk(tree: TreeSource) -> Iterator[TreeEntry]:
    """Every entry, a directory before what is in it; the root first."""
    stack = [iter([tree.root()])]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            continue
        yield entry
        if entry.is_dir:
            stack.append(iter(tree.children(entry)))
