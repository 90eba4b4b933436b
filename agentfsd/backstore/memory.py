"""Content objects in memory (memfd), moved to unlinked files on disk above a size or a total. They go with the daemon.

A move is invisible: whoever has the object open goes on with the same content, holes and times.
"""

import errno
import os
import threading
from collections.abc import Iterator

from agentfsd.backstore.copy import copy, write_all
from agentfsd.types import ContentFile

_NO_ROOM = (errno.ENOMEM, errno.ENOSPC)


class _Object:
    """The descriptor that holds one object now, shared by all who have it open."""

    __slots__ = ("blocks", "fd", "in_memory", "users")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.in_memory = True
        self.users = 1  # the table's own, then one for each open
        self.blocks = 0  # as counted in the store's totals


class MemoryFile:
    """An open object."""

    __slots__ = ("_object", "_store")

    def __init__(self, store: "MemoryBackstore", held: _Object) -> None:
        self._store = store
        self._object: _Object | None = held

    @property
    def _held(self) -> _Object:
        if self._object is None:
            raise ValueError("closed")
        return self._object

    def fileno(self) -> int:
        return self._held.fd

    def pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._held.fd, size, offset)

    def pwrite(self, data: bytes, offset: int) -> int:
        return self._store.write(self._held, data, offset)

    def truncate(self, size: int) -> None:
        self._store.truncate(self._held, size)

    def stat(self) -> os.stat_result:
        return os.fstat(self._held.fd)

    def utime(self, atime_ns: int, mtime_ns: int) -> None:
        os.utime(self._held.fd, ns=(atime_ns, mtime_ns))

    def sync(self, data_only: bool) -> None:
        """Nothing to do: the content goes with the process anyway."""

    def close(self) -> None:
        if self._object is not None:
            held, self._object = self._object, None
            self._store.let_go(held)


class MemoryBackstore:
    """See types.Backstore. Limits and usage count what is really allocated (blocks), so holes cost nothing."""

    kind = "memory"
    persistent = False

    def __init__(self, spill_root: str, *, spill_object_bytes: int = 64 << 20, spill_total_bytes: int = 1 << 30) -> None:
        """*spill_root*: where spilled objects lie, as files without names; made when missing."""
        os.makedirs(spill_root, mode=0o700, exist_ok=True)
        self._spill_root = spill_root
        self._object_limit, self._total_limit = spill_object_bytes, spill_total_bytes
        self._objects: dict[int, _Object] = {}
        self._lock = threading.RLock()  # a clone may run in a worker thread
        self._memory_blocks = self._spilled_blocks = 0

    def close(self) -> None:
        with self._lock:
            for number in list(self._objects):
                self.remove(number)

    def create(self, object_id: int) -> ContentFile:
        with self._lock:
            if object_id in self._objects:
                raise FileExistsError(errno.EEXIST, "object exists")
            held = _Object(os.memfd_create(f"agentfsd-{object_id}", os.MFD_CLOEXEC))
            self._objects[object_id] = held
            held.users += 1
            return MemoryFile(self, held)

    def _find(self, object_id: int) -> _Object:
        try:
            return self._objects[object_id]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such object") from None

    def open(self, object_id: int) -> ContentFile:
        with self._lock:
            held = self._find(object_id)
            held.users += 1
            return MemoryFile(self, held)

    def stat(self, object_id: int) -> os.stat_result:
        return os.fstat(self._find(object_id).fd)

    def clone(self, source_fd: int, object_id: int) -> ContentFile:
        made = self.create(object_id)
        try:
            held = self._find(object_id)
            size = os.fstat(source_fd).st_blocks * 512
            with self._lock:
                if self._too_large(held, size):
                    self._spill(held)
            try:
                copy(source_fd, held.fd)
            except OSError as exc:
                if exc.errno not in _NO_ROOM or not held.in_memory:
                    raise
                with self._lock:
                    os.ftruncate(held.fd, 0)
                    self._spill(held)
                copy(source_fd, held.fd)
            with self._lock:
                self._count(held)
        except BaseException:
            made.close()
            self.remove(object_id)
            raise
        return made

    def remove(self, object_id: int) -> None:
        with self._lock:
            held = self._objects.pop(object_id, None)
            if held is not None:
                self.let_go(held)

    def let_go(self, held: _Object) -> None:
        """One user less; the last one frees the content."""
        with self._lock:
            held.users -= 1
            if held.users:
                return
            self._recount(held, 0)
            os.close(held.fd)

    # -- sizes

    def write(self, held: _Object, data: bytes, offset: int) -> int:
        with self._lock:
            if held.in_memory and self._too_large(held, held.blocks * 512 + len(data)):
                self._spill(held)
            try:
                done = write_all(held.fd, data, offset)
            except OSError as exc:
                if exc.errno not in _NO_ROOM or not held.in_memory:
                    raise
                self._spill(held)
                done = write_all(held.fd, data, offset)
            self._count(held)
            return done

    def truncate(self, held: _Object, size: int) -> None:
        with self._lock:
            os.ftruncate(held.fd, size)
            self._count(held)

    def _too_large(self, held: _Object, size_bytes: int) -> bool:
        total = (self._memory_blocks - held.blocks) * 512 + size_bytes
        return size_bytes > self._object_limit or total > self._total_limit

    def _spill(self, held: _Object) -> None:
        """Moves the content to a file without a name."""
        fd = os.open(self._spill_root, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            copy(held.fd, fd)
            found = os.fstat(held.fd)
            os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))
        except BaseException:
            os.close(fd)
            raise
        self._recount(held, 0)
        # The number of the descriptor stays: whoever asked for it a moment ago still has the right file.
        os.dup2(fd, held.fd, inheritable=False)
        os.close(fd)
        held.in_memory = False
        self._count(held)

    def _count(self, held: _Object) -> None:
        self._recount(held, os.fstat(held.fd).st_blocks)

    def _recount(self, held: _Object, blocks: int) -> None:
        if held.in_memory:
            self._memory_blocks += blocks - held.blocks
        else:
            self._spilled_blocks += blocks - held.blocks
        held.blocks = blocks

    def ids(self) -> Iterator[int]:
        return iter(list(self._objects))

    def statvfs(self) -> os.statvfs_result:
        """Of the disk that takes what memory cannot."""
        return os.statvfs(self._spill_root)

    def usage(self) -> dict[str, int]:
        with self._lock:
            spilled = sum(not held.in_memory for held in self._objects.values())
            return {
                "objects": len(self._objects),
                "bytes": (self._memory_blocks + self._spilled_blocks) * 512,
                "spilled_objects": spilled,
                "spilled_bytes": self._spilled_blocks * 512,
            }
