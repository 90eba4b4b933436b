"""Remembers what a comparison saw of the lower, so that one can tell later whether it would see the same again.

It does not know what was compared, nor why.
"""

import os
import stat
from collections.abc import Generator, Iterator

from agentfsd.types import Lower, LowerEntry

_ABSENT = (-1,)

_STEP = 200  # paths of one step

Stamp = tuple[int, ...]


class LowerStamps:
    """What was seen of some paths of the lower.

    Of a directory that nobody listed it holds number, mode and owner: names that come and go in it do not matter.

    Attributes:
        newest_ns: The newest change time among these paths, in nanoseconds since the epoch.
    """

    def __init__(self, stamps: dict[bytes, Stamp], listed: set[bytes], newest_ns: int) -> None:
        self._paths, self._listed, self.newest_ns = tuple(stamps), frozenset(listed), newest_ns
        self._seen = hash(tuple(stamps.values()))  # the stamps themselves take five times as much memory as the paths

    def are_of(self, lower: Lower) -> Generator[tuple[int, int, str], None, bool]:
        """Return whether the lower still shows the same at every path, in steps."""
        stamps = []
        for done, path in enumerate(self._paths):
            stamps.append(_stamp(lower, path, path in self._listed)[0])
            if not done % _STEP:
                yield done, len(self._paths), "looking at the real directory"
        return hash(tuple(stamps)) == self._seen


class StampedLower:
    """A lower that notes what is read from it.

    Attributes:
        is_torn: Something changed between two looks at it.
    """

    def __init__(self, lower: Lower) -> None:
        self._lower, self.frozen = lower, lower.frozen
        self._stamps: dict[bytes, Stamp] = {}
        self._listed: set[bytes] = set()
        self._newest_ns = 0
        self.is_torn = False

    def stamps(self) -> LowerStamps:
        """Return what was seen so far."""
        return LowerStamps(self._stamps, self._listed, self._newest_ns)

    def _note(self, path: bytes, found: os.stat_result | None) -> None:
        stamp, changed_ns = _of(found, path in self._listed)
        self.is_torn = self.is_torn or self._stamps.setdefault(path, stamp) != stamp
        self._newest_ns = max(self._newest_ns, changed_ns)

    def stat(self, path: bytes) -> os.stat_result:
        try:
            found = self._lower.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            self._note(path, None)
            raise
        self._note(path, found)
        return found

    def readdir(self, path: bytes) -> list[LowerEntry]:
        if path not in self._listed:
            self._listed.add(path)
            self._stamps[path], changed_ns = _stamp(self._lower, path, True)
            self._newest_ns = max(self._newest_ns, changed_ns)
        return self._lower.readdir(path)

    @property
    def description(self) -> str:
        return self._lower.description

    def open(self, path: bytes) -> int:
        return self._lower.open(path)

    def stat_open(self, path: bytes, fd: int) -> os.stat_result:
        return self._lower.stat_open(path, fd)

    def open_to_give(self, path: bytes, flags: int) -> int:
        return self._lower.open_to_give(path, flags)

    def readlink(self, path: bytes) -> bytes:
        return self._lower.readlink(path)

    def getxattr(self, path: bytes, name: bytes) -> bytes:
        return self._lower.getxattr(path, name)

    def listxattr(self, path: bytes) -> list[bytes]:
        return self._lower.listxattr(path)

    def statvfs(self) -> os.statvfs_result:
        return self._lower.statvfs()

    def damage(self) -> Iterator[str]:
        return self._lower.damage()

    def close(self) -> None:
        """Do nothing: the lower belongs to somebody else."""


def _stamp(lower: Lower, path: bytes, listed: bool) -> tuple[Stamp, int]:
    try:
        return _of(lower.stat(path), listed)
    except OSError:
        return _of(None, listed)


def _of(found: os.stat_result | None, listed: bool) -> tuple[Stamp, int]:
    """Return the stamp, and the change time in nanoseconds if it is part of the stamp, else 0."""
    if found is None:
        return _ABSENT, 0
    if stat.S_ISDIR(found.st_mode) and not listed:
        return (found.st_ino, found.st_dev, found.st_mode, found.st_uid, found.st_gid), 0
    return (found.st_ino, found.st_dev, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns), found.st_ctime_ns
