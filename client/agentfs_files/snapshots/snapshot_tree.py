"""Read a directory tree as a list of entries, without following a symlink and without crossing into another mount.

This module knows nothing of snapshots: its callers decide what to do with the entries.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from agentfs_files.trees.tree_source import PathEntry
from agentfs_host import xattrs
from agentfs_host.descent import Descent, join
from agentfs_host.mount_table import mounts_beneath

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ESTALE)
_SETTLED_NS: Final = 100_000_000  # ns; the granularity of change times is finer than this on every kernel
_SECOND_NS: Final = 1_000_000_000


class SnapshotEntry(msgspec.Struct, PathEntry, array_like=True, frozen=True, gc=False):
    """One name in a tree; the root's path is empty. *mode* includes the type, *size* is in bytes.

    *inode*, *ctime_ns*, *size*, *mtime_ns* and *mode* together form a signature: a file that still has these values has not
    changed in content or attributes. *ctime_ns* is 0 if the file changed too recently for that conclusion. *content* is the
    strategy's name for the content, empty if it is not known.
    """

    path: bytes
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int
    links: int
    rdev: int = 0
    target: bytes = b""
    xattrs: dict[bytes, bytes] = {}
    content: bytes = b""
    is_sparse: bool = False

    @property
    def group(self) -> int:
        """A value that all names of one file share; 0 if the file has one name."""
        return self.inode if self.links > 1 and not self.is_dir else 0

    def attributes(self) -> tuple[object, ...]:
        """The attributes of the file, without its content."""
        return (self.mode, self.uid, self.gid, self.mtime_ns, self.xattrs)


class Scan:
    """The present entries of a tree: a directory before its content, siblings by name.

    An entry of *known* whose signature still holds is returned as it is. ``foreign`` lists mount points and btrfs subvolumes,
    which are skipped. ``unreadable`` lists directories that this process may not list; they raise an error unless *is_lenient*.
    """

    def __init__(self, beneath: Descent, known: Mapping[bytes, SnapshotEntry] | None = None, *, is_lenient: bool = False) -> None:
        self._beneath, self._known, self._is_lenient = beneath, known or {}, is_lenient
        root = os.fstat(beneath.fd(b""))
        self._device = root.st_dev
        self.horizon_ns = horizon()
        self.foreign = mounts_beneath(beneath.fd(b""))
        self.unreadable: set[bytes] = set()
        self._root = self._entry(b"", root, b"/proc/self/fd/%d/." % beneath.fd(b""))

    def __iter__(self) -> Iterator[SnapshotEntry]:
        stack = [iter([self._root])]
        while stack:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
            elif not entry.is_dir:
                yield entry
            elif (children := self._children(entry)) is not None:
                yield entry
                stack.append(iter(children))

    def _children(self, directory: SnapshotEntry) -> list[SnapshotEntry] | None:
        try:
            return self._list(directory.path)
        except PermissionError as exc:
            if not self._is_lenient:
                raise named(exc, directory.path) from exc
            self.unreadable.add(directory.path)
            return []
        except OSError as exc:
            if exc.errno in _GONE and directory.path:  # deleted between listing and opening
                return None
            raise named(exc, directory.path) from exc

    def _list(self, path: bytes) -> list[SnapshotEntry]:
        fd = self._beneath.fd(path)
        listed = []
        with os.scandir(fd) as names:
            for item in names:
                try:
                    listed.append((os.fsencode(item.name), item.stat(follow_symlinks=False)))
                except FileNotFoundError:
                    continue
        listed.sort(key=_first)
        entries = []
        for name, info in listed:
            inner = join(path, name)
            if inner in self.foreign:
                continue
            if stat.S_ISDIR(info.st_mode) and info.st_dev != self._device:
                self.foreign.add(inner)
                continue
            try:
                entries.append(self._entry(inner, info, b"/proc/self/fd/%d/%s" % (fd, name)))
            except FileNotFoundError:
                continue
        return entries

    def _entry(self, path: bytes, info: os.stat_result, where: bytes) -> SnapshotEntry:
        known = self._known.get(path)
        if known is not None and is_signature(known, info) and not known.is_dir:
            return known
        return make_entry(path, info, where, self.horizon_ns)


def make_entry(path: bytes, info: os.stat_result, where: bytes | int, horizon_ns: int) -> SnapshotEntry:
    """Return an entry. A file that changed after *horizon_ns* gets no signature.

    Args:
        where: a path, or the descriptor of a file, for reading what stat does not contain.
    """
    is_file = stat.S_ISREG(info.st_mode)
    is_node = stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode)
    return SnapshotEntry(
        path, info.st_mode, info.st_uid, info.st_gid,
        info.st_size if is_file else 0,
        info.st_mtime_ns, info.st_ino,
        info.st_ctime_ns if is_settled(info.st_ctime_ns, horizon_ns) else 0,
        info.st_nlink,
        info.st_rdev if is_node else 0,
        os.readlink(where) if stat.S_ISLNK(info.st_mode) and isinstance(where, bytes) else b"",
        xattrs.read_all(where, follow=False),
        is_sparse=is_file and info.st_blocks * 512 < info.st_size,
    )  # fmt: skip


def horizon() -> int:
    """Return a time such that a file that changed before it, and changes again from now on, gets another change time."""
    return time.time_ns() - _SETTLED_NS


def is_settled(ctime_ns: int, horizon_ns: int) -> bool:
    """Tell whether a later change would show in the change time. A time in whole seconds must be two seconds older, since the
    file system may have no finer times.
    """
    return ctime_ns < horizon_ns - (0 if ctime_ns % _SECOND_NS else 2 * _SECOND_NS)


def is_signature(entry: SnapshotEntry, info: os.stat_result) -> bool:
    return (
        entry.ctime_ns == info.st_ctime_ns != 0
        and entry.inode == info.st_ino
        and entry.mtime_ns == info.st_mtime_ns
        and entry.mode == info.st_mode
        and (entry.size == info.st_size or not entry.is_file)
    )


def open_file(beneath: Descent, path: bytes) -> int | None:
    """Return a descriptor for reading; None if there is no regular file any more. Never blocks on a FIFO."""
    directory, _, name = path.rpartition(b"/")
    try:
        fd = os.open(name, _FILE, dir_fd=beneath.fd(directory))
    except OSError as exc:
        if exc.errno in _GONE:
            return None
        raise named(exc, path) from exc
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return fd


def capture(
    beneath: Descent, path: bytes, horizon_ns: int, read: Callable[[int], tuple[bytes, int]], attempts: int = 3
) -> SnapshotEntry | None:
    """Read a regular file in a consistent state, and return its entry; None if it no longer exists.

    *read* reads the file by descriptor and returns the content's name and its size. If the file changed meanwhile, *read* is
    called again, up to *attempts* times. After that the entry is returned without a signature.
    """
    fd = open_file(beneath, path)
    if fd is None:
        return None
    try:
        while True:
            attempts -= 1
            before = os.fstat(fd)
            os.lseek(fd, 0, os.SEEK_SET)
            content, size = read(fd)
            entry = msgspec.structs.replace(make_entry(path, before, fd, horizon_ns), content=content, size=size)
            after = os.fstat(fd)
            if (before.st_ctime_ns, before.st_size) == (after.st_ctime_ns, after.st_size):
                return entry
            if not attempts:
                return msgspec.structs.replace(entry, ctime_ns=0)
    finally:
        os.close(fd)


def named(exc: OSError, path: bytes) -> OSError:
    """Return the same error with the path beneath the root, which is missing in errors of calls with a directory descriptor."""
    return type(exc)(exc.errno, exc.strerror, os.fsdecode(path) or ".")


def _first(item: tuple[bytes, os.stat_result]) -> bytes:
    return item[0]
