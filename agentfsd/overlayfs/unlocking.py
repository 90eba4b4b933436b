"""Lets the owner of files open what their modes deny to everybody, for a short time. Root needs none of that.

Programs may put something else at a name meanwhile: every step is done by a descriptor of the file that was looked at.
"""

import contextlib
import os
import stat
from collections.abc import Iterator

from agentfs_host import xattrs

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def is_locked(status: os.stat_result) -> bool:
    """Return whether an owner that is not root may not read a file, or list and enter a directory."""
    needed = stat.S_IRWXU if stat.S_ISDIR(status.st_mode) else stat.S_IRUSR
    return status.st_mode & needed != needed and os.geteuid() != 0


def _place(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


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
    os.chmod(_place(found), stat.S_IMODE(status.st_mode) | stat.S_IRUSR)
    try:
        yield
    finally:
        os.chmod(_place(found), stat.S_IMODE(status.st_mode))


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


class UnlockedDirectories:
    """Directories that their owner may enter until the end of the block."""

    def __init__(self) -> None:
        self._changed: list[tuple[int, int]] = []  # descriptors and modes

    def unlock(self, directory: int, name: bytes) -> None:
        """Let the owner enter a directory, if its mode denies that. FileNotFoundError, NotADirectoryError."""
        found = os.open(name, _PATH | os.O_DIRECTORY, dir_fd=directory)
        mode = stat.S_IMODE(os.fstat(found).st_mode)
        try:
            os.chmod(_place(found), mode | stat.S_IRWXU)
        except BaseException:
            os.close(found)
            raise
        self._changed.append((found, mode))

    def __enter__(self) -> "UnlockedDirectories":
        return self

    def __exit__(self, *exc: object) -> None:
        for fd, mode in reversed(self._changed):
            os.chmod(_place(fd), mode)
            os.close(fd)
        self._changed.clear()
