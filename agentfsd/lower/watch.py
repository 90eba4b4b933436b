"""Learn from the kernel what other processes change in the lower, so that the daemon may cache what it showed.

A watch belongs to an inode and not to a path, and the kernel does not report the rename of a directory further up. So every
directory above a watched one is watched as well: whatever separates a watch from its path is then an event in one of them.
"""

import errno
import logging
import os
import time
from collections.abc import Iterator

from agentfs_host import syscalls
from agentfsd.lower import inotify
from agentfsd.lower.host_lower import HostLower
from agentfsd.types import LOWER_LOST, LowerChange

RETRY_S = 1.0  # seconds to wait after a refusal that may be temporary

_REPLACED = inotify.CREATE | inotify.DELETE | inotify.MOVED_FROM | inotify.MOVED_TO
_MASK = _REPLACED | inotify.ATTRIB | inotify.MODIFY | inotify.CLOSE_WRITE | inotify.ONLYDIR | inotify.EXCL_UNLINK

log = logging.getLogger(__name__)


class LowerWatch:
    """Report which names in watched directories of the lower changed. Not thread-safe. See inotify(7).

    The watch of a directory reports changes of its own times and link count, which change with its entries; the watch of its
    parent does not. These changes go unnoticed:

    - a change through another hard link that has no name in a watched directory, and a file's link count when it gains or loses
      another name: the daemon should not cache files with several names for long
    - a write through a memory map, until the map is removed or the last descriptor is closed; access times
    - a mount or unmount on a directory of the lower, unless its file system ends with it
    - access without names: a local NFS server that opens by file handle, an overlayfs that uses the lower as a layer
    - another spelling of a name in a directory that ignores case
    """

    def __init__(self, lower: HostLower) -> None:
        """Ask the kernel for an event queue. If it refuses, ``fd`` is -1 and every watch is refused."""
        self.fd = -1  # becomes readable when events are queued
        self._lower = lower
        self._watches: dict[bytes, int] = {}  # path -> watch; for each path also all paths above it
        self._paths: dict[int, set[bytes]] = {}  # watch -> paths; an inode that is mounted in several places has several
        self._below: dict[bytes, set[bytes]] = {}  # path -> watched paths directly below it
        self._wanted: set[bytes] = set()  # paths that a caller asked for; the others are only above one of these
        self._refused: dict[bytes, float] = {}  # path -> time before which it is not tried again
        self._full_until = 0.0
        self._told_full = False
        try:
            self.fd = syscalls.inotify_init()
        except OSError as exc:
            log.warning("changes of the lower are not watched: %s (fs.inotify.max_user_instances)", exc.strerror)

    def watch(self, path: bytes) -> bool:
        """Start to report changes of the directory at *path*: of its names, their attributes and contents, and its own
        attributes.

        Returns:
            True if changes are reported from now on, so that what is read after this may be cached. False if it may be cached for
                a second only.
        """
        return path in self._wanted or self._watch_anew(path)

    def forget(self, path: bytes) -> None:
        """Stop watching *path*; a path that is not watched is no error. One call ends any number of watch() calls."""
        self._wanted.discard(path)
        self._release(path)

    def news(self) -> list[LowerChange]:
        """Return all changes since the last call, each (directory, name) once. Never blocks.

        LOWER_LOST is returned alone. It means that events were dropped because there were too many, or that the lower's file
        system was unmounted.
        """
        if self.fd < 0:
            return []
        changes: dict[tuple[bytes, bytes | None], bool] = {}
        for watch, mask, name in inotify.events(self.fd):
            if mask & inotify.Q_OVERFLOW:
                return self._lost()
            for path in tuple(self._paths.get(watch, ())):
                if not mask & inotify.IGNORED:
                    replaced = mask & _REPLACED != 0
                    changes[path, name] = replaced or changes.get((path, name), False)
                    if replaced:
                        changes[path, b""] = False
                        changes.update(self._parted(path + b"/" + name if path else name))
                elif path:
                    above, _, last = path.rpartition(b"/")
                    changes[above, last] = True
                    changes.update(self._parted(path))
                else:
                    return self._lost()
        for path, changed in changes:
            if changed is None:
                self._release(path.rpartition(b"/")[0])  # release it only now: more of its events may have been queued
        return [LowerChange(path, name, replaced) for (path, name), replaced in changes.items()]

    def close(self) -> None:
        """Stop all watches. There are no changes to report afterwards."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self._clear()

    # -- adding

    def _watch_anew(self, path: bytes) -> bool:
        if self.fd < 0:
            return False
        missing = [] if path in self._watches else [path]
        above = path
        while above and (above := above.rpartition(b"/")[0]) not in self._watches:
            missing.append(above)
        for each in reversed(missing):  # from the top, so that a rename in between causes an event
            if not self._add(each):
                self._release(each.rpartition(b"/")[0])
                return False
        self._wanted.add(path)
        return True

    def _add(self, path: bytes) -> bool:
        now = time.monotonic()
        if now < self._full_until or now < self._refused.get(path, 0.0):
            return False
        try:
            directory = self._lower.renew(path)
            if not inotify.tells_all(directory.fd):
                self._refused = {at: until for at, until in self._refused.items() if until > now}
                self._refused[path] = now + RETRY_S if path else float("inf")
                return False
            watch = syscalls.inotify_add_watch(self.fd, b"/proc/self/fd/%d" % directory.fd, _MASK)
        except OSError as exc:
            if exc.errno == errno.ENOSPC:
                self._full(now)
            return False
        self._watches[path] = watch
        self._paths.setdefault(watch, set()).add(path)
        if path:
            self._below.setdefault(path.rpartition(b"/")[0], set()).add(path)
        return True

    def _full(self, now: float) -> None:
        self._full_until = now + RETRY_S
        if not self._told_full:
            self._told_full = True
            log.warning(
                "changes are watched in %d directories of the lower and not in more: fs.inotify.max_user_watches is too low",
                len(self._watches),
            )

    # -- dropping

    def _release(self, path: bytes) -> None:
        """Stop watching *path* and the directories above it, unless a caller asked for them or they are above another watched
        path.
        """
        while path in self._watches and path not in self._wanted and path not in self._below:
            self._drop(path)
            path = path.rpartition(b"/")[0]

    def _parted(self, path: bytes) -> Iterator[tuple[tuple[bytes, None], bool]]:
        """Stop watching *path* and everything below, since those inodes may have other paths now. Yield each path for news()."""
        parted = [path] if path in self._watches else []
        for each in parted:  # the loop appends to this list
            parted += self._below.get(each, ())
        for each in reversed(parted):
            self._wanted.discard(each)
            self._drop(each)
            yield (each, None), True

    def _drop(self, path: bytes) -> None:
        watch = self._watches.pop(path)
        paths = self._paths[watch]
        paths.discard(path)
        if not paths:
            del self._paths[watch]
            syscalls.inotify_rm_watch(self.fd, watch)
            self._full_until = 0.0
        above = path.rpartition(b"/")[0]
        beside = self._below.get(above)
        if beside is not None:
            beside.discard(path)
            if not beside:
                del self._below[above]

    def _lost(self) -> list[LowerChange]:
        for watch in self._paths:
            syscalls.inotify_rm_watch(self.fd, watch)
        self._clear()
        for _ in inotify.events(self.fd):  # empty the queue: events for the end of these watches alone might overflow it
            pass
        return [LOWER_LOST]

    def _clear(self) -> None:
        self._watches.clear()
        self._paths.clear()
        self._below.clear()
        self._wanted.clear()
        self._full_until = 0.0
