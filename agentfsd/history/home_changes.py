"""Compares a layer over the home directory with the home directory: which names differ, and how.

It reads the upper directory of the kernel's overlayfs (overlayfs.rst of the kernel): a character device 0/0 stands for a name
that was deleted, and a directory with the extended attribute ``overlay.opaque`` shows nothing of the home directory.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

_CHUNK = 1 << 20
_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")


@dataclass(frozen=True, slots=True)
class HomeChange:
    """A path that differs.

    Attributes:
        path: Relative to the home directory.
        status: As in wire.Change: A, M, D, T or m.
        old: What the home directory has, None for nothing.
        new: What the branch has.
    """

    path: bytes
    status: str
    old: os.stat_result | None
    new: os.stat_result | None


def home_changes(upper: str, home: str) -> list[HomeChange]:
    """List what a layer changes, sorted by path.

    Args:
        upper: The layer's upper directory.
        home: The home directory.

    Raises:
        OSError: A directory of the layer cannot be read.
    """
    return sorted(_below(os.fsencode(upper), os.fsencode(home), b""), key=lambda change: change.path)


def _below(upper: bytes, home: bytes | None, path: bytes) -> Iterator[HomeChange]:
    """Compare one directory. *home* None: the layer hides what the home directory has there, or it has nothing."""
    for name in os.listdir(os.path.join(upper, path)):
        at = os.path.join(path, name)
        new = os.lstat(os.path.join(upper, at))
        old = _there(home, at)
        if stat.S_ISCHR(new.st_mode) and new.st_rdev == 0:
            yield from _deleted(home, at, old)
        elif stat.S_ISDIR(new.st_mode):
            yield from _directory(upper, home, at, old, new)
        else:
            yield from _deleted_inside(home, at, old)
            yield from _file(os.path.join(upper, at), None if home is None else os.path.join(home, at), at, old, new)


def _directory(
    upper: bytes, home: bytes | None, path: bytes, old: os.stat_result | None, new: os.stat_result
) -> Iterator[HomeChange]:
    if old is None or not stat.S_ISDIR(old.st_mode):
        yield HomeChange(path, "T" if old is not None else "A", old, new)
        yield from _below(upper, None, path)
        return
    if _differs(old, new):
        yield HomeChange(path, "m", old, new)
    if _is_opaque(os.path.join(upper, path)) and home is not None:
        there = set(os.listdir(os.path.join(upper, path)))
        for name in set(os.listdir(os.path.join(home, path))) - there:
            yield from _deleted(home, os.path.join(path, name), _there(home, os.path.join(path, name)))
    yield from _below(upper, home, path)


def _file(upper: bytes, home: bytes | None, path: bytes, old: os.stat_result | None, new: os.stat_result) -> Iterator[HomeChange]:
    if old is None or home is None:
        yield HomeChange(path, "A", None, new)
    elif stat.S_IFMT(old.st_mode) != stat.S_IFMT(new.st_mode):
        yield HomeChange(path, "T", old, new)
    elif not _is_same(home, upper, old, new):
        yield HomeChange(path, "M", old, new)
    elif _differs(old, new):
        yield HomeChange(path, "m", old, new)


def _deleted(home: bytes | None, path: bytes, old: os.stat_result | None) -> Iterator[HomeChange]:
    if old is not None:
        yield HomeChange(path, "D", old, None)
        yield from _deleted_inside(home, path, old)


def _deleted_inside(home: bytes | None, path: bytes, old: os.stat_result | None) -> Iterator[HomeChange]:
    if home is None or old is None or not stat.S_ISDIR(old.st_mode):
        return
    try:
        names = os.listdir(os.path.join(home, path))
    except OSError:
        return  # what the user may not read
    for name in names:
        yield from _deleted(home, os.path.join(path, name), _there(home, os.path.join(path, name)))


def _there(home: bytes | None, path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(os.path.join(home, path)) if home is not None else None
    except OSError:
        return None


def _differs(old: os.stat_result, new: os.stat_result) -> bool:
    return (old.st_mode, old.st_uid, old.st_gid) != (new.st_mode, new.st_uid, new.st_gid)


def _is_opaque(directory: bytes) -> bool:
    for name in _OPAQUE:
        try:
            if os.getxattr(directory, name) == b"y":
                return True
        except OSError:
            continue
    return False


def _is_same(one: bytes, other: bytes, old: os.stat_result, new: os.stat_result) -> bool:
    if stat.S_ISLNK(new.st_mode):
        return os.readlink(one) == os.readlink(other)
    if not stat.S_ISREG(new.st_mode):
        return True
    if old.st_size != new.st_size:
        return False
    try:
        with open(one, "rb") as a, open(other, "rb") as b:
            while (chunk := a.read(_CHUNK)) == b.read(_CHUNK):
                if not chunk:
                    return True
    except PermissionError:
        pass
    return False
