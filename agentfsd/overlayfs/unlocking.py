"""Lets the owner of files open what their modes deny to everybody, for a short time. Root needs none of that.

Programs may put something else at a name meanwhile: every step is done by a descriptor of the file that was looked at.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from agentfs_host import xattrs
from agentfs_host.descent import Descent, join

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def is_locked(status: os.stat_result) -> bool:
    """Return whether an owner that is not root may not read a file, or list and enter a directory."""
    needed = stat.S_IRUSR | stat.S_IXUSR if stat.S_ISDIR(status.st_mode) else stat.S_IRUSR
    return status.st_mode & needed != needed and os.geteuid() != 0


def _place(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _relock(fd: int, mode: int, opened: int) -> bool:
    """Give a file its mode again, unless its mode is not *opened* any more: then somebody else has changed it."""
    if stat.S_IMODE(os.fstat(fd).st_mode) != opened:
        return False
    os.chmod(_place(fd), mode)
    return True


@contextlib.contextmanager
def _found(directory: int, name: bytes) -> Iterator[int]:
    """Yield a descriptor that can do nothing but lead to a regular file. FileNotFoundError: There is none."""
    found = os.open(name, _PATH, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise FileNotFoundError(name)
        yield found
    finally:
        os.close(found)


@contextlib.contextmanager
def _readable(found: int) -> Iterator[None]:
    status = os.fstat(found)
    if not is_locked(status):
        yield
        return
    mode = stat.S_IMODE(status.st_mode)
    os.chmod(_place(found), mode | stat.S_IRUSR)
    try:
        yield
    finally:
        _relock(found, mode, mode | stat.S_IRUSR)


@contextlib.contextmanager
def opened(directory: int, name: bytes) -> Iterator[int]:
    """Open a regular file for reading, for the time of the block.

    Raises:
        FileNotFoundError: There is none.
    """
    with _found(directory, name) as found, _readable(found):
        fd = os.open(_place(found), _READ)
    try:
        yield fd
    finally:
        os.close(fd)


def read_xattrs(directory: int, name: bytes) -> tuple[dict[bytes, bytes], os.stat_result]:
    """Read the extended attributes of a regular file that is_locked(). Return its status afterwards, too.

    Raises:
        FileNotFoundError: There is none.
    """
    with _found(directory, name) as found:
        with _readable(found):
            read = xattrs.read_all(os.fsencode(_place(found)), follow=True)
        return read, os.fstat(found)


class _Unlocked(NamedTuple):
    """A directory that was unlocked: a descriptor, its mode before, its status since, and whom to tell when it is locked."""

    fd: int
    mode: int
    since: os.stat_result
    then: Callable[[os.stat_result], object] | None


class UnlockedDirectories:
    """Directories that their owner may list and enter until the end of the block."""

    def __init__(self) -> None:
        self._changed: list[_Unlocked] = []

    def unlock(self, directory: int, name: bytes, status: os.stat_result, then: Callable[[os.stat_result], object]) -> None:
        """Let the owner list and enter a directory.

        Args:
            directory: A descriptor of the directory that holds it.
            name: Its name.
            status: What is known of it.
            then: Called with its status when it is locked again, if only we have changed it since *status*.

        Raises:
            FileNotFoundError: It has vanished.
            NotADirectoryError: It is none.
        """
        found = os.open(name, _PATH | os.O_DIRECTORY, dir_fd=directory)
        try:
            before = os.fstat(found)
            mode = stat.S_IMODE(before.st_mode)
            os.chmod(_place(found), mode | stat.S_IRUSR | stat.S_IXUSR)
            is_as_known = _is_same(before, status)
            self._changed.append(_Unlocked(found, mode, os.fstat(found), then if is_as_known else None))
        except BaseException:
            os.close(found)
            raise

    def __enter__(self) -> "UnlockedDirectories":
        return self

    def __exit__(self, *exc: object) -> None:
        for fd, mode, since, then in reversed(self._changed):
            is_ours = _is_same(os.fstat(fd), since)
            if _relock(fd, mode, stat.S_IMODE(since.st_mode)) and is_ours and then is not None:
                then(os.fstat(fd))
            os.close(fd)
        self._changed.clear()


class WritableDirectories:
    """Directories beneath one root that their owner may list, enter and change until the end of the block."""

    def __init__(self, descent: Descent) -> None:
        self._descent = descent
        self._changed: dict[bytes, tuple[int, int, int]] = {}  # path: inode number, mode before, mode since
        self._seen: set[bytes] = set()

    def permit(self, path: bytes) -> None:
        """Permit it for the directory at a path, and for those above it. OSError."""
        if path in self._seen or os.geteuid() == 0:
            return
        above = b""
        for name in (b"", *path.split(b"/")) if path else (b"",):
            above = join(above, name) if name else b""
            if above not in self._seen:
                self._permit(above)
                self._seen.add(above)

    def _permit(self, path: bytes) -> None:
        with self._found(path) as found:
            status = os.fstat(found)
            mode = stat.S_IMODE(status.st_mode)
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                with contextlib.suppress(PermissionError):  # somebody else's: others may do what we need
                    os.chmod(_place(found), mode | stat.S_IRWXU)
                    self._changed[path] = (status.st_ino, mode, mode | stat.S_IRWXU)

    @contextlib.contextmanager
    def _found(self, path: bytes) -> Iterator[int]:
        parent, _, name = path.rpartition(b"/")
        fd = self._descent.fd(parent)
        found = os.open(name, _PATH | os.O_DIRECTORY, dir_fd=fd) if name else os.dup(fd)
        try:
            yield found
        finally:
            os.close(found)

    def leave(self, path: bytes) -> None:
        """Somebody else sees to the mode of the directory at a path."""
        self._changed.pop(path, None)

    def __enter__(self) -> "WritableDirectories":
        return self

    def __exit__(self, *exc: object) -> None:
        for path, (ino, mode, opened) in reversed(self._changed.items()):  # each after those in it
            with contextlib.suppress(OSError), self._found(path) as found:
                if os.fstat(found).st_ino == ino:
                    _relock(found, mode, opened)
        self._changed.clear()


def _is_same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_mode, one.st_mtime_ns, one.st_ctime_ns) == (
        other.st_ino, other.st_mode, other.st_mtime_ns, other.st_ctime_ns,
    )  # fmt: skip
