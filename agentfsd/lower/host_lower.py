"""The lower as a directory of this machine, held by descriptor from before anything is mounted over it.

Every path becomes (directory descriptor, one name) at one place, beneath the root and without following a symlink.
"""

import errno
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable

from agentfs_host import xattrs
from agentfs_host.plain_paths import NOT_NAMES, directory_beneath, is_plain
from agentfsd.types import LowerEntry

CACHE_SIZE = 256
CACHE_S = 1.0  # a directory that was renamed or replaced in the lower shows within this time

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_FILE = _READ | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY = _READ | os.O_DIRECTORY
_FOREVER = float("inf")


class _Directory:
    """A held directory; its descriptor is closed when nobody uses it any more, also if the cache dropped it first."""

    __slots__ = ("fd", "until")

    def __init__(self, fd: int, until: float) -> None:
        self.fd, self.until = fd, until

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class HostLower:
    """See types.Lower. Any thread may call."""

    def __init__(self, root: str | bytes, *, masks: Iterable[bytes] = (), share: bool = True) -> None:
        """OSError when *root* is no directory that can be entered. *masks*: see mask(). *share*: what a commit writes here
        may share blocks with what it is made of."""
        self.share = share
        self._description = os.path.abspath(os.fsdecode(root))
        self._root = _Directory(os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), _FOREVER)
        self._masks: dict[bytes, _Directory] = {}  # the longest path first
        self._cache: OrderedDict[bytes, _Directory] = OrderedDict()  # the longest unused first
        self._lock = threading.Lock()
        self.reader_root = -1  # the root as given-away descriptors see it: see readonly_mounts.py; not ours to close
        for path in masks:
            self.mask(path)

    def place(self) -> str:
        """Where the root lies now, as the kernel knows it: it may have been moved; with " (deleted)" at the end, removed."""
        return os.readlink(f"/proc/self/fd/{self._root.fd}")

    def device(self) -> int:
        """st_dev of the root."""
        return os.fstat(self._root.fd).st_dev

    @property
    def description(self) -> str:
        return self._description

    def mask(self, path: bytes) -> None:
        """Call before something is mounted on *path*: access there and below goes on to what the mount hides.

        Without this the daemon would look into its own mount and wait for itself.
        """
        if path:  # the root is held anyway
            known = self._masks | {path: _Directory(self._open_beneath(path), _FOREVER)}
            self._masks = dict(sorted(known.items(), key=lambda item: -len(item[0])))

    def forget(self) -> None:
        """Call when directories changed their names by our own doing: no path leads to one from before any more."""
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
        """The root and the masks: their names may lead into a mount, so they are known by descriptor alone."""
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
        """The directory that is there now, not one held from before; calls that come after see it too.

        Its descriptor (O_PATH) is good while the value is held. OSError when there is none.
        """
        if not path:
            return self._root
        now = time.monotonic()
        found = self._masks.get(path) or _Directory(self._open_beneath(path), now + CACHE_S)
        with self._lock:
            other = self._cache.get(path)
            if other is not None and other.until > found.until:
                found = other  # another thread opened it meanwhile: what it found is later
            self._cache[path] = found
            self._cache.move_to_end(path)
            while len(self._cache) > CACHE_SIZE or next(iter(self._cache.values())).until <= now:
                self._cache.popitem(last=False)  # what has expired goes early: it may keep a file system busy
        return found

    def _open_beneath(self, path: bytes) -> int:
        if not is_plain(path):  # another spelling of a mask would lead into the mount
            raise _no_path()
        for masked, directory in self._masks.items():
            if path.startswith(masked + b"/"):
                return directory_beneath(directory.fd, path[len(masked) + 1 :])
        return directory_beneath(self._root.fd, path)

    # -- types.Lower

    def stat(self, path: bytes) -> os.stat_result:
        held = self._masks.get(path) if path else self._root  # held() without the cost of a call
        if held is not None:
            return os.fstat(held.fd)
        directory, name = self._place(path)
        return os.stat(name, dir_fd=directory.fd, follow_symlinks=False)

    def open(self, path: bytes) -> int:
        """ESTALE when what is there is no regular file any more."""
        if self.held(path) is not None:
            raise _no_file()
        directory, name = self._place(path)
        # Looked at first: to open a FIFO wakes its writers, and to open a device may do anything.
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

    def open_to_give(self, path: bytes, flags: int) -> int:
        """See types.Lower. Nothing that is mounted in the lower is found this way."""
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
        """ENODATA also where the file system has no such attributes at all."""
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
        """A path for calls that take no directory descriptor; it is good while the first value is held."""
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
    """Without touching its access time, where we may."""
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
