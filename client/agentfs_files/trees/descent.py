"""The way down a directory tree, name by name, for whoever reads or writes all of it."""

import os


class Descent:
    """Directories beneath one root, by path; no step follows a symlink. The way to the last one stays open.

    ``fd`` is good until the next call. Closes nothing that it did not open: the root's descriptor is the caller's.
    """

    def __init__(self, root_fd: int) -> None:
        self._root_fd = root_fd
        self._way: list[tuple[bytes, int]] = []  # (name, descriptor) of each step

    def fd(self, path: bytes) -> int:
        names = path.split(b"/") if path else []
        kept = 0
        while kept < min(len(names), len(self._way)) and self._way[kept][0] == names[kept]:
            kept += 1
        self._close_after(kept)
        for name in names[kept:]:
            parent = self._way[-1][1] if self._way else self._root_fd
            self._way.append((name, os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)))
        return self._way[-1][1] if self._way else self._root_fd

    def where(self, path: bytes) -> bytes:
        """A path for calls that take no descriptor of a directory; its last name is not followed by what asks for that."""
        directory, _, name = path.rpartition(b"/")
        return b"/proc/self/fd/%d/%s" % (self.fd(directory), name or b".")

    def _close_after(self, kept: int) -> None:
        while len(self._way) > kept:
            os.close(self._way.pop()[1])

    def close(self) -> None:
        self._close_after(0)
