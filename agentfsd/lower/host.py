"""The lower as a directory of this machine, held by descriptor from before anything is mounted over it.

Every path becomes (directory descriptor, one name) at one place, beneath the root and without following a symlink.
"""

import errno
import os
import stat
import threading
import time
from collections import OrderedDict

from agentfsd.lower.openat2 import directory_beneath
from agentfsd.types import LowerEntry

CACHE_SIZE = 256
CACHE_S = 1.0  # a directory that was renamed or replaced in the lower shows within this time

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class _Directory:
    """A held directory; its descriptor is closed when nobody uses it any more, also if the cache dropped it first."""

    __slots__ = ("fd", "until")

    def __init__(self, fd: int, until: float) -> None:
        self.fd, self.until = fd, until

    def __del__(self) -> None:
        os.close(self.fd)


class HostLower:
    """See types.Lower. Any thread may call."""

    def __init__(self, root: str) -> None:
        """OSError when *root* is no directory that can be entered."""
        self._description = os.path.abspath(root)
        self._root = _Directory(os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), float("inf"))
        self._masks: dict[bytes, _Directory] = {}
        self._cache: OrderedDict[bytes, _Directory] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def description(self) -> str:
        return self._description

    def mask(self, path: bytes) -> None:
        """Call before something is mounted on *path*: access there and below goes on to what the mount hides.

        Without this the daemon would look into its own mount and wait for itself.
        """
        self._masks[path] = _Directory(directory_beneath(self._root.fd, path), float("inf"))

    def close(self) -> None:
        self._cache.clear()
        self._masks.clear()

    # -- the one place where a path becomes a descriptor and a name

    def _directory(self, path: bytes) -> _Directory:
        if not path:
            return self._root
        now = time.monotonic()
        with self._lock:
            known = self._cache.get(path)
            if known is not None and known.until > now:
                return known
        found = self._masks.get(path) or self._open_directory(path, now)
        with self._lock:
            self._cache[path] = found
            self._cache.move_to_end(path)
            while len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        return found

    def _open_directory(self, path: bytes, now: float) -> _Directory:
        for masked, directory in self._masks.items():
            if path.startswith(masked + b"/"):
                return _Directory(directory_beneath(directory.fd, path[len(masked) + 1 :]), now + CACHE_S)
        return _Directory(directory_beneath(self._root.fd, path), now + CACHE_S)

    def _place(self, path: bytes) -> tuple[_Directory, bytes]:
        parent, _, name = path.rpartition(b"/")
        if name in (b".", b".."):
            raise PermissionError(errno.EACCES, "a path must not contain . or ..")
        return self._directory(parent), name

    # -- types.Lower

    def stat(self, path: bytes) -> os.stat_result:
        if not path or path in self._masks:
            return os.fstat(self._directory(path).fd)
        directory, name = self._place(path)
        return os.stat(name, dir_fd=directory.fd, follow_symlinks=False)

    def open(self, path: bytes) -> int:
        """ESTALE when what is there is no regular file any more."""
        directory, name = self._place(path)
        try:
            fd = self._open_quietly(name, directory.fd)
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.ENXIO):
                raise OSError(errno.ESTALE, "not a regular file any more") from None
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.ESTALE, "not a regular file any more")
        return fd

    @staticmethod
    def _open_quietly(name: bytes, directory_fd: int) -> int:
        """Without touching the file's atime, where we may."""
        try:
            return os.open(name, _READ | os.O_NOATIME, dir_fd=directory_fd)
        except PermissionError:
            return os.open(name, _READ, dir_fd=directory_fd)

    def readdir(self, path: bytes) -> list[LowerEntry]:
        held = self._directory(path)
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held.fd)
        try:
            with os.scandir(fd) as entries:
                return [LowerEntry(os.fsencode(entry.name), _type_of(entry), entry.inode()) for entry in entries]
        finally:
            os.close(fd)

    def readlink(self, path: bytes) -> bytes:
        directory, name = self._place(path)
        return os.readlink(name, dir_fd=directory.fd)

    def getxattr(self, path: bytes, name: bytes) -> bytes:
        """ENODATA also where the file system has no such attributes at all."""
        held, reached = self._reach(path)
        try:
            return os.getxattr(reached, name, follow_symlinks=False)
        except OSError as exc:
            if exc.errno == errno.ENOTSUP:
                raise OSError(errno.ENODATA, os.strerror(errno.ENODATA)) from None
            raise
        finally:
            del held

    def listxattr(self, path: bytes) -> list[bytes]:
        held, reached = self._reach(path)
        try:
            return [os.fsencode(name) for name in os.listxattr(reached, follow_symlinks=False)]
        except OSError as exc:
            if exc.errno == errno.ENOTSUP:
                return []
            raise
        finally:
            del held

    def _reach(self, path: bytes) -> tuple[_Directory, bytes]:
        """A path for calls that take no directory descriptor; it is good while the first value is held."""
        if not path or path in self._masks:
            held = self._directory(path)
            return held, b"/proc/self/fd/%d/." % held.fd
        held, name = self._place(path)
        return held, b"/proc/self/fd/%d/%s" % (held.fd, name)

    def statvfs(self) -> os.statvfs_result:
        return os.fstatvfs(self._root.fd)


def _type_of(entry: "os.DirEntry[str]") -> int:
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0
