"""Telling the kernel to look again: notifications.

Whatever needs a lock that a request may hold is written by a thread: a name needs its directory's lock, the pages of a file need
theirs, and a request that holds one may wait for us. Attributes and listings need none, and are written at once.

Names are expired, never invalidated, and never by FUSE_NOTIFY_INC_EPOCH: both take a directory's dentry out of the kernel's
cache, and with it everything that is mounted on it, in every mount namespace. An expired name is looked up at its next use, and
stays when it leads to the same node. A look-up that was answered just before may still be on its way to a name that is expired,
and would then have it valid for long: so each name is expired once more a little later.
"""

import errno
import logging
import os
import queue
import struct
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping

import trio

from agentfsd.fuse.nodes import DirNode

log = logging.getLogger(__name__)

_OUT_HEADER = struct.Struct("<IiQ")
_INVAL_INODE = struct.Struct("<Qqq")
_INVAL_ENTRY = struct.Struct("<QII")
_NOTIFY_INVAL_INODE = 2
_NOTIFY_INVAL_ENTRY = 3
_EXPIRE_ONLY = 1  # Linux 6.2; FUSE_HAS_EXPIRE_ONLY in INIT says so
_ATTRIBUTES_ONLY, _ALL_DATA = -1, 0
_SETTLE_S = 10
_ANSWER_S = 2  # how long the answer to a request waits: the last resort against a circle of requests that wait for each other
_AGAIN_S = 0.1

Names = tuple[int, set[bytes]]  # a directory's node, and names in it
_Item = bytes | list[Names] | list[int] | trio.Event | threading.Event | None
Owed = dict["Notifier", int]  # how far each notifier has to come before an answer may go


class Notifier:
    """Queues notifications from the event loop; ``settled`` waits until the kernel has taken all of them."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._fd = -1
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=self._work, name="agentfsd-notify", daemon=True)
        self.expires = False  # the kernel can expire a name without taking it out of its cache
        self.queued = self._written = 0

    @property
    def waiting(self) -> int:
        """Notifications that the kernel has not taken yet."""
        return self.queued - self._written

    def start(self, fuse_fd: int, *, expires: bool) -> None:
        self._fd, self.expires = fuse_fd, expires
        self._token = trio.lowlevel.current_trio_token()
        self._thread.start()

    def stop(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(_SETTLE_S)
        self._fd = -1

    # -- by the thread

    def expire(self, directory: DirNode, names: Collection[bytes]) -> bool:
        """The kernel asks again for the directory's attributes and listing, and for those of *names* that it may hold: True when
        there are any."""
        self.expire_listing_now(directory.id)
        held = directory.names.intersection(names)
        if not held or self._fd < 0:
            return False
        directory.names -= held
        self._put([(directory.id, held)], 1)
        return True

    def expire_many(self, directories: list[Names], files: list[int]) -> None:
        """Likewise for many directories, each with some names in it, and for the attributes of many files. All the work is the
        thread's."""
        if self._fd < 0:
            return
        if directories:
            self._put(directories, 1)
        if files:
            self._put(files, 1)

    def expire_data(self, node_id: int) -> None:
        """What is cached of a file's attributes and content; what was changed in a mapping is written back first."""
        if self._fd >= 0:
            self._put(_inode(node_id, _ALL_DATA), 1)

    def _put(self, item: bytes | list[Names] | list[int], count: int) -> None:
        self.queued += count
        self._queue.put(item)

    # -- at once

    def expire_attributes_now(self, node_id: int) -> None:
        """Also before the reply to a request: takes none of the locks that a request may hold."""
        if self._fd >= 0:
            self._write(_inode(node_id, _ATTRIBUTES_ONLY))

    def expire_listing_now(self, node_id: int) -> None:
        """Likewise, a directory's listing, too: no request holds its pages."""
        if self._fd >= 0:
            self._write(_inode(node_id, _ALL_DATA))

    # -- waiting

    async def settled(self, patience_s: float = _SETTLE_S) -> bool:
        """Waits until everything queued so far has reached the kernel; False when that took longer."""
        if self._written >= self.queued or not self._thread.is_alive():
            return True
        done = trio.Event()
        self._queue.put(done)
        with trio.move_on_after(patience_s):
            await done.wait()
        return done.is_set()

    def settled_soon(self, patience_s: float) -> bool:
        """Whether everything queued so far reaches the kernel within that time; the event loop waits."""
        if self._written >= self.queued:
            return True
        done = threading.Event()
        self._queue.put(done)
        return done.wait(patience_s)

    def has_taken(self, position: int) -> bool:
        """Whether the kernel has taken all that was queued until then."""
        return self._written >= position

    def _work(self) -> None:
        again: deque[tuple[float, list[Names] | list[int]]] = deque()
        while True:
            try:
                item = self._queue.get(timeout=max(0.0, again[0][0] - time.monotonic()) if again else None)
            except queue.Empty:
                self._write_all(again.popleft()[1])
                continue
            if item is None:
                return
            if isinstance(item, trio.Event):
                self._tell(item)
            elif isinstance(item, threading.Event):
                item.set()
            elif isinstance(item, bytes):
                self._write(item)
                self._written += 1
            else:
                self._write_all(item)
                self._written += 1
                again.append((time.monotonic() + _AGAIN_S, item))

    def _write_all(self, item: list[Names] | list[int]) -> None:
        for message in _messages(item):
            self._write(message)

    def _write(self, message: bytes) -> None:
        try:
            os.write(self._fd, message)
        except OSError as exc:
            if exc.errno != errno.ENOENT:  # the kernel has forgotten that node or name already
                log.debug("notification refused: %s", exc)

    def _tell(self, done: trio.Event) -> None:
        assert self._token is not None
        try:
            self._token.run_sync_soon(done.set)
        except trio.RunFinishedError:
            pass


async def all_taken(owed: Mapping[Notifier, int]) -> None:
    """Returns when each kernel has been told what an answer waits for, or after _ANSWER_S: what is left comes later then."""
    for notifier, position in owed.items():
        if not notifier.has_taken(position) and not await notifier.settled(_ANSWER_S):
            log.warning("an answer went before another connection was told: %d notifications were not taken", notifier.waiting)


def _messages(item: list[Names] | list[int]) -> Iterator[bytes]:
    for one in item:
        if isinstance(one, int):
            yield _inode(one, _ATTRIBUTES_ONLY)
            continue
        directory, names = one
        for name in names:
            yield _pack(_NOTIFY_INVAL_ENTRY, _INVAL_ENTRY.pack(directory, len(name), _EXPIRE_ONLY) + name + b"\0")
        yield _inode(directory, _ALL_DATA)


def _inode(node_id: int, offset: int) -> bytes:
    return _pack(_NOTIFY_INVAL_INODE, _INVAL_INODE.pack(node_id, offset, 0))


def _pack(code: int, body: bytes) -> bytes:
    return _OUT_HEADER.pack(_OUT_HEADER.size + len(body), code, 0) + body
