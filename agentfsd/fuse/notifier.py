"""Notifications: tell the kernel to ask the daemon again for names, attributes, listings or pages.

A notification about a name takes the directory's lock, and one about pages takes the pages' locks. A request that holds such a
lock may be waiting for the daemon, so a thread writes these notifications. Those about attributes and listings take no lock that
a request holds, so the event loop writes them at once.

A name is expired (FUSE_EXPIRE_ONLY). Invalidating it, or FUSE_NOTIFY_INC_EPOCH, would drop the directory's dentry, and with it
every mount on it in every mount namespace. The kernel looks an expired name up at its next use, and keeps the dentry when the
answer has the same node. The kernel may process an earlier answer to a LOOKUP only after the notification, and would then cache
that answer for long. So each name is expired a second time after _AGAIN_S.
"""

import contextlib
import logging
import os
import queue
import struct
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping

import trio

from agentfsd.fuse.kernel_nodes import DirNode
from agentfsd.process import apart

log = logging.getLogger(__name__)

_OUT_HEADER = struct.Struct("<IiQ")
_INVAL_INODE = struct.Struct("<Qqq")
_INVAL_ENTRY = struct.Struct("<QII")
_NOTIFY_INVAL_INODE = 2
_NOTIFY_INVAL_ENTRY = 3
_EXPIRE_ONLY = 1  # Linux 6.2; FUSE_HAS_EXPIRE_ONLY in INIT says so
_ATTRIBUTES_ONLY, _ALL_DATA = -1, 0
_SETTLE_S = 10
_ANSWER_S = 2  # how long an answer waits at most: the last resort against requests that wait for each other
_AGAIN_S = 0.1

Names = tuple[int, set[bytes]]  # a directory's node id, and names in it
_Item = bytes | list[Names] | list[int] | trio.Event | threading.Event | None
Owed = dict["Notifier", int]  # by notifier, the value of ``queued`` that it must have written before an answer may go


class Notifier:
    """Sends one connection's kernel notifications, those that take locks through a queue and a thread.

    Attributes:
        expires: The kernel supports FUSE_EXPIRE_ONLY.
        queued: How many notifications were queued so far.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._fd = -1
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=self._work, name="agentfsd-notify", daemon=True)
        self._settled: queue.SimpleQueue[trio.Event | None] = queue.SimpleQueue()
        self._teller = threading.Thread(target=self._tell, name="agentfsd-settled", daemon=True)
        self.expires = False
        self.queued = self._written = 0

    @property
    def waiting(self) -> int:
        """How many queued notifications the kernel has not taken yet."""
        return self.queued - self._written

    def start(self, fuse_fd: int, *, expires: bool) -> None:
        """Start the thread. Call in the event loop; before, every notification is dropped.

        Args:
            fuse_fd: The connection's descriptor.
            expires: The kernel supports FUSE_EXPIRE_ONLY.
        """
        self._fd, self.expires = fuse_fd, expires
        self._token = trio.lowlevel.current_trio_token()
        self._thread.start()
        self._teller.start()

    def stop(self) -> None:
        """Stop the thread once it has written what is queued; wait for it up to 10 s."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(_SETTLE_S)
        self._fd = -1

    # -- by the thread

    def expire(self, directory: DirNode, names: Collection[bytes]) -> bool:
        """Expire a directory's attributes and listing at once, and queue those of *names* that the kernel may hold.

        Returns:
            True if any name was queued.
        """
        self.expire_listing_now(directory.id)
        held = directory.names.take(names) if self._fd >= 0 else None
        if not held:
            return False
        self._put([(directory.id, held)], 1)
        return True

    def expire_many(self, directories: list[Names], files: list[int]) -> None:
        """Queue names in many directories, and the attributes of many files (node ids). The thread does all the work."""
        if self._fd < 0:
            return
        if directories:
            self._put(directories, 1)
        if files:
            self._put(files, 1)

    def expire_data(self, node_id: int) -> None:
        """Queue the expiry of a file's attributes and pages. The kernel writes dirty pages of mappings back first."""
        if self._fd >= 0:
            self._put(_inode(node_id, _ALL_DATA), 1)

    def _put(self, item: bytes | list[Names] | list[int], count: int) -> None:
        self.queued += count
        self._queue.put(item)

    # -- at once

    def expire_attributes_now(self, node_id: int) -> None:
        """Expire a node's attributes. Safe before the reply to a request: it takes no lock that a request may hold."""
        if self._fd >= 0:
            self._write(_inode(node_id, _ATTRIBUTES_ONLY))

    def expire_listing_now(self, node_id: int) -> None:
        """Expire a directory's attributes and cached listing. Safe before a reply: no request holds the listing's pages."""
        if self._fd >= 0:
            self._write(_inode(node_id, _ALL_DATA))

    # -- waiting

    async def settled(self, patience_s: float = _SETTLE_S) -> bool:
        """Wait until the kernel has taken everything queued so far; return False if that takes longer than *patience_s*."""
        if self._written >= self.queued or not self._thread.is_alive():
            return True
        done = trio.Event()
        self._queue.put(done)
        with trio.move_on_after(patience_s):
            await done.wait()
        return done.is_set()

    def settled_soon(self, patience_s: float) -> bool:
        """Do the same as settled(), but block the event loop meanwhile."""
        if self._written >= self.queued:
            return True
        done = threading.Event()
        self._queue.put(done)
        return done.wait(patience_s)

    def has_taken(self, position: int) -> bool:
        """Return whether the kernel has taken the first *position* notifications."""
        return self._written >= position

    def _work(self) -> None:
        try:
            apart.keep_only(self._fd)  # it may wait for a lock of the kernel that only an answer of this daemon frees
            self._write_queued()
        finally:
            self._settled.put(None)

    def _write_queued(self) -> None:
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
                self._settled.put(item)
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
        with contextlib.suppress(OSError):  # ENOENT: the kernel has forgotten that node or name already
            os.write(self._fd, message)

    def _tell(self) -> None:
        """Wake the event loop, which takes a descriptor that the thread which writes does not have."""
        assert self._token is not None
        while (done := self._settled.get()) is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(done.set)


async def all_taken(owed: Mapping[Notifier, int]) -> None:
    """Wait until each notifier has written what an answer waits for, _ANSWER_S each at most. What is left stays queued."""
    for notifier, position in owed.items():
        if not notifier.has_taken(position) and not await notifier.settled(_ANSWER_S):
            log.warning("an answer went before another connection was told: %d notifications were not taken", notifier.waiting)


def _messages(item: list[Names] | list[int]) -> Iterator[bytes]:
    for notice in item:
        if isinstance(notice, int):
            yield _inode(notice, _ATTRIBUTES_ONLY)
            continue
        directory, names = notice
        for name in names:
            yield _pack(_NOTIFY_INVAL_ENTRY, _INVAL_ENTRY.pack(directory, len(name), _EXPIRE_ONLY) + name + b"\0")
        yield _inode(directory, _ALL_DATA)


def _inode(node_id: int, offset: int) -> bytes:
    return _pack(_NOTIFY_INVAL_INODE, _INVAL_INODE.pack(node_id, offset, 0))


def _pack(code: int, body: bytes) -> bytes:
    return _OUT_HEADER.pack(_OUT_HEADER.size + len(body), code, 0) + body
