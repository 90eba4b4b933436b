"""Finds what has changed in an upper directory of the kernel's overlayfs since the last time. It knows no branch.

Programs may change the directory meanwhile, and may try to lead us out of it: no step follows a symlink.
"""

import errno
import functools
import os
import stat
from dataclasses import dataclass, field
from typing import NamedTuple

from agentfs_host import xattrs
from agentfs_host.descent import Descent, join
from agentfsd.overlayfs.on_disk import CONTROL_DIR, PLAIN, Marks, is_whiteout, read_marks
from agentfsd.overlayfs.unlocking import UnlockedDirectories, is_locked, read_xattrs

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # what opening a directory says that is none, or a symlink, by now


class Signature(NamedTuple):
    """Tells whether a file is as it was: every change of content, attributes or links moves the change time."""

    ino: int
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def signature(status: os.stat_result) -> Signature:
    return Signature(status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@dataclass(slots=True)
class Known:
    """A name as it was at the last scan. Of a directory also what was in it, and what overlayfs says of it."""

    signature: Signature
    names: dict[bytes, "Known"] = field(default_factory=dict)
    marks: Marks = PLAIN


def uncertain(status: os.stat_result) -> Known:
    """Return what is known of a file that may have changed since we looked: the next scan finds it changed."""
    return Known(signature(status)._replace(ctime_ns=-1))


@dataclass(slots=True)
class Found:
    """A name that has changed, or a directory in which something has.

    Attributes:
        name: The name.
        status: Of the file itself.
        has_changed: Whether this name's own attributes or content may have changed; of a directory, its names too.
        marks: What overlayfs says of it.
        xattrs: Its own extended attributes, if it has changed.
        target: Of a symlink that has changed.
        children: Of a directory: what has changed in it.
        names: Of a directory: all names in it.
        before: Of a directory: what was known of it, here or where it was before it was renamed.
        is_gone: A directory that was not there any more when it was to be read, or was read at another place already.
    """

    name: bytes
    status: os.stat_result
    has_changed: bool
    marks: Marks = PLAIN
    xattrs: dict[bytes, bytes] = field(default_factory=dict)
    target: bytes = b""
    children: list["Found"] = field(default_factory=list)
    names: frozenset[bytes] = frozenset()
    before: Known | None = None
    is_gone: bool = False

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_whiteout(self) -> bool:
        return is_whiteout(self.status)


def scan(upper: Descent, known: Known | None) -> Found:
    """Compare an upper directory with what was *known* of it; None: nothing.

    What vanishes meanwhile is left out: the next scan finds out.

    Raises:
        OSError: A directory cannot be read.
    """
    root = upper.fd(b"")
    found = Found(b"", os.fstat(root), has_changed=True, before=known)
    found.marks, found.xattrs = read_marks(xattrs.read_all(root, follow=False))
    with UnlockedDirectories() as unlocked:
        _Scan(upper, known, unlocked).all_below(found)
    found.has_changed = known is None or known.signature != signature(found.status)
    return found


def open_found(upper: Descent, path: bytes, found: Found) -> int:
    """Return a descriptor of a directory that was found at a path; -1 if it is not there any more: the next scan finds out."""
    try:
        fd = upper.fd(path)
    except OSError as exc:
        if exc.errno not in _GONE:
            raise
        return -1
    return fd if os.fstat(fd).st_ino == found.status.st_ino else -1


class _Scan:
    def __init__(self, upper: Descent, known: Known | None, unlocked: UnlockedDirectories) -> None:
        self._upper, self._known, self._unlocked = upper, known, unlocked
        self._listed: set[int] = set()  # inode numbers of directories: one that is being renamed can be met twice

    def all_below(self, root: Found) -> None:
        """Find everything below the root. Directories may be deeper than Python's stack."""
        todo, seen = [(b"", root)], list[tuple[Found, Found]]()
        while todo:
            path, directory = todo.pop()
            for found in self._directory(path, directory):
                todo.append((join(path, found.name), found))
                seen.append((directory, found))
        for parent, found in reversed(seen):  # each directory after all that is in it
            if found.has_changed or found.children:
                parent.children.append(found)

    def _directory(self, path: bytes, directory: Found) -> list[Found]:
        """Find what has changed in a directory, and return the directories in it."""
        before = directory.before.names if directory.before is not None else {}
        names: list[bytes] = []
        below: list[Found] = []
        fd = open_found(self._upper, path, directory)
        directory.is_gone = fd < 0 or directory.status.st_ino in self._listed
        if directory.is_gone:
            return []
        self._listed.add(directory.status.st_ino)
        with os.scandir(fd) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                if not path and name == CONTROL_DIR:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                names.append(name)
                old = before.get(name)
                is_same = old is not None and old.signature == signature(status)
                if is_same and not stat.S_ISDIR(status.st_mode):
                    continue
                found = Found(name, status, not is_same, old.marks if old is not None and is_same else PLAIN)
                if not self._look_closer(fd, found, old if is_same else None):
                    continue
                if found.is_dir:
                    is_here = old is not None and old.signature.ino == status.st_ino
                    found.before = old if is_here else self._directories.get(status.st_ino)
                    below.append(found)
                else:
                    directory.children.append(found)
        directory.names = frozenset(names)
        return below

    def _look_closer(self, directory: int, found: Found, same: Known | None) -> bool:
        """Read the extended attributes and a symlink's target. Return False if the name has vanished.

        *same*: what is known of the file, if that is still so.
        """
        if found.is_whiteout:
            return True
        try:
            locked = is_locked(found.status)
            if locked and found.is_dir:
                self._unlocked.unlock(directory, found.name, found.status, functools.partial(_relocked, found, same))
            if not found.has_changed:
                return True
            if locked and stat.S_ISREG(found.status.st_mode):
                read, found.status = read_xattrs(directory, found.name)
            else:
                read = xattrs.read_all(b"/proc/self/fd/%d/%s" % (directory, found.name), follow=False)
            found.marks, found.xattrs = read_marks(read)
            if stat.S_ISLNK(found.status.st_mode):
                found.target = os.readlink(found.name, dir_fd=directory)
        except OSError as exc:
            if exc.errno not in (*_GONE, errno.EINVAL):  # EINVAL: it is no symlink any more
                raise
            return False
        return True

    @functools.cached_property
    def _directories(self) -> dict[int, Known]:
        """The directories that are known, by inode number."""
        todo, found = [self._known] if self._known is not None else [], {}
        while todo:
            known = todo.pop()
            if stat.S_ISDIR(known.signature.mode):
                found[known.signature.ino] = known
                todo += known.names.values()
        return found


def _relocked(found: Found, same: Known | None, status: os.stat_result) -> None:
    """Take note that we, and nobody else, have moved a directory's change time."""
    found.status = status
    if same is not None:
        same.signature = signature(status)
