"""The detached mounts of the lower and of the objects through which descriptors for other processes are opened."""

import os

from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.linux import readonly_mounts
from agentfsd.lower.host_lower import HostLower
from agentfsd.types import Backstore


class DescriptorMounts:
    """The mounts, which must be made before threads start and before anything is mounted over the lower.

    ``why_not``: why descriptors cannot be given out, "" when they can.
    """

    def __init__(self, lower: HostLower, lower_path: str, backstore: Backstore, objects: str) -> None:
        self._held: list[int] = []
        self.why_not = self._make(lower, lower_path, backstore, objects)

    def _make(self, lower: HostLower, lower_path: str, backstore: Backstore, objects: str) -> str:
        if not isinstance(backstore, HostBackstore):
            return f"the {backstore.kind} backstore has no files that could be given out"
        try:
            probe = backstore.create_unnamed()
            leased = not probe.is_open_elsewhere()
            probe.close()
            self._held = readonly_mounts.views((lower_path, False), (objects, False), (objects, True))
        except OSError as exc:
            return f"there are no mounts here to give files out through: {exc.strerror}"
        if not leased:
            return "the file system of the state directory knows no leases: nobody could tell who still has a file"
        lower.reader_root, backstore.reader_root, backstore.writer_root = self._held
        return ""

    def close(self) -> None:
        """Close the mounts."""
        while self._held:
            os.close(self._held.pop())
