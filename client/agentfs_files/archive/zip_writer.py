"""Export file systems as archives. An archive gets its name only when it is complete."""

import errno
import os
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from stat import S_IFDIR, S_IFREG
from typing import BinaryIO

from agentfs_files.archive.pack import write_archive
from agentfs_files.filesystem.file_results import FileEntry
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.trees.tree_source import Chunks, TreeEntry, TreeSource

TreeOpener = Callable[[], AbstractContextManager[TreeSource]]
Locate = Callable[[str], bytes | None]

_CHUNK = 1 << 20
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS, errno.EPERM)  # by kernel and file system
_OWN_DESCRIPTORS = "/proc/self/fd"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def export_archive(open_tree: TreeOpener, locate: Locate, path: str | os.PathLike[str]) -> int:
    """Write a tree to the ZIP *path* and return the number of files in it.

    An existing archive is replaced, and missing parent directories are created. The archive may lie inside the tree: *locate*
    then says where, and it is left out.
    """
    target = os.path.abspath(path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with whole_file(target) as (file, temporary), open_tree() as tree:
        return write_archive(_Without(tree, {locate(target), locate(temporary)}), file)


class _Without:
    """A tree without certain paths."""

    def __init__(self, tree: TreeSource, paths: Collection[bytes | None]) -> None:
        self._tree, self._paths = tree, paths
        self.root, self.chunks = tree.root, tree.chunks

    def children(self, directory: TreeEntry) -> list[TreeEntry]:
        return [entry for entry in self._tree.children(directory) if entry.path not in self._paths]


@contextmanager
def whole_file(target: str) -> Iterator[tuple[BinaryIO, str]]:
    """Yield a file to write and its temporary path beside *target*. When the context ends, the file is renamed to *target*.

    Until then it has no name where the file system and the system permit that, so that nothing is left if this process is killed.
    """
    directory, name = os.path.split(target)
    temporary = os.path.join(directory, f".{name[:50]}.{secrets.token_hex(4)}.part")
    fd = _nameless(directory)
    is_named = fd is None
    if fd is None:
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(fd, "w+b") as file:
            yield file, temporary
            file.flush()
            if not is_named:
                is_named = True
                os.link(f"{_OWN_DESCRIPTORS}/{fd}", temporary, src_dir_fd=fd)  # with a descriptor, it follows the symlink
        os.rename(temporary, target)
    except BaseException:
        if is_named:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        raise


def _nameless(directory: str) -> int | None:
    if not os.path.isdir(_OWN_DESCRIPTORS):
        return None
    try:
        return os.open(directory, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o666)
    except OSError as exc:
        if exc.errno not in _NO_NAMELESS:
            raise
        return None


class FilesystemTree:
    """Any file system read through its protocol: names, contents and times.

    *is_plain* returns False for a symlink to a directory. Such symlinks are omitted, because they may form a loop.
    """

    def __init__(self, filesystem: Filesystem, is_plain: Callable[[str], bool]) -> None:
        self._filesystem, self._is_plain = filesystem, is_plain

    def root(self) -> TreeEntry:
        return TreeEntry(b"", S_IFDIR | 0o755, loose=True)

    def children(self, directory: TreeEntry) -> list[TreeEntry]:
        found = [self._entry(entry) for entry in self._filesystem.list(os.fsdecode(directory.path)) if self._is_wanted(entry)]
        return sorted(found, key=lambda entry: entry.path)

    def chunks(self, entry: TreeEntry) -> Chunks:
        with self._filesystem.open_read(os.fsdecode(entry.path)) as reader:
            offset = 0
            for data in reader.chunks(_CHUNK):
                yield offset, data
                offset += len(data)

    def _is_wanted(self, entry: FileEntry) -> bool:
        return entry.is_file or (entry.is_directory and self._is_plain(entry.path))

    def _entry(self, entry: FileEntry) -> TreeEntry:
        path = os.fsencode(entry.path)
        stat = self._filesystem.stat(entry.path)
        modified = None if stat.modified_at is None else (stat.modified_at - _EPOCH) // timedelta(microseconds=1) * 1000
        if entry.is_directory:
            return TreeEntry(path, S_IFDIR | 0o755, mtime_ns=modified, loose=True)
        return TreeEntry(path, S_IFREG | 0o644, size=stat.size_bytes, mtime_ns=modified, loose=True)
