"""Compares the bytes of two files by reading both, a megabyte at each step. It knows nothing of branches and their changes."""

import os
from collections.abc import Generator
from typing import TypeVar

from agentfsd.core import inode_stat
from agentfsd.core.copyup import content_fd
from agentfsd.core.tree import Inode

_CHUNK = 1 << 20

_Stamps = tuple[int, ...]
_T = TypeVar("_T")


def same_bytes(old: Inode, new: Inode) -> bool:
    """Return whether two files hold the same bytes. Reads both to the end in one step, however long that takes."""
    return run_to_end(compare(old, new))


def holds_object(inode: Inode, number: int) -> bool:
    """Return, also in one step, whether a file holds the same bytes as an object of the backstore."""
    kept = inode.tree.backstore.open(number)
    try:
        return run_to_end(_compare(content_fd(inode), os.dup(kept.fileno())))
    finally:
        kept.close()


class ComparisonResults:
    """Results of comparing pairs of files. A result is valid until one of the two files changes.

    Attributes:
        open: The pairs that of() was asked about and that have no valid result yet.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[Inode, Inode], tuple[_Stamps, bool]] = {}
        self.open: list[tuple[Inode, Inode]] = []

    def __len__(self) -> int:
        return len(self._found)

    def of(self, old: Inode, new: Inode) -> bool:
        """Return whether two files hold the same bytes. Without a valid result, add the pair to ``open`` and return False."""
        known = self._found.get((old, new))
        if known is None or known[0] != _stamps(old, new):
            self.open.append((old, new))
            return False
        return known[1]

    def find_out(self) -> Generator[None, None, None]:
        """Compare the pairs in ``open``, in steps between which the daemon serves requests."""
        while self.open:
            old, new = self.open.pop()
            before = _stamps(old, new)
            self._found[old, new] = before, (yield from compare(old, new))


class NeverSame(ComparisonResults):
    """Takes any two files with contents of their own for different, and reads none."""

    def of(self, old: Inode, new: Inode) -> bool:
        return False


def _stamps(old: Inode, new: Inode) -> _Stamps:
    old_status, new_status = inode_stat.data_stat(old), inode_stat.data_stat(new)
    return (
        old_status.st_ino, old_status.st_size, old_status.st_mtime_ns, old_status.st_ctime_ns,
        new_status.st_ino, new_status.st_size, new_status.st_mtime_ns, new_status.st_ctime_ns,
    )  # fmt: skip


def compare(old: Inode, new: Inode) -> Generator[None, None, bool]:
    """Return whether two files hold the same bytes, in steps of a megabyte. Neither file may change meanwhile."""
    return _compare(content_fd(old), content_fd(new))


def run_to_end(steps: Generator[object, None, _T]) -> _T:
    """Run a generator to its end and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found


def _compare(old_fd: int, new_fd: int) -> Generator[None, None, bool]:
    """Compare two descriptors and close them."""
    try:
        offset = 0
        while True:
            chunk = os.pread(old_fd, _CHUNK, offset)
            if chunk != os.pread(new_fd, _CHUNK, offset):
                return False
            if not chunk:
                return True
            offset += len(chunk)
            yield
    finally:
        os.close(old_fd)
        os.close(new_fd)
