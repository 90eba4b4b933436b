"""Finds what has changed in an upper directory of the kernel's overlayfs since the last time. It knows no branch.

Programs may change the directory meanwhile, and may try to lead us out of it: no step follows a symlink.
"""

import functools
import os
import stat
from dataclasses import dataclass, field
from typing import NamedTuple

from agentfs_host import xattrs
from agentfs_host.descent import Descent, join
from agentfsd.overlayfs.on_disk import CONTROL_DIR, PLAIN, Marks, is_whiteout, read_marks


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
    _Scan(upper, known).directory(b"", found)
    found.has_changed = known is None or known.signature != signature(found.status)
    return found


class _Scan:
    def __init__(self, upper: Descent, known: Known | None) -> None:
        self._upper, self._known = upper, known

    def directory(self, path: bytes, directory: Found) -> None:
        before = directory.before.names if directory.before is not None else {}
        names: list[bytes] = []
        below: list[tuple[bytes, Found]] = []
        fd = self._upper.fd(path)
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
                if not is_same and not _look_closer(fd, found):
                    continue
                if found.is_dir:
                    is_here = old is not None and old.signature.ino == status.st_ino
                    found.before = old if is_here else self._directories.get(status.st_ino)
                    below.append((join(path, name), found))
                else:
                    directory.children.append(found)
        directory.names = frozenset(names)
        for beneath, found in below:  # after the loop: fd() is valid until the next call
            try:
                self.directory(beneath, found)
            except (FileNotFoundError, NotADirectoryError):
                continue
            if found.has_changed or found.children:
                directory.children.append(found)

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


def _look_closer(directory: int, found: Found) -> bool:
    """Read the extended attributes and a symlink's target. Return False if the name has vanished."""
    if found.is_whiteout:
        return True
    where = b"/proc/self/fd/%d/%s" % (directory, found.name)
    try:
        found.marks, found.xattrs = read_marks(xattrs.read_all(where, follow=False))
        if stat.S_ISLNK(found.status.st_mode):
            found.target = os.readlink(found.name, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True
