"""Files that are open for writing at the mount point while runs see that branch through a connection of their own.

Processes on both sides may map such a file shared, and change its pages without a word to us. So only one connection at a time
has pages of it. Before we answer a read or write of the other one, the kernel gives them back: it takes them out of every mapping
and writes back what was changed. A process that touches them again makes the kernel ask us, and then it is that side's turn. This
is slow, and right: SQLite's shared memory in WAL mode works across it.
"""

import logging

import trio

from agentfsd.core.tree import Inode
from agentfsd.fuse.kernel_cache import KernelCache

log = logging.getLogger(__name__)

_ROUNDS = 100


class PageOwner:
    """One file. ``holder``: the connection whose kernel side may have pages of it."""

    __slots__ = ("handles", "holder", "turn", "was_touched")

    def __init__(self, holder: KernelCache) -> None:
        self.holder = holder
        self.handles = 0  # open for writing at the mount point
        self.turn = trio.Lock()
        self.was_touched = False

    def is_open_to(self, connection: KernelCache) -> bool:
        """Whether a request of that connection may be answered at once.

        While the holder has to give its pages back it is still answered: its kernel side holds locks until then, for which giving
        back has to wait. What it gets so it has to give back again.
        """
        if self.holder is not connection:
            return False
        self.was_touched = True
        return True

    async def take(self, inode: Inode, connection: KernelCache) -> None:
        """Returns when no other connection has pages of the file."""
        async with self.turn:
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
                log.warning("two connections want the pages of one file without a pause; what is in a mapping may be late")
            self.holder = connection


class PageOwners:
    """All of them. Empty as a rule, and then nobody asks."""

    def __init__(self) -> None:
        self._by_inode: dict[Inode, PageOwner] = {}

    def __bool__(self) -> bool:
        return bool(self._by_inode)

    def of(self, inode: Inode) -> PageOwner | None:
        return self._by_inode.get(inode)

    def has_all(self, inode: Inode, connection: KernelCache | None) -> bool:
        """Whether no other connection than that one can have pages of a file."""
        owner = self._by_inode.get(inode)
        return owner is not None and owner.holder is connection

    def begin(self, inode: Inode, holder: KernelCache) -> None:
        """For each handle that is open for writing at the mount point."""
        owner = self._by_inode.get(inode)
        if owner is None:
            owner = self._by_inode[inode] = PageOwner(holder)
        owner.handles += 1

    def end(self, inode: Inode) -> None:
        """For each of these handles that is closed."""
        owner = self._by_inode.get(inode)
        if owner is not None:
            owner.handles -= 1
            if not owner.handles:
                del self._by_inode[inode]

    def drop_tree(self, tree_id: str) -> None:
        """The branch has no connection of its own any more."""
        for inode in [inode for inode in self._by_inode if inode.tree.id == tree_id]:
            del self._by_inode[inode]
