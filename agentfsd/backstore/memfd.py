"""Content objects in memory (memfd), moved to unlinked files on disk above a size or a total. They go with the daemon.

A move is invisible: whoever has the object open goes on with the same content, holes and times. It knows nothing of
branches or names.
"""

import errno
import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator

from agentfs_host import syscalls
from agentfs_host.copying import copy, copy_content, copy_part, data_bytes, round_up, touch_atime, write_all
from agentfsd.backstore.backstore_kind import BackstoreKind, BackstoreOptions
from agentfsd.domain_errors import DamagedContent
from agentfsd.types import Aside, ContentFile

NAME = "memory"
_COPY_BYTES = 1 << 20  # at a time
_NO_ROOM = (errno.ENOMEM, errno.ENOSPC)
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)  # what O_TMPFILE says where it is unknown


class _Object:
    """The descriptor that currently holds an object's content, shared by all opens of it."""

    __slots__ = ("blocks", "fd", "in_memory", "users")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.in_memory = True
        self.users = 1  # the table's own, then one for each open
        self.blocks = 0  # as counted in the store's totals; of 512 bytes


class MemoryFile:
    """An open object."""

    __slots__ = ("_object", "_store")
    stays = False
    is_readonly = False

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

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        return self._store.write(self._held, data, offset)

    def truncate(self, size: int) -> None:
        self._store.truncate(self._held, size)

    def stat(self) -> os.stat_result:
        return os.fstat(self._held.fd)

    def utime(self, atime_ns: int, mtime_ns: int) -> None:
        os.utime(self._held.fd, ns=(atime_ns, mtime_ns))

    def touch_atime(self) -> bool:
        return touch_atime(self._held.fd)

    def sync(self, data_only: bool) -> None:
        """Do nothing: the content ends with the process."""

    def allocate(self, mode: int, offset: int, length: int) -> None:
        self._store.allocate(self._held, mode, offset, length)

    def give_name(self, object_id: int) -> None:
        self._store.enter(self._held, object_id)

    def copy_from(self, source_fd: int, from_offset: int, to_offset: int, length: int) -> int:
        return self._store.copy_into(self._held, source_fd, from_offset, to_offset, length)

    def start_writeback(self) -> None:
        """Do nothing: the content ends with the process."""

    def reopen(self, flags: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "what is in memory may move to a disk")

    def is_open_elsewhere(self) -> bool:
        return True

    def close(self) -> None:
        if self._object is not None:
            held, self._object = self._object, None
            self._store.let_go(held)


