"""Restores the working directory of processes after a process of another branch has looked up its name.

The kernel keeps one dentry for a name. When a branch that has no such directory looks the name up, the kernel takes the dentry
out of its cache. getcwd() then fails for every process in that directory, until a process that sees the directory looks it up by
path again. A thread here does so at once, and the daemon answers it as it would a process of that branch.
"""

import os
import queue
import threading
import time

_SETTLE_S = 0.001  # the answer that makes the kernel drop the dentry must reach it first


class DentryReviver:
    """Queues paths from the event loop. ``stands_in_for`` tells handlers which branch the thread looks up for."""

    def __init__(self, mountpoint: str) -> None:
        self._root = os.fsencode(mountpoint)
        self._queue: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._pending: set[tuple[str, bytes]] = set()
        self._thread = threading.Thread(target=self._work, name="agentfsd-heal", daemon=True)
        self._tree_id = ""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread once its queue is empty; do not wait for it."""
        self._queue.put(None)

    def stands_in_for(self, tid: int) -> str | None:
        """Return the tree id for a request of our own thread; None for any other thread's."""
        return self._tree_id if tid == self._thread.native_id else None

    def look_up(self, tree_id: str, path: list[bytes]) -> None:
        """Queue a look-up of *path* as a process of that branch would make it."""
        job = (tree_id, b"/".join(path))
        if job not in self._pending:
            self._pending.add(job)
            self._queue.put(job)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            time.sleep(_SETTLE_S)
            self._pending.discard(job)
            self._tree_id, path = job
            try:
                os.stat(os.path.join(self._root, path), follow_symlinks=False)
            except OSError:
                pass  # the path is gone in that branch too, or the mount is
