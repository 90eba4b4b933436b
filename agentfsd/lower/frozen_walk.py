"""Look at all of a lower, directory by directory.

This goes by the lower's own descriptors: a path may lead into the daemon's mount, where it would wait for itself.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from agentfs_host.descent import join
from agentfsd.lower.frozen_index import FrozenEntry, entry_of
from agentfsd.lower.host_lower import HostLower
from agentfsd.types import LowerEntry

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class Seen(NamedTuple):
    """What was seen in a directory. ``failed``: the errno with which it could not be listed, one of GONE if it vanished."""

    path: bytes
    entries: dict[bytes, FrozenEntry]
    failed: int


def root_entry(lower: HostLower) -> FrozenEntry:
    status = lower.stat(b"")
    return entry_of(status, status.st_dev, status.st_ino)


def walk(lower: HostLower) -> Iterator[Seen]:
    """Yield every directory of a lower, each before those in it. What vanishes before it is looked at is left out.

    Directories that the caller takes out of the entries before it goes on are not entered.
    """
    device = lower.device()
    paths = [b""]
    while paths:
        path = paths.pop()
        try:
            seen = Seen(path, _entries(lower, path, device), 0)
        except OSError as exc:
            seen = Seen(path, {}, exc.errno or errno.EIO)
        yield seen
        paths += [join(path, name) for name, entry in seen.entries.items() if is_directory(entry)]


def is_directory(entry: FrozenEntry) -> bool:
    return stat.S_ISDIR(entry.mode) and not entry.failed


def _entries(lower: HostLower, path: bytes, device: int) -> dict[bytes, FrozenEntry]:
    directory = lower.renew(path)
    entries = {}
    for item in lower.readdir(path):
        try:
            held = lower.held(join(path, item.name))
            at = directory.fd
            status = os.fstat(held.fd) if held is not None else os.stat(item.name, dir_fd=at, follow_symlinks=False)
        except OSError as exc:
            if exc.errno in GONE:
                continue
            entries[item.name] = _failed(item, exc)
        else:
            entries[item.name] = entry_of(status, device, item.ino)
    return entries


def _failed(item: LowerEntry, exc: OSError) -> FrozenEntry:
    return FrozenEntry(item.ino, item.type, failed=exc.errno or errno.EIO)


def is_same(one: FrozenEntry, other: FrozenEntry) -> bool:
    """Tell whether two looks saw the same file in the same state. Access time and blocks change without a change of the file."""
    return (
        one.ino == other.ino and one.ctime_ns == other.ctime_ns and one.mtime_ns == other.mtime_ns and one.size == other.size
        and one.mode == other.mode and one.dev == other.dev and one.nlink == other.nlink and one.failed == other.failed
        and one.uid == other.uid and one.gid == other.gid and one.listed_ino == other.listed_ino
    )  # fmt: skip


def read_xattrs(lower: HostLower, path: bytes) -> dict[bytes, bytes] | None:
    """Return the extended attributes that may be read, None for none. Raises OSError, one of GONE if the file vanished."""
    found = {}
    try:
        for name in lower.listxattr(path):
            with contextlib.suppress(PermissionError):
                found[name] = lower.getxattr(path, name)
    except OSError as exc:
        if exc.errno not in (errno.ENODATA, errno.EACCES, errno.EPERM, errno.ENOTSUP):
            raise
    return found or None