class MemoryBackstore:
    """See types.Backstore. Limits and usage count what is allocated (st_blocks), not the apparent size: holes cost nothing.

    What was removed while somebody has it open still counts in the bytes, until the last close.
    """

    kind = NAME
    persistent = False
    native_snapshots = "none"

    def __init__(
        self, spill_root: str, *, spill_object_bytes: int = 64 << 20, spill_total_bytes: int = 1 << 30, share: bool = True
    ) -> None:
        """*spill_root*: where spilled objects lie, as files without names; made when missing. *share*: their blocks, where
        the file system can."""
        os.makedirs(spill_root, mode=0o700, exist_ok=True)
        self.place = spill_root
        self._object_limit, self._total_limit = spill_object_bytes, spill_total_bytes
        self._objects: dict[int, _Object] = {}
        self._lock = threading.RLock()  # a clone may run in a worker thread
        self._memory_blocks = self._spilled_blocks = 0
        self._no_reflink: set[int] | None = set() if share else None  # for what is spilled

    def close(self) -> None:
        with self._lock:
            for number in list(self._objects):
                self.remove(number)

    def create(self, object_id: int) -> ContentFile:
        with self._lock:
            self._check_free(object_id)
            return self._enter(object_id, _new_object())

    def create_unnamed(self) -> ContentFile:
        return MemoryFile(self, _new_object())

    def enter(self, held: _Object, object_id: int) -> None:
        """Register an object under its number."""
        with self._lock:
            self._check_free(object_id)
            self._enter(object_id, held)

    def _check_free(self, object_id: int) -> None:
        if object_id in self._objects:
            raise FileExistsError(errno.EEXIST, "object exists")

    def _enter(self, object_id: int, held: _Object) -> ContentFile:
        self._objects[object_id] = held
        held.users += 1
        return MemoryFile(self, held)

    def _find(self, object_id: int) -> _Object:
        try:
            return self._objects[object_id]
        except KeyError:
            raise DamagedContent(f"object {object_id} is missing") from None

    def open(self, object_id: int) -> ContentFile:
        with self._lock:
            held = self._find(object_id)
            held.users += 1
            return MemoryFile(self, held)

    def stat(self, object_id: int) -> os.stat_result:
        with self._lock:
            return os.fstat(self._find(object_id).fd)

    def clone(self, source_fd: int, object_id: int, max_copy_bytes: int | None = None) -> ContentFile:
        """The object gets its number when it is complete."""
        if max_copy_bytes is not None and data_bytes(source_fd) > max_copy_bytes:
            raise OSError(errno.EFBIG, f"more than {max_copy_bytes} bytes would have to be copied")
        with self._lock:
            self._check_free(object_id)
        held = _new_object()
        try:
            self._fill(source_fd, held)
            with self._lock:
                self._check_free(object_id)
                return self._enter(object_id, held)
        except BaseException:
            self.let_go(held)
            raise

    def take(self, directory: int, name: bytes, object_id: int) -> os.stat_result:
        """Always refused: contents are in memory."""
        raise OSError(errno.EOPNOTSUPP, "a backstore in memory takes no files")

    def share(self, object_id: int, new_id: int) -> bool:
        """Always False: each number has a descriptor of its own."""
        return False

    def _fill(self, source_fd: int, held: _Object) -> None:
        size_bytes = data_bytes(source_fd)
        with self._lock:
            if self._too_large(held, size_bytes):
                self._spill(held)
            self._recount(held, size_bytes // 512)  # taken already: other threads choose by what is left
        try:
            self._copy_into(source_fd, held)
        except OSError as exc:
            if exc.errno not in _NO_ROOM or not held.in_memory:
                raise
            os.ftruncate(held.fd, 0)
            with self._lock:
                self._spill(held)
            self._copy_into(source_fd, held)
        with self._lock:
            self._count(held)

    def _copy_into(self, source_fd: int, held: _Object) -> None:
        if held.in_memory:
            copy(source_fd, held.fd)
        else:
            copy_content(source_fd, held.fd, self._no_reflink)

    def remove(self, object_id: int) -> None:
        with self._lock:
            held = self._objects.pop(object_id, None)
            if held is not None:
                self.let_go(held)

    def set_aside(self, object_id: int) -> None:
        """Do nothing: no object outlives the process that made it, so none is unexplained."""
        self.remove(object_id)

    def aside(self) -> list[Aside]:
        return []

    def take_back(self, object_id: int) -> bool:
        return False

    def discard_aside(self) -> None:
        """Do nothing: there is nothing aside."""

    def let_go(self, held: _Object) -> None:
        """Drop one user; the last one frees the content."""
        with self._lock:
            held.users -= 1
            if held.users:
                return
            self._recount(held, 0)
            os.close(held.fd)

    # -- sizes

    def write(self, held: _Object, data: bytes | memoryview, offset: int) -> int:
        with self._lock:
            if held.in_memory and self._too_large(held, self._size_after(held, len(data), offset)):
                self._spill(held)
            try:
                return self._write_or_spill(held, data, offset)
            finally:
                self._count(held)  # also after a write that was cut short

    def _write_or_spill(self, held: _Object, data: bytes | memoryview, offset: int) -> int:
        try:
            return write_all(held.fd, data, offset)
        except OSError as exc:
            if exc.errno not in _NO_ROOM or not held.in_memory:
                raise
        self._spill(held)
        return write_all(held.fd, data, offset)

    def copy_into(self, held: _Object, source_fd: int, from_offset: int, to_offset: int, length: int) -> int:
        with self._lock:
            if held.in_memory:
                return self.write(held, os.pread(source_fd, min(length, _COPY_BYTES), from_offset), to_offset)
            try:
                share = self._no_reflink is not None
                return copy_part(source_fd, held.fd, from_offset, to_offset, length, share=share)
            finally:
                self._count(held)

    def _size_after(self, held: _Object, length: int, offset: int) -> int:
        """Return the most bytes that can be allocated after a write. Overwriting a file without holes adds none."""
        touched = round_up(offset + length) - round_up(offset + 1 - os.sysconf("SC_PAGESIZE"))
        grown = held.blocks * 512 + touched
        if not self._too_large(held, grown):
            return grown
        return min(grown, round_up(max(os.fstat(held.fd).st_size, offset + length)))

    def allocate(self, held: _Object, mode: int, offset: int, length: int) -> None:
        with self._lock:
            takes_room = not mode & syscalls.PUNCH_HOLE and held.in_memory
            if takes_room and self._too_large(held, self._size_after(held, length, offset)):
                self._spill(held)
            try:
                syscalls.allocate(held.fd, mode, offset, length)
            finally:
                self._count(held)

    def truncate(self, held: _Object, size: int) -> None:
        with self._lock:
            os.ftruncate(held.fd, size)
            self._count(held)

    def _too_large(self, held: _Object, size_bytes: int) -> bool:
        total = (self._memory_blocks - held.blocks) * 512 + size_bytes
        return size_bytes > self._object_limit or total > self._total_limit

    def _spill(self, held: _Object) -> None:
        """Move the content to an unnamed file on disk."""
        fd = self._unnamed_file()
        try:
            copy(held.fd, fd)
            status = os.fstat(held.fd)
            os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
        except BaseException:
            os.close(fd)
            raise
        self._recount(held, 0)
        # The number of the descriptor stays: whoever asked for it a moment ago still has the right file.
        os.dup2(fd, held.fd, inheritable=False)
        os.close(fd)
        held.in_memory = False
        self._count(held)

    def _unnamed_file(self) -> int:
        try:
            fd = os.open(self.place, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            if exc.errno not in _NO_UNNAMED:
                raise
            fd, path = tempfile.mkstemp(dir=self.place)
            os.unlink(path)
        return _quiet(fd)

    def _count(self, held: _Object) -> None:
        self._recount(held, os.fstat(held.fd).st_blocks)

    def _recount(self, held: _Object, blocks: int) -> None:
        if held.in_memory:
            self._memory_blocks += blocks - held.blocks
        else:
            self._spilled_blocks += blocks - held.blocks
        held.blocks = blocks

    def ids(self) -> Iterator[int]:
        with self._lock:
            return iter(list(self._objects))

    def statvfs(self) -> os.statvfs_result:
        """Return the state of the disk that takes spilled content."""
        return os.statvfs(self.place)

    def usage(self) -> dict[str, int]:
        with self._lock:
            spilled = sum(not held.in_memory for held in self._objects.values())
            return {
                "objects": len(self._objects),
                "bytes": (self._memory_blocks + self._spilled_blocks) * 512,
                "spilled_objects": spilled,
                "spilled_bytes": self._spilled_blocks * 512,
            }


def _new_object() -> _Object:
    return _Object(_quiet(os.memfd_create("agentfsd", os.MFD_CLOEXEC)))


def _quiet(fd: int) -> int:
    """Prevent reads from updating the access time, where permitted: the object's times belong to the caller."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NOATIME)
    except PermissionError:
        pass
    return fd


def _opened(options: BackstoreOptions) -> MemoryBackstore:
    return MemoryBackstore(
        options.spill,
        spill_object_bytes=options.memory_object_bytes,
        spill_total_bytes=options.memory_total_bytes,
        share=options.shares,
    )


KIND = BackstoreKind(NAME, "the daemon's memory", _opened, spills=True)
