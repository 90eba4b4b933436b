"""Makes entries of a tree in an empty directory: for a snapshot that is a tree itself, and for what a restore swaps in."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence

from agentfs_files.snapshots.kept_attributes import settle
from agentfs_files.snapshots.snapshot_tree import SnapshotEntry
from agentfs_host.descent import Descent

Into = Callable[[SnapshotEntry], contextlib.AbstractContextManager[int]]  # opens the empty file that an entry's content goes to


class Builder:
    """With all attributes, as far as they are permitted. *place* says where in the target each path goes.

    ``made``: the files that were filled, as they were when they were complete.
    """

    def __init__(self, target: Descent, place: Callable[[bytes], bytes] = lambda path: path) -> None:
        self._target, self._place = target, place
        self.made: dict[bytes, os.stat_result] = {}

    def build(self, entries: Sequence[SnapshotEntry], fill: Callable[[Sequence[SnapshotEntry], Into], None]) -> None:
        """*fill* writes the contents of those files that it is given. Of the names of one file the first is filled."""
        firsts: dict[int, SnapshotEntry] = {}
        files: list[SnapshotEntry] = []
        others: list[SnapshotEntry] = []
        for entry in entries:
            if entry.group and firsts.setdefault(entry.group, entry) is not entry:
                others.append(entry)
            elif entry.is_file:
                files.append(entry)
            else:
                self.make(entry)
        fill(files, self.into)
        for entry in others:
            self.link(firsts[entry.group], entry)
        self.settle_directories(entries)

    def make(self, entry: SnapshotEntry) -> None:
        """Anything but a regular file. A directory gets its attributes later, when it is full."""
        parent, name = self._parent(entry)
        if entry.is_dir:
            os.mkdir(name, 0o700, dir_fd=parent)
            return
        if entry.is_link:
            os.symlink(entry.target, name, dir_fd=parent)
        else:
            os.mknod(name, stat.S_IFMT(entry.mode) | 0o600, entry.rdev, dir_fd=parent)
        with _opened(parent, name, os.O_PATH | os.O_NOFOLLOW) as fd:
            settle(fd, entry)

    @contextlib.contextmanager
    def into(self, entry: SnapshotEntry) -> Iterator[int]:
        """A new file, which gets its attributes when it has been filled."""
        fd = self.create(entry)
        try:
            yield fd
            self.finish(entry, fd)
        finally:
            os.close(fd)

    def create(self, entry: SnapshotEntry) -> int:
        parent, name = self._parent(entry)
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)

    def finish(self, entry: SnapshotEntry, fd: int) -> None:
        settle(fd, entry)
        self.made[entry.path] = os.fstat(fd)

    def discard(self, entry: SnapshotEntry) -> None:
        parent, name = self._parent(entry)
        os.unlink(name, dir_fd=parent)

    def link(self, first: SnapshotEntry, entry: SnapshotEntry) -> None:
        """Makes *entry* another name of a file that is there already."""
        parent, name = self._parent(first)
        with _opened(parent, b".", os.O_PATH | os.O_DIRECTORY) as source:
            target, new_name = self._parent(entry)
            os.link(name, new_name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)

    def settle_directories(self, entries: Sequence[SnapshotEntry]) -> None:
        for entry in reversed(entries):
            if entry.is_dir:
                settle(self._target.fd(self._place(entry.path)), entry)

    def _parent(self, entry: SnapshotEntry) -> tuple[int, bytes]:
        directory, _, name = self._place(entry.path).rpartition(b"/")
        return self._target.fd(directory), name


@contextlib.contextmanager
def _opened(directory: int, name: bytes, flags: int) -> Iterator[int]:
    fd = os.open(name, flags | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)
