"""Whether two files hold the same bytes, found out by reading both, a piece at a time. It knows no trees and no changes."""

import os
from collections.abc import Generator
from typing import TypeVar

from agentfsd.core.copyup import content_fd
from agentfsd.core.tree import Inode

_CHUNK = 1 << 20

_Stamps = tuple[int, ...]
_T = TypeVar("_T")


def same_bytes(old: Inode, new: Inode) -> bool:
    """At once, however long it takes."""
    return run_to_end(compare(old, new))


def holds_object(inode: Inode, number: int) -> bool:
    """Likewise, whether a file holds what is kept in an object of the backstore."""
    kept = inode.tree.backstore.open(number)
    try:
        return run_to_end(_compare(content_fd(inode), os.dup(kept.fileno())))
    finally:
        kept.close()


class ComparisonResults:
    """What was found out of pairs of files in steps. It counts while neither file has changed since.

    ``open``: those that were asked for, and of which nothing is known.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[Inode, Inode], tuple[_Stamps, bool]] = {}
        self.open: list[tuple[Inode, Inode]] = []

    def __len__(self) -> int:
        return len(self._found)

    def of(self, old: Inode, new: Inode) -> bool:
        """False, and the pair is open, where nothing is known."""
        known = self._found.get((old, new))
        if known is None or known[0] != _stamps(old, new):
            self.open.append((old, new))
            return False
        return known[1]

    def find_out(self) -> Generator[None, None, None]:
        """Reads what is open; others have their turn at each step."""
        while self.open:
            old, new = self.open.pop()
            before = _stamps(old, new)
            self._found[old, new] = before, (yield from compare(old, new))


def _stamps(old: Inode, new: Inode) -> _Stamps:
    one, two = old.tree.data_stat(old), new.tree.data_stat(new)
    return (
        one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns, two.st_ino, two.st_size, two.st_mtime_ns, two.st_ctime_ns,
    )  # fmt: skip


def compare(old: Inode, new: Inode) -> Generator[None, None, bool]:
    """In steps of a megabyte; both must hold still."""
    return _compare(content_fd(old), content_fd(new))


def run_to_end(steps: Generator[object, None, _T]) -> _T:
    """What work in steps returns, run to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found


def _compare(one: int, two: int) -> Generator[None, None, bool]:
    """Of two descriptors, which it closes."""
    try:
        offset = 0
        while True:
            chunk = os.pread(one, _CHUNK, offset)
            if chunk != os.pread(two, _CHUNK, offset):
                return False
            if not chunk:
                return True
            offset += len(chunk)
            yield
    finally:
        os.close(one)
        os.close(two)
