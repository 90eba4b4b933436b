"""Mounting through pyfuse3, serving requests until the end, and the list of handlers."""

import errno
import logging
import os
import stat
from typing import TYPE_CHECKING

import pyfuse3

from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree
from agentfsd.fuse.files import FileHandlers
from agentfsd.fuse.heal import Healer
from agentfsd.fuse.names import NameHandlers
from agentfsd.fuse.notify import Notifier
from agentfsd.types import ControlOpener

if TYPE_CHECKING:
    from agentfsd.binding.table import Bindings

log = logging.getLogger(__name__)


class Operations(NameHandlers, FileHandlers, pyfuse3.Operations):  # type: ignore[misc]
    """Every request pyfuse3 can express. Handlers are thin: what a request means is core's business."""

    supports_dot_lookup = False
    enable_writeback_cache = False  # a snapshot would miss acknowledged writes that the kernel still holds
    enable_acl = True

    def tree_replaced(self, tree: Tree) -> None:
        """After a restore or a deletion: whatever fixed views have cached of that tree is looked up again."""
        for view in self.nodes.views_of(tree.id):
            if view.root is None:
                continue
            for node in {view.root, *view.dirs.values()}:
                self.notifier.expire(node, node.names)
        if not self.overlay.has_tree(tree.id):
            self.nodes.drop_views(tree.id)


class FuseSession:
    """One mount. pyfuse3 has one connection per process."""

    def __init__(
        self, overlay: Overlay, bindings: "Bindings", control: ControlOpener, mountpoint: str, options: frozenset[str]
    ) -> None:
        self._notifier = Notifier()
        self._healer = Healer(mountpoint)
        self.operations = Operations(overlay, bindings, control, self._notifier, self._healer)
        self.operations.moves_atime = not options & {"noatime", "ro"}
        overlay.on_replaced.append(self.operations.tree_replaced)
        self._mountpoint, self._options = mountpoint, options
        self._mounted = False

    def mount(self) -> None:
        """OSError with a sentence when the kernel or fusermount3 refuses."""
        options = {"fsname=agentfsd", "subtype=agentfsd", "default_permissions", *self._options}
        try:
            pyfuse3.init(self.operations, self._mountpoint, options)
        except RuntimeError as exc:
            raise OSError(errno.EIO, f"mounting on {self._mountpoint} failed: {exc} (`agentfsd doctor` says why)") from exc
        self._mounted = True

    async def serve(self) -> None:
        """Answers requests until the file system is unmounted or terminate() is called."""
        self._notifier.start(_fuse_descriptor())
        self._healer.start()
        try:
            await pyfuse3.main()
        finally:
            self._notifier.stop()
            self._healer.stop()

    def terminate(self) -> None:
        """Asks serve() to return; the mount stays until close()."""
        pyfuse3.terminate()

    async def settled(self) -> None:
        """Returns when the kernel has taken every notification of what changed so far."""
        await self._notifier.settled()

    def close(self, *, unmount: bool) -> None:
        """Ends the connection. *unmount* only while the mount is there: libfuse takes away whatever is on top."""
        if self._mounted:
            self._mounted = False
            pyfuse3.close(unmount=unmount)


def _fuse_descriptor() -> int:
    """pyfuse3 does not show the connection's descriptor; notifications that it does not know go through it directly."""
    for name in os.listdir("/proc/self/fd"):
        try:
            found = os.stat(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(10, 229):
            return int(name)
    raise OSError(errno.ENODEV, "no connection to /dev/fuse")
