"""What every form of a tree has in common: its entries, and how one asks for them. Knows no form, and no daemon."""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

Step = Callable[[int, int], None]  # done, and of how many (0: unknown)

Chunks = Iterator[tuple[int, bytes]]  # (offset, data) in order; what lies between is zeros


@dataclass(frozen=True, slots=True)
class Entry:
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


class Source(Protocol):
    """A tree that can be read, in whatever form."""

    def root(self) -> Entry: ...

    def children(self, directory: Entry) -> list[Entry]:
        """What is in a directory, sorted by name."""
        ...

    def chunks(self, entry: Entry) -> Chunks:
        """The content of a regular file."""
        ...


def walk(source: Source) -> Iterator[Entry]:
    """Every entry, a directory before what is in it; the root first."""
    stack = [iter([source.root()])]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            continue
        yield entry
        if entry.is_dir:
            stack.append(iter(source.children(entry)))


def join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


class Beneath:
    """Directories beneath one root, by path; no step follows a symlink. The way to the last one stays open.

    ``fd`` is good until the next call. Closes nothing that it did not open: the root's descriptor is the caller's.
    """

    def __init__(self, root_fd: int) -> None:
        self._root_fd = root_fd
        self._way: list[tuple[bytes, int]] = []  # (name, descriptor) of each step

    def fd(self, path: bytes) -> int:
        names = path.split(b"/") if path else []
        kept = 0
        while kept < min(len(names), len(self._way)) and self._way[kept][0] == names[kept]:
            kept += 1
        self._close_after(kept)
        for name in names[kept:]:
            parent = self._way[-1][1] if self._way else self._root_fd
            self._way.append((name, os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)))
        return self._way[-1][1] if self._way else self._root_fd

    def where(self, path: bytes) -> bytes:
        """A path for calls that take no descriptor of a directory; its last name is not followed by what asks for that."""
        directory, _, name = path.rpartition(b"/")
        return b"/proc/self/fd/%d/%s" % (self.fd(directory), name or b".")

    def _close_after(self, kept: int) -> None:
        while len(self._way) > kept:
            os.close(self._way.pop()[1])

    def close(self) -> None:
        self._close_after(0)
