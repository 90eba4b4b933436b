"""Whether the file system that holds the contents is full, for messages about it. This module knows nothing of contents."""

import os
import time

from agentfsd.types import Backstore

_FULL_BYTES = 1 << 20
_LOOK_EVERY_S = 0.5
_ROOMY_BYTES = 8 << 20  # a full disk counts as full until so much is free, so that the state does not flap


def is_full(status: os.statvfs_result) -> bool:
    """Return whether there is no room, or none for one more file."""
    return free_bytes(status) < _FULL_BYTES or (status.f_files > 0 and status.f_ffree == 0)


def free_bytes(status: os.statvfs_result) -> int:
    """Return the bytes free for us: a part may be reserved for root."""
    return (status.f_bfree if os.geteuid() == 0 else status.f_bavail) * status.f_frsize


def wait_for_room(path: str, limit_s: float) -> None:
    """Wait until a full disk has room, at most *limit_s* seconds. An exceeded quota is not visible and takes the whole time."""
    deadline = time.monotonic() + limit_s
    was_full = is_full(os.statvfs(path))
    while time.monotonic() < deadline and not (was_full and free_bytes(os.statvfs(path)) >= _ROOMY_BYTES):
        time.sleep(_LOOK_EVERY_S)


class FreeSpace:
    """The state of one backstore's disk. A backstore in memory is never full."""

    def __init__(self, backstore: Backstore) -> None:
        self._backstore = backstore
        self.is_full = False

    def has_changed(self) -> bool:
        """Check again, and return whether the state has changed. OSError."""
        if not self._backstore.persistent:
            return False
        status, before = self._backstore.statvfs(), self.is_full
        roomy_bytes = min(_ROOMY_BYTES, status.f_blocks * status.f_frsize // 8)
        self.is_full = is_full(status) or (before and free_bytes(status) < roomy_bytes)
        return self.is_full != before
