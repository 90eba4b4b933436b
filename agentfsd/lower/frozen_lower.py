"""A lower as it was at one moment: a clone of its files, and what stat(2) showed of the originals."""

import errno
import itertools
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, cast

from agentfs_host.descent import join
from agentfs_host.plain_paths import NOT_NAMES
from agentfsd.domain_errors import DamagedContent
from agentfsd.lower.frozen_index import FrozenEntry, FrozenIndex
from agentfsd.lower.host_lower import HostLower
from agentfsd.types import LowerEntry

NAME_MAX = 255  # bytes
_CACHED_ENTRIES = 4096  # about as many are kept in memory


class FrozenLower(HostLower):
    """A Lower that never changes. Any thread may call its methods.

    This class is for a snapshot by the file system, in which only st_dev differs from the original's. Nothing of it is ever
    written, and descriptors of its files are given to nobody: fstat(2) of them shows the clone, so use stat_open().
    """

    frozen = True

    def __init__(self, clone: str, original: HostLower) -> None:
        """Open a clone.

        Args:
            clone: path of its directory.
            original: the lower that it is a clone of, which must stay open.

        Raises:
            OSError: there is no such directory.
        """
        super().__init__(clone, share=original.share)
        self._original = original
        self._device = original.device()
        self._stats: dict[bytes, os.stat_result] = {}
        self._clone_device = os.fstat(self.root_fd).st_dev

    @property
    def description(self) -> str:
        return self._original.description

    def device(self) -> int:
        return self._device

    def stat(self, path: bytes) -> os.stat_result:
        status = self._stats.get(path)
        if status is None:
            status = self._translated(super().stat(path))
            if len(self._stats) >= _CACHED_ENTRIES:
                self._stats.clear()
            self._stats[path] = status
        return status

    def stat_open(self, path: bytes, fd: int) -> os.stat_result:
        return self._translated(os.fstat(fd))

    def open_to_give(self, path: bytes, flags: int) -> int:
        raise PermissionError(errno.EPERM, "it cannot be given away here")

    def statvfs(self) -> os.statvfs_result:
        return self._original.statvfs()

    def _translated(self, status: os.stat_result) -> os.stat_result:
        if status.st_dev != self._clone_device:
            return status
        shown, others = cast(tuple[Any, tuple[tuple[int, ...], dict[str, Any]]], status.__reduce__())[1]
        return os.stat_result((*shown[:2], self._device, *shown[3:]), others)


class _Part:
    """Entries of a directory, all or a part, and the stat results that were asked for."""

    __slots__ = ("entries", "stats")

    def __init__(self, entries: dict[bytes, FrozenEntry]) -> None:
        self.entries = entries
        self.stats: dict[bytes, os.stat_result] = {}


