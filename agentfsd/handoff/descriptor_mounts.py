"""The detached mounts of the lower and of the objects through which descriptors for other processes are opened."""

import os

from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.linux import readonly_mounts
from agentfsd.lower.host_lower import HostLower
from agentfsd.process.kept_descriptors import KeptDescriptors
from agentfsd.types import Backstore

_NAMES = ("given.lower", "given.objects", "given.writable")  # of kept descriptors


class DescriptorMounts:
    """The mounts, which must be made before threads start and before anything is mounted over the lower.

    ``why_not``: why descriptors cannot be given out, "" when they can.

    Args:
        lower: The lower.
        lower_path: Its path.
        backstore: The content objects.
        objects: Their directory.
        kept: What the next daemon gets; it has the mounts of the daemon before.
    """

    def __init__(self, lower: HostLower, lower_path: str, backstore: Backstore, objects: str, kept: KeptDescriptors) -> None:
        self._held: list[int] = []
        self._kept = kept
        self.why_not = self._make(lower, lower_path, backstore, objects)

    def _made_before(self) -> list[int]:
        made = [self._kept.take(name) for name in _NAMES]
        return [fd for fd in made if fd is not None]

    def _make(self, lower: HostLower, lower_path: str, backstore: Backstore, objects: str) -> str:
        if not isinstance(backstore, HostBackstore):
            return f"the {backstore.kind} backstore has no files that could be given out"
        try:
            probe = backstore.create_unnamed()
            leased = not probe.is_open_elsewhere()
            probe.close()
            if not self._kept.is_resumed:
                self._held = readonly_mounts.views((lower_path, False), (objects, False), (objects, True))
                for name, fd in zip(_NAMES, self._held, strict=True):
                    self._kept.keep(name, fd)
            else:
                self._held = self._made_before()
        except OSError as exc:
            return f"there are no mounts here to give files out through: {exc.strerror}"
        if not leased:
            return "the file system of the state directory knows no leases: nobody could tell who still has a file"
        if not self._held:
            return "the daemon before this one could make no mounts to give files out through"
        lower.reader_root, backstore.reader_root, backstore.writer_root = self._held
        return ""

    def close(self) -> None:
        """Close the mounts."""
        for name in _NAMES:
            self._kept.drop(name)
        while self._held:
            os.close(self._held.pop())
