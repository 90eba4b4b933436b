"""Files that are open for writing at the mount point while runs see that branch through a connection of their own.

Processes on both sides may map such a file shared and change its pages without a message to the daemon. So only one connection at
a time has pages of it, its *owner*. Before we answer a READ or WRITE of another connection, a notification makes the owner's
kernel side take the pages out of every mapping and write dirty ones back. The next access there is a READ again, and waits for
its turn. A change of owner takes milliseconds, but SQLite's shared memory in WAL mode works across it.
"""

import logging

import trio

from agentfsd.core.tree import Inode
from agentfsd.fuse.kernel_cache import KernelCache

log = logging.getLogger(__name__)

_ROUNDS = 100


class PageOwner:
    """Who may have pages of one file.

    Attributes:
        holder: The connection whose kernel side may have pages.
        handles: How many handles at the mount point are open for writing.
        turn: Held while pages move from one connection to another.
        doubtful: After the daemon was started again: connections whose kernel sides may all have pages.
        was_touched: The holder was answered since its pages were asked back.
    """

    __slots__ = ("doubtful", "handles", "holder", "turn", "was_touched")

    def __init__(self, holder: KernelCache) -> None:
        self.holder = holder
        self.handles = 0
        self.turn = trio.Lock()
        self.was_touched = False
        self.doubtful: tuple[KernelCache, ...] = ()

    def is_open_to(self, connection: KernelCache) -> bool:
        """Return whether a request of that connection may be answered at once.

        The holder is answered even while its pages are asked back: its request holds page locks, which giving back waits for. The
        pages that it gets meanwhile are asked back once more (``was_touched``).
        """
        if self.holder is not connection or self.doubtful:
            return False
        self.was_touched = True
        return True

    async def take(self, inode: Inode, connection: KernelCache) -> None:
        """Make *connection* the holder: wait until no other connection has pages of the file."""
        async with self.turn:
            if self.doubtful:
                await self._settle(inode, connection)
            other = self.holder
            if other is connection:
                return
            for _ in range(_ROUNDS):
                self.was_touched = False
                node = other.nodes.find_file(inode)
                if node is None or not other.is_open:
                    break
                other.notifier.expire_data(node.id)
                await other.notifier.settled()
                if not self.was_touched:
                    break
            else:
                log.warning("two connections keep asking for the pages of one file: changes in a mapping may arrive late")
            self.holder = connection

    async def _settle(self, inode: Inode, connection: KernelCache) -> None:
        """Make *connection* the holder: take the pages of all others that may have some."""
        for other in self.doubtful:
            node = other.nodes.find_file(inode) if other is not connection and other.is_open else None
            if node is not None:
                other.notifier.expire_data(node.id)
                await other.notifier.settled()
        self.holder, self.doubtful = connection, ()


class PageOwners:
    """The page owner of each file that both sides use. Usually empty, which requests check first."""

    def __init__(self) -> None:
        self._by_inode: dict[Inode, PageOwner] = {}

    def __bool__(self) -> bool:
        return bool(self._by_inode)

    def of(self, inode: Inode) -> PageOwner | None:
        """Return the page owner of a file; None if only one side uses it."""
        return self._by_inode.get(inode)

    def has_all(self, inode: Inode, connection: KernelCache | None) -> bool:
        """Return whether that connection is the only one that can have pages of a file."""
        owner = self._by_inode.get(inode)
        return owner is not None and owner.holder is connection

    def begin(self, inode: Inode, holder: KernelCache, doubtful: tuple[KernelCache, ...] = ()) -> None:
        """Count a handle that is open for writing at the mount point.

        Args:
            inode: The file.
            holder: Who has its pages, if it is new here.
            doubtful: See PageOwner.
        """
        owner = self._by_inode.get(inode)
        if owner is None:
            owner = self._by_inode[inode] = PageOwner(holder)
            owner.doubtful = doubtful
        owner.handles += 1

    def end(self, inode: Inode) -> None:
        """Count a handle less that begin() counted."""
        owner = self._by_inode.get(inode)
        if owner is not None:
            owner.handles -= 1
            if not owner.handles:
                del self._by_inode[inode]

    def drop_tree(self, tree_id: str) -> None:
        """Drop the files of a branch whose own connection has ended."""
        for inode in [inode for inode in self._by_inode if inode.tree.id == tree_id]:
            del self._by_inode[inode]
