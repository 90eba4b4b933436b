"""Content objects as files of a directory, named by number. They outlive the daemon."""

import errno
import os
from collections.abc import Iterator

from agentfsd.backstore.copy import copy, reflink, write_all
from agentfsd.types import ContentFile

_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOATIME
_TEMPORARY = ".new"


class HostFile:
    """An open object: a plain descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def pwrite(self, data: bytes, offset: int) -> int:
        return write_all(self._fd, data, offset)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def stat(self) -> os.stat_result:
        return os.fstat(self._fd)

    def utime(self, atime_ns: int, mtime_ns: int) -> None:
        os.utime(self._fd, ns=(atime_ns, mtime_ns))

    def sync(self, data_only: bool) -> None:
        (os.fdatasync if data_only else os.fsync)(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class HostBackstore:
    """See types.Backstore. Objects lie in 256 directories by the low byte of their number."""

    kind = "hostfs"
    persistent = True

    def __init__(self, root: str) -> None:
        """Makes *root* when it is missing."""
        os.makedirs(root, mode=0o700, exist_ok=True)
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._shards = set(os.listdir(self._root))
        self._no_reflink: set[int] = set()  # devices that cannot share blocks with us

    def close(self) -> None:
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _name(self, object_id: int) -> str:
        return f"{object_id & 0xFF:02x}/{object_id:x}"

    def _create(self, object_id: int, suffix: str = "") -> int:
        shard = f"{object_id & 0xFF:02x}"
        if shard not in self._shards:
            try:
                os.mkdir(shard, 0o700, dir_fd=self._root)
            except FileExistsError:
                pass
            self._shards.add(shard)
        return os.open(self._name(object_id) + suffix, _OPEN | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._root)

    def create(self, object_id: int) -> ContentFile:
        return HostFile(self._create(object_id))

    def open(self, object_id: int) -> ContentFile:
        return HostFile(os.open(self._name(object_id), _OPEN, dir_fd=self._root))

    def stat(self, object_id: int) -> os.stat_result:
        return os.stat(self._name(object_id), dir_fd=self._root, follow_symlinks=False)

    def clone(self, source_fd: int, object_id: int) -> ContentFile:
        """The object gets its name only when it is complete."""
        name, temporary = self._name(object_id), self._name(object_id) + _TEMPORARY
        fd = self._create(object_id, _TEMPORARY)
        try:
            self._fill(source_fd, fd)
            os.link(temporary, name, src_dir_fd=self._root, dst_dir_fd=self._root, follow_symlinks=False)
            os.unlink(temporary, dir_fd=self._root)
        except BaseException:
            os.close(fd)
            os.unlink(temporary, dir_fd=self._root)
            raise
        return HostFile(fd)

    def _fill(self, source_fd: int, fd: int) -> None:
        device = os.fstat(source_fd).st_dev
        if device not in self._no_reflink:
            if reflink(source_fd, fd):
                return
            self._no_reflink.add(device)
        copy(source_fd, fd)

    def remove(self, object_id: int) -> None:
        for name in (self._name(object_id), self._name(object_id) + _TEMPORARY):
            try:
                os.unlink(name, dir_fd=self._root)
                return
            except FileNotFoundError:
                continue

    def ids(self) -> Iterator[int]:
        for shard in sorted(os.listdir(self._root)):
            fd = os.open(shard, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._root)
            try:
                names = os.listdir(fd)
            finally:
                os.close(fd)
            yield from (int(name, 16) for name in names if not name.endswith(_TEMPORARY))

    def statvfs(self) -> os.statvfs_result:
        return os.fstatvfs(self._root)

    def usage(self) -> dict[str, int]:
        """Walks every object."""
        objects = blocks = 0
        for number in self.ids():
            try:
                blocks += self.stat(number).st_blocks
            except OSError as exc:
                if exc.errno != errno.ENOENT:
                    raise
                continue
            objects += 1
        return {"objects": objects, "bytes": blocks * 512}
