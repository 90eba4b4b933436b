"""The lower as a directory of this machine. The daemon opens it before it mounts anything over it, and keeps the descriptor.

One function turns each path into a directory descriptor and one name. It stays beneath the root and follows no symlink.
"""

import errno
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from agentfs_host import xattrs
from agentfs_host.plain_paths import NOT_NAMES, directory_beneath, is_plain
from agentfsd.types import LowerEntry

CACHE_SIZE = 256
CACHE_S = 1.0  # seconds after which a directory that was renamed or replaced in the lower is noticed

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_FILE = _READ | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY = _READ | os.O_DIRECTORY
_FOREVER = float("inf")


class _Directory:
    """An open directory. Its descriptor is closed when the last user drops it, even if the cache dropped it earlier."""

    __slots__ = ("fd", "until")

    def __init__(self, fd: int, until: float) -> None:
        self.fd, self.until = fd, until

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class HostLower:
    """A Lower in a directory of this machine; see types.Lower. Any thread may call its methods."""

    frozen = False

    def __init__(self, root: str | bytes, *, masks: Iterable[bytes] = (), share: bool = True, root_fd: int | None = None) -> None:
        """Open the root.

        Args:
            root: path of the directory.
            root_fd: a descriptor of it, where a mount covers the path by now; the lower owns it.
            masks: paths that mounts will cover; see mask().
            share: whether files that a commit writes here may share blocks with their sources.

        Raises:
            OSError: *root* is not a directory, or this process may not search it.
        """
        self.share = share
        self._description = os.path.abspath(os.fsdecode(root))
        fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if root_fd is None else root_fd
        self._root = _Directory(fd, _FOREVER)
        self._masks: dict[bytes, _Directory] = {}  # sorted by length, longest path first
        self._cache: OrderedDict[bytes, _Directory] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()
        self.reader_root = -1  # a read-only mount of the root, for descriptors that programs get; its maker closes it
        for path in masks:
            self.mask(path)

    @property
    def root_fd(self) -> int:
        """A descriptor of the root, which stays the lower's."""
        return self._root.fd

    def place(self) -> str:
        """The root's present path according to the kernel. It ends with " (deleted)" if the root was removed."""
        return os.readlink(f"/proc/self/fd/{self._root.fd}")

    def damage(self) -> Iterator[str]:
        return iter(())

    def device(self) -> int:
        """st_dev of the root."""
        return os.fstat(self._root.fd).st_dev

    @property
    def description(self) -> str:
        return self._description

    def mask(self, path: bytes, fd: int | None = None) -> int:
        """Keep the directory at *path* reachable. Call this before something is mounted on it.

        Args:
            path: the directory.
            fd: a descriptor of it, where something is mounted there already; the lower owns it.

        Returns:
            A descriptor of it, which stays the lower's.

        Later access to *path* and below reaches the directory that the mount covers. Without this the daemon would enter its own
        mount and wait for itself.
        """
        if not path:  # the root is always open
            return self._root.fd
        masked = _Directory(self._open_beneath(path) if fd is None else fd, _FOREVER)
        self._masks = dict(sorted((self._masks | {path: masked}).items(), key=lambda item: -len(item[0])))
        return masked.fd

    def forget(self) -> None:
        """Drop cached directories. Call this after the daemon renamed directories, so that no path leads to an old one."""
        with self._lock:
            self._cache.clear()

    def close(self) -> None:
        self.forget()
        self._masks = {}
        self._root = _Directory(-1, _FOREVER)

    # -- the one place where a path becomes a descriptor and a name

    def _place(self, path: bytes) -> tuple[_Directory, bytes]:
        parent, slash, name = path.rpartition(b"/")
        if name in NOT_NAMES or b"\0" in name or (slash and not parent):
            raise _no_path()
        return self._directory(parent), name

    def held(self, path: bytes) -> _Directory | None:
        """Return the root or a masked directory. A path to one may lead into a mount, so they are reached by descriptor only."""
        return self._masks.get(path) if path else self._root

    def _directory(self, path: bytes) -> _Directory:
        if not path:
            return self._root
        now = time.monotonic()
        with self._lock:
            known = self._cache.get(path)
            if known is not None and known.until > now:
                self._cache.move_to_end(path)
                return known
        return self.renew(path)

    def renew(self, path: bytes) -> _Directory:
        """Open the directory that is at *path* now, instead of a cached one, and cache it for later calls.

        Returns:
            The directory. Its O_PATH descriptor stays valid while the caller keeps the object.

        Raises:
            OSError: there is no such directory.
        """
        if not path:
            return self._root
        now = time.monotonic()
        directory = self._masks.get(path) or _Directory(self._open_beneath(path), now + CACHE_S)
        with self._lock:
            other = self._cache.get(path)
            if other is not None and other.until > directory.until:
                directory = other  # another thread opened it meanwhile, so its result is newer
            self._cache[path] = directory
            self._cache.move_to_end(path)
            while len(self._cache) > CACHE_SIZE or next(iter(self._cache.values())).until <= now:
                self._cache.popitem(last=False)  # close expired directories early: an open one may keep a file system busy
        return directory

    def _open_beneath(self, path: bytes) -> int:
        if not is_plain(path):  # a masked path spelled differently would lead into the mount
            raise _no_path()
        for masked, directory in self._masks.items():
            if path.startswith(masked + b"/"):
                return directory_beneath(directory.fd, path[len(masked) + 1 :])
        return directory_beneath(self._root.fd, path)

    # -- types.Lower

    def stat(self, path: bytes) -> os.stat_result:
        held = self._masks.get(path) if path else self._root  # inlines held(), to save a call
        if held is not None:
            return os.fstat(held.fd)
        directory, name = self._place(path)
        return os.stat(name, dir_fd=directory.fd, follow_symlinks=False)

    def open(self, path: bytes) -> int:
        """Open a regular file for reading. Raises OSError with ESTALE if it is no longer a regular file."""
        if self.held(path) is not None:
            raise _no_file()
        directory, name = self._place(path)
        # Check the type before opening: opening a FIFO wakes its writers, and opening a device may have any effect.
        if not stat.S_ISREG(os.stat(name, dir_fd=directory.fd, follow_symlinks=False).st_mode):
            raise _no_file()
        try:
            fd = _open_quietly(name, _FILE, directory.fd)
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.ENXIO):
                raise _no_file() from None
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise _no_file()
        return fd

    def stat_open(self, path: bytes, fd: int) -> os.stat_result:
        """Return the present stat result of the file behind a descriptor that open() returned for *path*."""
        return os.fstat(fd)

    def open_to_give(self, path: bytes, flags: int) -> int:
        """Open a file for a program; see types.Lower. Files in other file systems mounted in the lower cannot be reached this
        way.
        """
        if self.reader_root < 0:
            raise PermissionError(errno.EPERM, "it cannot be given away here")
        parent, _, name = path.rpartition(b"/")
        if not is_plain(path):
            raise _no_path()
        wanted = _FILE | flags & ~os.O_ACCMODE
        if not parent:
            return os.open(name, wanted, dir_fd=self.reader_root)
        directory = _Directory(directory_beneath(self.reader_root, parent), _FOREVER)
        return os.open(name, wanted, dir_fd=directory.fd)

    def readdir(self, path: bytes) -> list[LowerEntry]:
        held = self._directory(path)
        fd = _open_quietly(b".", _DIRECTORY, held.fd)
        try:
            with os.scandir(fd) as entries:
                return [LowerEntry(os.fsencode(entry.name), _type_of(entry), entry.inode()) for entry in entries]
        finally:
            os.close(fd)

    def readlink(self, path: bytes) -> bytes:
        if self.held(path) is not None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        directory, name = self._place(path)
        return os.readlink(name, dir_fd=directory.fd)

    def getxattr(self, path: bytes, name: bytes) -> bytes:
        """Return one extended attribute. Raises OSError with ENODATA even if the file system does not support extended
        attributes.
        """
        directory, reached = self._reach(path)
        try:
            return os.getxattr(reached, name, follow_symlinks=False)
        except OSError as exc:
            if exc.errno == errno.ENOTSUP:
                raise OSError(errno.ENODATA, os.strerror(errno.ENODATA)) from None
            raise
        finally:
            del directory

    def listxattr(self, path: bytes) -> list[bytes]:
        directory, reached = self._reach(path)
        try:
            return xattrs.names(reached, follow=False)
        finally:
            del directory

    def _reach(self, path: bytes) -> tuple[_Directory, bytes]:
        """Return a path for calls that take no directory descriptor. The path is valid while the caller keeps the directory."""
        held = self.held(path)
        if held is not None:
            return held, b"/proc/self/fd/%d/." % held.fd
        directory, name = self._place(path)
        return directory, b"/proc/self/fd/%d/%s" % (directory.fd, name)

    def statvfs(self) -> os.statvfs_result:
        return os.fstatvfs(self._root.fd)


def _type_of(entry: "os.DirEntry[str]") -> int:
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0


def _open_quietly(name: bytes, flags: int, directory_fd: int) -> int:
    """Open without changing the access time, if the kernel allows that."""
    try:
        return os.open(name, flags | os.O_NOATIME, dir_fd=directory_fd)
    except PermissionError as exc:
        if exc.errno != errno.EPERM:
            raise
        return os.open(name, flags, dir_fd=directory_fd)


def _no_path() -> OSError:
    return OSError(errno.EINVAL, "not a path beneath the root: names and single slashes only")


def _no_file() -> OSError:
    return OSError(errno.ESTALE, "not a regular file any more")
