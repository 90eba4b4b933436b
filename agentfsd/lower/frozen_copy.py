"""Copy all of a lower so that every copy is of one moment, while others go on changing it.

The first pass copies. Each further pass looks at everything again, and copies again what has changed. A pass that finds nothing
shows that everything was, when it began, as it was copied.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from agentfs_host import syscalls, xattrs
from agentfs_host.descent import join
from agentfsd.domain_errors import NO_ROOM, DamagedContent, Refusal
from agentfsd.lower.frozen_clone import Clone
from agentfsd.lower.frozen_index import FrozenEntry, FrozenIndex, Listing, entry_of, packed, unpacked
from agentfsd.lower.frozen_walk import GONE, Seen, is_directory, is_same, read_xattrs, root_entry, walk
from agentfsd.lower.host_lower import HostLower

PASSES = 5  # at most that many after the first
CLOCK_NS = 20_000_000  # two changes within that time may get the same change time


class Earlier:
    """An earlier base, whose files are linked where they are still the same.

    ``fd``: a descriptor of its clone; ``way``: how that was made.
    """

    def __init__(self, index: FrozenIndex, fd: int, way: str) -> None:
        self.index, self.fd, self.way = index, fd, way

    def listing(self, directory: bytes) -> Listing:
        """Return what it has in a directory; nothing where that is damaged."""
        try:
            return self.index.listing(directory) if directory in self.index else {}
        except DamagedContent:
            return {}


def is_as_then(then: FrozenEntry, entry: FrozenEntry) -> bool:
    """Tell whether the copy in an earlier base is one of the file as it is now."""
    return _stamp(then) == _stamp(entry) and then.dev == entry.dev and not (then.failed or then.unreadable)


class _Links:
    """The names of one file with several, which are those of one copy. ``is_fresh``: see FrozenCopy."""

    __slots__ = ("is_fresh", "paths", "stamp", "written_in")

    def __init__(self, path: bytes, entry: FrozenEntry, written_in: int, is_fresh: bool) -> None:
        self.paths, self.stamp, self.written_in, self.is_fresh = {path}, _stamp(entry), written_in, is_fresh


def _stamp(entry: FrozenEntry) -> tuple[int, int, int, int]:
    return entry.ino, entry.size, entry.mtime_ns, entry.ctime_ns


class FrozenCopy:
    """One copying of a lower. After run(), ``root`` and ``listings`` are what the index needs.

    What was copied so soon after its last change that another change might have got the same time is fresh: the next pass copies
    it again.

    Attributes:
        at_ns: the moment of which everything is, in ns since the epoch.
        files: the number of names of other things than directories.
        bytes: the size of all regular files; one with several names counts once.
        unlistable: the errno of each directory that could not be listed.
    """

    def __init__(self, lower: HostLower, clone: Clone, earlier: Earlier | None, step: Callable[[], object]) -> None:
        """*step*: called after each name in the first pass, and after each directory in the others; what it raises ends all."""
        self._lower, self._clone, self._earlier, self._step = lower, clone, earlier, step
        self._device = lower.device()
        self._links: dict[tuple[int, int], _Links] = {}
        self._again: set[bytes] = set()  # what was fresh in the pass before
        self._fresh: set[bytes] = set()
        self._pass = 0
        self._changed: bytes | None = None  # a path that had changed in this pass
        self._then: Listing = {}  # what the earlier base has in the present directory
        self.root = root_entry(lower)
        self.listings: dict[bytes, bytes] = {}
        self.unlistable: dict[bytes, int] = {}
        self.at_ns = self.files = self.bytes = 0

    def run(self) -> None:
        """Copy everything.

        Raises:
            Refusal: it does not stop changing, or something cannot be read.
            OSError: something cannot be written.
        """
        for self._pass in range(PASSES + 1):
            self._pass_over()
            if self._pass and self._changed is None:
                self._finish()
                return
            if self._fresh:
                time.sleep(CLOCK_NS / 1e9)
        path = os.fsdecode(self._changed or b".")
        raise Refusal(
            errno.EBUSY, "keeps-changing",
            f"the files of {self._lower.description} cannot be frozen while they keep changing: {path!r} had changed in each of "
            f"{PASSES} looks at them", "stop what writes there, and try again",
        )  # fmt: skip

    def _pass_over(self) -> None:
        self._again, self._fresh, self._changed, self.at_ns = self._fresh, set(), None, time.time_ns()
        root = root_entry(self._lower)
        if not is_same(root, self.root) or b"" in self._again:
            self._changed = b""
        self.root = msgspec.structs.replace(root, xattrs=read_xattrs(self._lower, b""))
        self._note_age(b"", root)
        former, self.listings, self.unlistable = self.listings, {}, {}
        for seen in walk(self._lower):
            self._directory(seen, former.pop(seen.path, b""))
            if self._pass:
                self._step()

    def _directory(self, seen: Seen, former: bytes) -> None:
        """Copy what is new or has changed in one directory, and remove what has gone."""
        old: Listing = unpacked(former) if former else {}
        if seen.failed in GONE:
            self._changed = seen.path
            for name, entry in old.items():
                self._drop(seen.path, name, entry)
            old = {}
        elif seen.failed:
            self.unlistable[seen.path] = seen.failed
        self._then = self._earlier.listing(seen.path) if self._earlier is not None else {}
        made: Listing = {}
        for name, entry in seen.entries.items():
            path, known = join(seen.path, name), old.get(name)
            if known is not None and is_same(known, entry) and path not in self._again:
                made[name] = msgspec.structs.replace(entry, xattrs=known.xattrs, unreadable=known.unreadable)
            else:
                self._changed = path
                self._renew(made, seen.path, name, entry, known)
            if not self._pass:
                self._step()
        for name in seen.entries.keys() - made.keys():
            del seen.entries[name]
        for name in old.keys() - made.keys():
            self._changed = join(seen.path, name)
            self._drop(seen.path, name, old[name])
        self.listings[seen.path] = packed(made)

    def _renew(self, made: Listing, directory: bytes, name: bytes, entry: FrozenEntry, known: FrozenEntry | None) -> None:
        """Copy one name, and put its entry into *made* unless it has vanished."""
        if known is not None and not (is_directory(known) and is_directory(entry)):
            self._drop(directory, name, known)
        path = join(directory, name)
        self._note_age(path, entry)
        try:
            if entry.failed:
                made[name] = entry
            elif stat.S_ISREG(entry.mode):
                made[name] = self._file(directory, name, entry)
            else:
                made[name] = self._other(directory, name, entry)
        except _Vanished:
            self._changed = path
        except OSError as exc:
            if isinstance(exc, Refusal) or exc.errno in (*NO_ROOM, errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise
            raise Refusal(
                exc.errno or errno.EIO, "not-frozen", f"{os.fsdecode(path)!r} could not be copied: {exc.strerror}",
            ) from exc  # fmt: skip

    def _other(self, directory: bytes, name: bytes, entry: FrozenEntry) -> FrozenEntry:
        """Copy what is no regular file."""
        path = join(directory, name)
        with _of_the_lower():
            target = self._lower.readlink(path) if stat.S_ISLNK(entry.mode) else b""
        entry = self._with_xattrs(path, entry)
        if stat.S_ISDIR(entry.mode):
            self._clone.make_directory(directory, name)
        elif stat.S_ISLNK(entry.mode):
            self._clone.make_symlink(directory, name, target, entry)
        else:
            self._clone.make_node(directory, name, entry)
        return entry

    def _with_xattrs(self, path: bytes, entry: FrozenEntry) -> FrozenEntry:
        with _of_the_lower():
            return msgspec.structs.replace(entry, xattrs=read_xattrs(self._lower, path))

    def _file(self, directory: bytes, name: bytes, entry: FrozenEntry) -> FrozenEntry:
        path = join(directory, name)
        if entry.nlink > 1 and (linked := self._linked(directory, name, entry)) is not None:
            return linked
        then = self._then.get(name)
        if then is not None and is_as_then(then, entry) and self._clone.link(self._earlier_fd, path, directory, name):
            entry = msgspec.structs.replace(entry, xattrs=then.xattrs)
            self._note_links(path, entry)
            return entry
        try:
            with _of_the_lower():
                fd = self._lower.open(path)
        except PermissionError as exc:
            entry = msgspec.structs.replace(self._with_xattrs(path, entry), unreadable=exc.errno)
            self._clone.make_unreadable(directory, name)
            return entry
        try:
            return self._copied(fd, directory, name, entry)
        finally:
            os.close(fd)

    def _copied(self, fd: int, directory: bytes, name: bytes, entry: FrozenEntry) -> FrozenEntry:
        path = join(directory, name)
        syscalls.write_pages(fd)  # a later store through a mapping then changes its times
        entry = entry_of(os.fstat(fd), self._device, entry.listed_ino)
        self._note_age(path, entry)
        entry = msgspec.structs.replace(entry, xattrs=xattrs.read_all(fd, follow=True) or None)
        self._clone.make_file(directory, name, fd, entry)
        self._note_links(path, entry)
        return entry

    @property
    def _earlier_fd(self) -> int:
        assert self._earlier is not None
        return self._earlier.fd

    def _note_age(self, path: bytes, entry: FrozenEntry) -> None:
        if abs(time.time_ns() - entry.ctime_ns) < CLOCK_NS:
            self._fresh.add(path)

    # -- files with several names

    def _linked(self, directory: bytes, name: bytes, entry: FrozenEntry) -> FrozenEntry | None:
        """Make the name one of a copy that another name of the file has already; None where there is none."""
        path, known = join(directory, name), self._links.get((entry.dev, entry.ino))
        if known is None or known.stamp != _stamp(entry) or (path in self._again and known.written_in != self._pass):
            return None
        entry = self._with_xattrs(path, entry)
        first = next(iter(known.paths), None)
        if first is None or not self._clone.link_own(first, directory, name):
            return None
        known.paths.add(path)
        if known.is_fresh:
            self._fresh.add(path)
        return entry

    def _note_links(self, path: bytes, entry: FrozenEntry) -> None:
        if entry.nlink > 1:
            self._links[entry.dev, entry.ino] = _Links(path, entry, self._pass, path in self._fresh)

    def _drop(self, directory: bytes, name: bytes, entry: FrozenEntry) -> None:
        """Remove from the clone what has gone, or is copied again."""
        self._clone.remove(directory, name, entry)
        path = join(directory, name)
        if entry.nlink > 1 and not stat.S_ISDIR(entry.mode) and (known := self._links.get((entry.dev, entry.ino))) is not None:
            known.paths.discard(path)
        elif is_directory(entry):
            for known in self._links.values():
                known.paths = {each for each in known.paths if not each.startswith(path + b"/")}

    # -- the end

    def _finish(self) -> None:
        """Give the directories of the clone their attributes, and count."""
        counted: set[tuple[int, int]] = set()
        for path, blob in self.listings.items():
            for name, entry in unpacked(blob).items():
                if is_directory(entry):
                    at = join(path, name)
                    self._clone.finish_directory(at, msgspec.structs.replace(entry, unreadable=self.unlistable.get(at, 0)))
                    continue
                self.files += 1
                if stat.S_ISREG(entry.mode) and (entry.nlink < 2 or (entry.dev, entry.ino) not in counted):
                    self.bytes += entry.size
                    if entry.nlink > 1:
                        counted.add((entry.dev, entry.ino))
        self._clone.finish_directory(b"", self.root)


class _Vanished(Exception):
    """A name has gone since its directory was listed, or leads to something else."""


@contextmanager
def _of_the_lower() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in GONE or exc.errno == errno.EINVAL:  # EINVAL: no symlink any more
            raise _Vanished from exc
        raise
