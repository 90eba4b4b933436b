"""Walk down a directory tree name by name, at any depth, for code that reads or writes all of it."""

import contextlib
import os
from collections.abc import Iterator

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_WAY = 200  # most descriptors kept open for the path to one directory


class Descent:
    """Directories beneath one root, by path (b"" is the root). No step follows a symlink.

    The descriptors on the path to the last directory stay open. A descriptor that fd() returns is valid until the next call. The
    caller closes the root's descriptor. As a context manager, it closes what it opened.
    """

    def __init__(self, root_fd: int) -> None:
        self._root_fd = root_fd
        self._way: list[tuple[bytes, int]] = []  # (name, descriptor); -1 for one that was closed because too many were open

    def fd(self, path: bytes) -> int:
        """Return a descriptor of the directory at *path*."""
        names = path.split(b"/") if path else []
        kept = 0
        while kept < min(len(names), len(self._way)) and self._way[kept][0] == names[kept]:
            kept += 1
        if kept and self._way[kept - 1][1] < 0:
            kept = 0
        self._close_after(kept)
        for name in names[kept:]:
            parent = self._way[-1][1] if self._way else self._root_fd
            self._way.append((name, os.open(name, _DIRECTORY, dir_fd=parent)))
            self._close_oldest()
        return self._way[-1][1] if self._way else self._root_fd

    def where(self, path: bytes) -> bytes:
        """Return a path for calls that take no directory descriptor. Such a call must not follow its last name."""
        directory, _, name = path.rpartition(b"/")
        return b"/proc/self/fd/%d/%s" % (self.fd(directory), name or b".")

    def forget(self) -> None:
        """Open every directory again from now on, because names may have changed."""
        self._close_after(0)

    def close(self) -> None:
        """Close every descriptor that this object opened."""
        self._close_after(0)

    def _close_oldest(self) -> None:
        place = len(self._way) - _OPEN_WAY - 1
        if place >= 0 and self._way[place][1] >= 0:
            os.close(self._way[place][1])
            self._way[place] = (self._way[place][0], -1)

    def _close_after(self, kept: int) -> None:
        while len(self._way) > kept:
            fd = self._way.pop()[1]
            if fd >= 0:
                os.close(fd)

    def __enter__(self) -> "Descent":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@contextlib.contextmanager
def opened(path: str) -> Iterator[Descent]:
    """Yield a Descent from an existing directory."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with Descent(fd) as descent:
            yield descent
    finally:
        os.close(fd)


def join(directory: bytes, name: bytes) -> bytes:
    """Return the path of a name in a directory; b"" is the root."""
    return directory + b"/" + name if directory else name