class IndexedLower(FrozenLower):
    """A frozen lower whose attributes are in an index; its clone has only the contents."""

    def __init__(self, clone: str, index: FrozenIndex, original: HostLower) -> None:
        super().__init__(clone, original)
        self._index = index
        self._parts: OrderedDict[tuple[bytes, int], _Part] = OrderedDict()  # least recently used first
        self._kept_entries = 0
        self._root_status = index.root.status(self._device)

    def close(self) -> None:
        super().close()
        self._index.close()

    def stat(self, path: bytes) -> os.stat_result:
        if not path:
            return self._root_status
        parent, name = _split(path)
        part = self._part(parent, name)
        status = part.stats.get(name)
        if status is None:
            status = _entry_in(part, name).status(self._device)
            part.stats[name] = status
        return status

    def stat_open(self, path: bytes, fd: int) -> os.stat_result:
        return self.stat(path)

    def open(self, path: bytes) -> int:
        entry = self._entry(path)
        if not stat.S_ISREG(entry.mode):
            raise OSError(errno.ESTALE, "not a regular file any more")
        if entry.unreadable:
            raise OSError(entry.unreadable, os.strerror(entry.unreadable))
        try:
            return super().open(path)
        except OSError as exc:
            raise self._lost(path, exc) from exc

    def readdir(self, path: bytes) -> list[LowerEntry]:
        if path not in self._index:
            raise self._no_listing(path)
        entries = self._index.listing(path)
        return [LowerEntry(name, entry.listed_type, entry.listed_ino) for name, entry in entries.items()]

    def readlink(self, path: bytes) -> bytes:
        if not stat.S_ISLNK(self._entry(path).mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        try:
            return super().readlink(path)
        except OSError as exc:
            raise self._lost(path, exc) from exc

    def getxattr(self, path: bytes, name: bytes) -> bytes:
        found = (self._entry(path).xattrs or {}).get(name)
        if found is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        return found

    def listxattr(self, path: bytes) -> list[bytes]:
        return list(self._entry(path).xattrs or ())

    def damage(self) -> Iterator[str]:
        for directory in self._index.directories():
            try:
                entries = self._index.listing(directory)
            except OSError as exc:
                yield str(exc.strerror)
                continue
            for name, entry in entries.items():
                path = join(directory, name)
                if not (entry.failed or entry.unreadable) and not self._is_kept(path, entry):
                    yield f"{os.fsdecode(path)!r} is missing or cut off in {self.place()}"
            yield ""

    def _is_kept(self, path: bytes, entry: FrozenEntry) -> bool:
        """Whether the clone has what an entry says. FIFOs, sockets and device nodes need not be there."""
        if entry.listed_type == 0:
            return True
        try:
            status = HostLower.stat(self, path)
        except OSError:
            return False
        is_whole = status.st_size == entry.size or not stat.S_ISREG(entry.mode)
        return is_whole and stat.S_IFMT(status.st_mode) == stat.S_IFMT(entry.mode)

    # -- the index

    def _entry(self, path: bytes) -> FrozenEntry:
        if not path:
            return self._index.root
        parent, name = _split(path)
        return _entry_in(self._part(parent, name), name)

    def _part(self, directory: bytes, name: bytes) -> _Part:
        """Return the part of a directory in which *name* is, if it is there."""
        key = directory, self._index.part_of(directory, name)
        with self._lock:
            known = self._parts.get(key)
            if known is not None:
                self._parts.move_to_end(key)
                return known
        if directory not in self._index:
            raise self._no_listing(directory)
        made = _Part(self._index.part(*key))
        with self._lock:
            self._keep(key, made)
        return made

    def _keep(self, key: tuple[bytes, int], made: _Part) -> None:
        if key in self._parts:  # another thread was faster
            return
        self._parts[key] = made
        self._kept_entries += len(made.entries)
        while self._kept_entries > _CACHED_ENTRIES and len(self._parts) > 1:
            _, dropped = self._parts.popitem(last=False)
            self._kept_entries -= len(dropped.entries)

    def _no_listing(self, path: bytes) -> OSError:
        """Return the error of a path to a directory that has no listing. It may be deeper than Python's stack."""
        on_the_way = itertools.chain((b"",), itertools.accumulate(path.split(b"/"), lambda above, name: above + b"/" + name))
        above = next(at for at in on_the_way if at not in self._index)
        try:
            entry = self._entry(above)
        except OSError as exc:
            return exc
        if not stat.S_ISDIR(entry.mode):
            return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        number = self._index.unlistable.get(above, errno.EIO)
        return OSError(number, os.strerror(number))

    def _lost(self, path: bytes, exc: OSError) -> OSError:
        if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            return exc
        return DamagedContent(f"{os.fsdecode(path)!r} is missing from the frozen base in {self.place()}: {exc.strerror}")


def _split(path: bytes) -> tuple[bytes, bytes]:
    parent, slash, name = path.rpartition(b"/")
    if slash and not parent:
        raise _absent(b"")
    return parent, name


def _entry_in(part: _Part, name: bytes) -> FrozenEntry:
    entry = part.entries.get(name)
    if entry is None:
        raise _absent(name)
    if entry.failed:
        raise OSError(entry.failed, os.strerror(entry.failed))
    return entry


def _absent(name: bytes) -> OSError:
    if name in NOT_NAMES or b"\0" in name:
        return OSError(errno.EINVAL, "not a path beneath the root: names and single slashes only")
    if len(name) > NAME_MAX:
        return OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
