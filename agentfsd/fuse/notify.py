"""Telling the kernel to look again: notifications, written by a thread of their own.

The kernel takes the directory's lock to handle one, which a request that waits for us may hold: writing them in the
event loop would deadlock. A look-up that was answered just before may still be on its way to a name that is expired, and
would then have it valid for long: so each name is expired once more a little later. Expiring (not invalidating) keeps a
directory that is somebody's working directory in place.
"""

import errno
import logging
import os
import queue
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable

import trio

from agentfsd.fuse.nodes import DirNode

log = logging.getLogger(__name__)

_OUT_HEADER = struct.Struct("<IiQ")
_INVAL_INODE = struct.Struct("<Qqq")
_INVAL_ENTRY = struct.Struct("<QII")
_NOTIFY_INVAL_INODE = 2
_NOTIFY_INVAL_ENTRY = 3
_NOTIFY_INC_EPOCH = 8  # Linux 6.16
_EXPIRE_ONLY = 1
_ATTRIBUTES_ONLY, _ALL_DATA = -1, 0
_SETTLE_S = 10
_PATIENCE_S = 0.05
_AGAIN_S = 0.1


class Notifier:
    """Queues notifications from the event loop; ``settled`` waits until the kernel has taken all of them."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes | trio.Event | threading.Event | None] = queue.SimpleQueue()
        self._fd = -1
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=self._work, name="agentfsd-notify", daemon=True)
        self.can_expire_all = False
        self._queued = self._written = 0

    @property
    def waiting(self) -> int:
        """Notifications that the kernel has not taken yet."""
        return self._queued - self._written

    def start(self, fuse_fd: int) -> None:
        self._fd = fuse_fd
        self._token = trio.lowlevel.current_trio_token()
        self.can_expire_all = self._probe_epoch()
        self._thread.start()

    def _probe_epoch(self) -> bool:
        try:
            os.write(self._fd, _pack(_NOTIFY_INC_EPOCH, b""))
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(_SETTLE_S)
        self._fd = -1

    def expire(self, directory: DirNode, names: Iterable[bytes]) -> None:
        """The kernel asks again for these names and for the directory's attributes and listing."""
        directory.names.difference_update(names := list(names))
        for name in names:
            body = _INVAL_ENTRY.pack(directory.id, len(name), _EXPIRE_ONLY) + name + b"\0"
            self._put(_NOTIFY_INVAL_ENTRY, body)
        self.expire_inode(directory.id, data=True)

    def expire_all(self) -> bool:
        """The kernel asks again for every name of the connection; False when it cannot be told so in one word."""
        if self.can_expire_all:
            self._put(_NOTIFY_INC_EPOCH, b"")
        return self.can_expire_all

    def expire_attributes(self, node_id: int) -> None:
        self.expire_inode(node_id, data=False)

    def expire_inode(self, node_id: int, *, data: bool) -> None:
        """Its attributes; with *data* what is cached of a file's content or a directory's listing, too."""
        self._put(_NOTIFY_INVAL_INODE, _INVAL_INODE.pack(node_id, _ALL_DATA if data else _ATTRIBUTES_ONLY, 0))

    def expire_attributes_now(self, node_id: int) -> None:
        """Before the reply to a request: takes none of the locks that a request may hold."""
        if self._fd >= 0:
            self._write(_pack(_NOTIFY_INVAL_INODE, _INVAL_INODE.pack(node_id, _ATTRIBUTES_ONLY, 0)))

    def _put(self, code: int, body: bytes) -> None:
        if self._fd >= 0:
            self._queued += 1
            self._queue.put(_pack(code, body))

    async def settled(self, *, patient: bool = False) -> None:
        """Returns when everything queued so far has reached the kernel.

        Two requests that change one directory through two connections hold a lock each that the other's notification
        needs: whoever waits too long expires all names instead, which takes no lock. *patient*: for who answers no request of
        the kernel, and needs the pages that it writes back before it drops them.
        """
        if self._written >= self._queued or not self._thread.is_alive():
            return
        done = trio.Event()
        self._queue.put(done)
        with trio.move_on_after(_PATIENCE_S if self.can_expire_all and not patient else _SETTLE_S) as waiting:
            await done.wait()
        if waiting.cancelled_caught and self.can_expire_all:
            self._write(_pack(_NOTIFY_INC_EPOCH, b""))

    def settled_soon(self, patience_s: float) -> bool:
        """Whether everything queued so far reaches the kernel within that time; the event loop waits."""
        if self._written >= self._queued:
            return True
        done = threading.Event()
        self._queue.put(done)
        return done.wait(patience_s)

    def _work(self) -> None:
        again: deque[tuple[float, bytes]] = deque()
        while True:
            try:
                item = self._queue.get(timeout=max(0.0, again[0][0] - time.monotonic()) if again else None)
            except queue.Empty:
                self._write(again.popleft()[1])
                continue
            if item is None:
                return
            if isinstance(item, trio.Event):
                self._tell(item)
                continue
            if isinstance(item, threading.Event):
                item.set()
                continue
            self._write(item)
            self._written += 1
            if _OUT_HEADER.unpack_from(item)[1] == _NOTIFY_INVAL_ENTRY:
                again.append((time.monotonic() + _AGAIN_S, item))

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


def _pack(code: int, body: bytes) -> bytes:
    return _OUT_HEADER.pack(_OUT_HEADER.size + len(body), code, 0) + body
