"""Files that are open for writing at the mount point while runs see that branch through a connection of their own.

Processes on both sides may map such a file shared and change its pages without a message to the daemon. So only one connection at
a time has pages of it, its *owner*. Before we answer a READ or WRITE of another connection, a notification makes the owner's
kernel side take the pages out of every mapping and write dirty ones back. The next access there is a READ again, and waits for
its turn. A change of owner takes milliseconds, but SQLite's shared memory in WAL mode works across it.

The owner's ledger says that it has the pages, from before its first answer on. So after the daemon was started again the owner is
the same: an answer to another one would give it pages that lack what the owner's mappings have changed.
"""

import logging
from collections.abc import Collection

import trio

from agentfsd.core.tree import Inode
from agentfsd.fuse.kernel_cache import KernelCache
from agentfsd.fuse.ledger import Ledger

log = logging.getLogger(__name__)

PAGES = 32  # the kind of a record: the connection may have pages of the file; word: its node
_ROUNDS = 100


class PageOwner:
    """Who may have pages of one file.

    Attributes:
        holder: The connection whose kernel side may have pages. hold() changes it.
        handles: How many handles at the mount point are open for writing.
        turn: Held while pages move from one connection to another.
        was_touched: The holder was answered since its pages were asked back.
        is_ended: Only one side uses the file any more.
    """

    __slots__ = ("_at", "_ledger", "handles", "holder", "is_ended", "turn", "was_touched")

    def __init__(self, holder: KernelCache, at: int) -> None:
        """*at*: where its ledger says that it is the holder; 0 for nowhere yet."""
        self.holder = holder
        self._ledger: Ledger = holder.nodes.records.ledger
        self._at = at
        self.handles = 0
        self.turn = trio.Lock()
        self.was_touched = self.is_ended = False

    def hold(self, inode: Inode, connection: KernelCache) -> None:
        """Make *connection* the holder, in its ledger first."""
        ledger, before, at = connection.nodes.records.ledger, self._ledger, self._at
        node = connection.nodes.find_file(inode)
        self._at = ledger.put(PAGES, (node.id, 0, 0, 0, 0, 0)) if node is not None else 0
        self._ledger, self.holder = ledger, connection
        before.drop(at)

    def end(self) -> None:
        """Forget who is the holder."""
        self._ledger.drop(self._at)
        self._at = 0
        self.is_ended = True

    def is_open_to(self, inode: Inode, connection: KernelCache) -> bool:
        """Return whether a request of that connection may be answered at once.

        The holder is answered even while its pages are asked back: its request holds page locks, which giving back waits for. The
        pages that it gets meanwhile are asked back once more (``was_touched``).
        """
        if self.holder is not connection:
            return False
        if not self._at:  # until now the holder's kernel side did not know the file, so it had no node to record
            self.hold(inode, connection)
        self.was_touched = True
        return True

    async def take(self, inode: Inode, connection: KernelCache) -> None:
        """Make *connection* the holder: wait until no other connection has pages of the file."""
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
                log.warning("two connections keep asking for the pages of one file: changes in a mapping may arrive late")
            if not self.is_ended:
                self.hold(inode, connection)


class PageOwners:
    """The page owner of each file that both sides use. Usually empty, which requests check first."""

    def __init__(self) -> None:
        self._by_inode: dict[Inode, PageOwner] = {}
        self._former: dict[Inode, tuple[KernelCache, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_inode)

    def files(self) -> Collection[Inode]:
        """Return the files that have one."""
        return self._by_inode.keys()

    def of(self, inode: Inode) -> PageOwner | None:
        """Return the page owner of a file; None if only one side uses it."""
        return self._by_inode.get(inode)

    def has_all(self, inode: Inode, connection: KernelCache | None) -> bool:
        """Return whether that connection is the only one that can have pages of a file."""
        owner = self._by_inode.get(inode)
        return owner is not None and owner.holder is connection

    def was_holder(self, inode: Inode, connection: KernelCache, at: int) -> None:
        """Note what the ledger of a connection of the daemon before says, and where."""
        if inode in self._former:  # the holder was just changing, so neither has been answered as such
            other, its = self._former[inode]
            other.nodes.records.ledger.drop(its)
        self._former[inode] = connection, at

    def forget_former(self) -> None:
        """Forget what the ledgers said of files that only one side uses any more."""
        for connection, at in self._former.values():
            connection.nodes.records.ledger.drop(at)
        self._former.clear()

    def begin(self, inode: Inode, holder: KernelCache) -> bool:
        """Count a handle that is open for writing at the mount point.

        Args:
            inode: The file.
            holder: Who may have pages of it from now on, if it is new here.

        Returns:
            It is new here: no other connection may have pages of it, or attributes.
        """
        owner, is_new = self._by_inode.get(inode), False
        if owner is None:
            is_new = inode not in self._former
            former = self._former.pop(inode, None)
            owner = self._by_inode[inode] = PageOwner(*former) if former is not None else PageOwner(holder, 0)
            if former is None:
                owner.hold(inode, holder)
        owner.handles += 1
        return is_new

    def end(self, inode: Inode) -> None:
        """Count a handle less that begin() counted."""
        owner = self._by_inode.get(inode)
        if owner is not None:
            owner.handles -= 1
            if not owner.handles:
                del self._by_inode[inode]
                owner.end()

    def drop_tree(self, tree_id: str) -> None:
        """Drop the files of a branch whose own connection has ended."""
        for inode in [inode for inode in self._by_inode if inode.tree.id == tree_id]:
            self._by_inode.pop(inode).end()
