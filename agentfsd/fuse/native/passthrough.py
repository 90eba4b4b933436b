"""Passthrough: the kernel reads and writes the content object itself, for as long as the file is open.

The kernel opens an inode in one way at a time: while it is open with cached pages, it refuses passthrough, and the other way
round. So the first open decides for all opens until the last close. Source: include/uapi/linux/fuse.h, FUSE_DEV_IOC_BACKING_OPEN
(Linux 6.9, CAP_SYS_ADMIN).
"""

import fcntl
import os
import stat
import struct

from agentfsd.core import copyup, external_writers
from agentfsd.core.inode_attributes import CAPABILITIES
from agentfsd.core.tree import Inode

_SET_ID = stat.S_ISUID | stat.S_ISGID
_OPEN, _CLOSE = 0x4010E501, 0x4004E502
_MAP = struct.Struct("=iIQ")


class _Ways:
    """How often an inode is open in each way; ``backing`` is the kernel's id of the object that it holds open."""

    __slots__ = ("backing", "cached", "passed")

    def __init__(self) -> None:
        self.cached = self.passed = 0
        self.backing = 0


class PassthroughFiles:
    """The files of one connection that are open in either way."""

    def __init__(self, fuse_fd: int) -> None:
        self._fd = fuse_fd
        self._ways: dict[Inode, _Ways] = {}

    def enter(self, inode: Inode, *, writes: bool) -> int:
        """Count an open; return its backing id for passthrough, 0 for an open with cached pages.

        An open for reading alone is never the first in passthrough: it gains little, and a snapshot copies each such file.
        """
        ways = self._ways.setdefault(inode, _Ways())
        if not ways.passed and (ways.cached or not writes or not self._begin(inode, ways)):
            ways.cached += 1
            return 0
        ways.passed += 1
        external_writers.begin(inode)
        return ways.backing

    def resume(self, inode: Inode, backing: int) -> None:
        """Count an open of the daemon before. *backing*: the kernel's id for it; 0: it was opened with cached pages."""
        ways = self._ways.setdefault(inode, _Ways())
        if backing:
            ways.passed += 1
            ways.backing = backing
            external_writers.begin(inode)
        else:
            ways.cached += 1

    def _begin(self, inode: Inode, ways: _Ways) -> bool:
        """Hand the kernel the content object; return whether it takes it.

        Only an object that the branch owns, since no other branch may see the writes. No file with setuid bits or capabilities,
        since a write must clear them and the daemon does not see the write.
        """
        if inode.file is None or not inode.file.stays or not copyup.is_owned(inode):
            return False
        if inode.mode & _SET_ID or CAPABILITIES in (inode.xattrs or ()):
            return False
        try:
            # Opened once more: the kernel holds this until the last close, so the object counts as open elsewhere from before the
            # reply to the first OPEN, upon which the opener acts when it comes to run (copyup.keep_original).
            held = os.open(f"/proc/self/fd/{inode.file.fileno()}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            ways.backing = fcntl.ioctl(self._fd, _OPEN, bytearray(_MAP.pack(held, 0, 0)), True)
        except OSError:
            return False
        finally:
            os.close(held)
        return True

    def leave(self, inode: Inode, passed: bool) -> None:
        """Count one open less; after the last one in passthrough, the kernel closes the object."""
        ways = self._ways.get(inode)
        if ways is None:
            return
        if passed:
            ways.passed -= 1
            external_writers.end(inode.tree, inode)
            if not ways.passed:
                fcntl.ioctl(self._fd, _CLOSE, struct.pack("=I", ways.backing))
        else:
            ways.cached -= 1
        if not ways.passed and not ways.cached:
            del self._ways[inode]
