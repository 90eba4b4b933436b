"""Create the entries of a tree in an empty directory: for a snapshot that is itself a tree, and for what a restore swaps in."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence

from agentfs_files.snapshots.kept_attributes import settle
from agentfs_files.snapshots.snapshot_tree import SnapshotEntry
from agentfs_host.descent import Descent

Into = Callable[[SnapshotEntry], contextlib.AbstractContextManager[int]]  # opens the empty file for an entry's content


class Builder:
    """Create entries with all attributes that are permitted. *place* maps each path to a path in the target.

    ``made`` holds the stat of each filled file when it was complete.
    """

    def __init__(self, target: Descent, place: Callable[[bytes], bytes] = lambda path: path) -> None:
        self._target, self._place = target, place
        self.made: dict[bytes, os.stat_result] = {}

    def build(self, entries: Sequence[SnapshotEntry], fill: Callable[[Sequence[SnapshotEntry], Into], None]) -> None:
        """Create all entries. *fill* writes the contents of the files that it gets; of a hard-linked file it gets the
        first name.
        """
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
        """Create anything but a regular file. A directory gets its attributes later, when its content is complete."""
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
        """Yield a new file to fill, and set its attributes afterwards."""
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
        """Make *entry* another name of an existing file."""
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
