"""Telling the kernel to look again: expiry notifications, written by a thread of their own.

The kernel takes the directory's lock to handle one, which a request that waits for us may hold: writing them in the
event loop would deadlock. Expiring (not invalidating) keeps a directory that is somebody's working directory in place.
"""

import logging
import os
import queue
import struct
import threading
from collections.abc import Iterable

import trio

from agentfsd.fuse.nodes import DirNode

log = logging.getLogger(__name__)

_OUT_HEADER = struct.Struct("<IiQ")
_INVAL_INODE = struct.Struct("<Qqq")
_INVAL_ENTRY = struct.Struct("<QII")
_NOTIFY_INVAL_INODE = 2
_NOTIFY_INVAL_ENTRY = 3
_EXPIRE_ONLY = 1


class Notifier:
    """Queues notifications from the event loop; ``settled`` waits until the kernel has taken all of them."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes | trio.Event | None] = queue.SimpleQueue()
        self._fd = -1
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=self._work, name="agentfsd-notify", daemon=True)

    def start(self, fuse_fd: int) -> None:
        self._fd = fuse_fd
        self._token = trio.lowlevel.current_trio_token()
        self._thread.start()

    def stop(self) -> None:
        self._queue.put(None)

    def expire(self, directory: DirNode, names: Iterable[bytes]) -> None:
        """The kernel asks again for these names and for the directory's attributes."""
        directory.names.difference_update(names := list(names))
        for name in names:
            body = _INVAL_ENTRY.pack(directory.id, len(name), _EXPIRE_ONLY) + name + b"\0"
            self._put(_NOTIFY_INVAL_ENTRY, body)
        self.expire_attributes(directory.id)

    def expire_attributes(self, node_id: int) -> None:
        self._put(_NOTIFY_INVAL_INODE, _INVAL_INODE.pack(node_id, -1, 0))

    def expire_attributes_now(self, node_id: int) -> None:
        """Of a file, before the reply to a request: takes none of the locks that a request may hold."""
        if self._fd >= 0:
            self._write(_pack(_NOTIFY_INVAL_INODE, _INVAL_INODE.pack(node_id, -1, 0)))

    def _put(self, code: int, body: bytes) -> None:
        if self._fd >= 0:
            self._queue.put(_pack(code, body))

    async def settled(self) -> None:
        """Returns when everything queued so far has reached the kernel."""
        if self._fd < 0 or not self._thread.is_alive():
            return
        done = trio.Event()
        self._queue.put(done)
        with trio.move_on_after(10):
            await done.wait()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, trio.Event):
                self._tell(item)
                continue
            self._write(item)

    def _write(self, message: bytes) -> None:
        try:
            os.write(self._fd, message)
        except FileNotFoundError:
            pass  # the kernel has forgotten that node or name already
        except OSError as exc:
            log.debug("notification refused: %s", exc)

    def _tell(self, done: trio.Event) -> None:
        assert self._token is not None
        try:
            self._token.run_sync_soon(done.set)
        except trio.RunFinishedError:
            pass


def _pack(code: int, body: bytes) -> bytes:
    return _OUT_HEADER.pack(_OUT_HEADER.size + len(body), code, 0) + body
