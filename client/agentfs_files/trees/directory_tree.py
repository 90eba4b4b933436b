"""Read a directory as a source of entries, with types, modes, owners, times, xattrs, ACLs, hard links and holes. No symlink is
followed.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from types import TracebackType

from agentfs_files.trees.tree_source import Chunks, TreeEntry
from agentfs_host import xattrs
from agentfs_host.descent import Descent, join
from agentfs_host.extents import extents

CHUNK = 1 << 20
_BLOCK = 512  # of st_blocks


class Directory:
    """The tree below *root*, without names for which *leave_out* returns True. A context manager."""

    def __init__(self, root: str | bytes, leave_out: Callable[[bytes], bool] = lambda name: False) -> None:
        self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._way = Descent(self._fd)
        self._leave_out = leave_out
        root_stat = os.fstat(self._fd)
        self._device = root_stat.st_dev
        # Branches and snapshots that are mounted side by side differ in the upper half of their inode numbers, which the root
        # has, too. Removing that half makes a hard-link group equal in all of them.
        self._mark = root_stat.st_ino >> 32 << 32

    def close(self) -> None:
        self._way.close()
        os.close(self._fd)

    def __enter__(self) -> "Directory":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def root(self) -> TreeEntry:
        return self._entry(b"", os.fstat(self._fd), self._fd)

    def children(self, directory: TreeEntry) -> list[TreeEntry]:
        with _named(directory.path):
            fd = self._way.fd(directory.path)
        entries = []
        for name in sorted(os.fsencode(name) for name in os.listdir(fd)):
            if self._leave_out(name):
                continue
            path = join(directory.path, name)
            try:
                with _named(path):
                    entries.append(self._entry(path, os.stat(name, dir_fd=fd, follow_symlinks=False), fd))
            except FileNotFoundError:
                continue  # deleted while the directory was being read
        return entries

    def chunks(self, entry: TreeEntry) -> Chunks:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a FIFO would block
        with _named(entry.path):
            fd = os.open(entry.name, flags, dir_fd=self._way.fd(entry.parent))
        try:
            info = os.fstat(fd)
            has_holes = info.st_blocks * _BLOCK < info.st_size  # or it is compressed
            for start, end in extents(fd, 0, info.st_size) if has_holes else [(0, info.st_size)]:
                yield from _read(fd, start, end)
        finally:
            os.close(fd)

    def _entry(self, path: bytes, info: os.stat_result, parent_fd: int) -> TreeEntry:
        where = b"/proc/self/fd/%d/%s" % (parent_fd, path.rpartition(b"/")[2] or b".")
        is_link = stat.S_ISLNK(info.st_mode)
        linked = info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode) and info.st_dev == self._device
        return TreeEntry(
            path, info.st_mode, info.st_uid, info.st_gid,
            size=info.st_size if stat.S_ISREG(info.st_mode) else 0,
            mtime_ns=info.st_mtime_ns,
            rdev=info.st_rdev if stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode) else 0,
            target=os.readlink(where) if is_link else b"",
            xattrs=read_xattrs(where),
            group=info.st_ino ^ self._mark if linked else 0,
        )  # fmt: skip


@contextlib.contextmanager
def _named(path: bytes) -> Iterator[None]:
    """Have an error name the path below the root, instead of one through a descriptor."""
    try:
        yield
    except OSError as exc:
        exc.filename = path
        raise


def count(root: str) -> int:
    """Return the number of entries below a directory, for a progress bar."""
    return sum(len(directories) + len(files) for _, directories, files in os.walk(root))


def read_xattrs(where: bytes) -> dict[str, bytes]:
    """Return the readable extended attributes, including ACLs; for a symlink its own."""
    return {os.fsdecode(name): value for name, value in xattrs.read_all(where, follow=False).items()}


def _read(fd: int, start: int, end: int) -> Chunks:
    while start < end:
        data = os.pread(fd, min(CHUNK, end - start), start)
        if not data:
            return
        yield start, data
        start += len(data)
