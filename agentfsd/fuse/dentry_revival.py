"""Gives processes their working directory back after another branch looked its name up and found nothing there.

The kernel keeps one dentry for a name. When a branch that has no such directory looks the name up, the kernel takes the
dentry out of its cache, and getcwd() fails for whoever stands in it, until somebody who does see the directory looks it up by
path again. A thread here does that at once, in the place of a process of such a branch.
"""

import os
import queue
import threading
import time

_SETTLE_S = 0.001  # the answer that takes the dentry away must reach the kernel first


class DentryReviver:
    """Queues paths from the event loop; ``stands_in_for`` tells the handlers whose eyes the thread looks up with."""

    def __init__(self, mountpoint: str) -> None:
        self._root = os.fsencode(mountpoint)
        self._queue: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._pending: set[tuple[str, bytes]] = set()
        self._thread = threading.Thread(target=self._work, name="agentfsd-heal", daemon=True)
        self._tree_id = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._queue.put(None)

    def stands_in_for(self, tid: int) -> str | None:
        """The tree id that a request of our own thread is about; None for anybody else's request."""
        return self._tree_id if tid == self._thread.native_id else None

    def look_up(self, tree_id: str, path: list[bytes]) -> None:
        """Soon looks *path* up as a process of that branch would."""
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
                pass  # it is gone in that branch, too; or the mount is
