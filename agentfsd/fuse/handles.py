"""What is open on one connection: a handle for each open file, directory and file of the daemon's own.

Each has a record in the ledger, written before the reply that tells the kernel of the handle.
"""

import errno
import itertools
import os
import struct

from agentfsd.core.rule_checks import RuledCaller
from agentfsd.core.tree import Inode
from agentfsd.fuse.kernel_nodes import DirNode, VirtualNode
from agentfsd.fuse.node_records import NodeRecords
from agentfsd.types import ControlChannel


class FileHandle:
    """One open of a regular file.

    Attributes:
        inode: The file.
        privileged: Root opened it; root's writes keep setuid bits.
        writes: It is open for writing.
        flushes: The kernel tells us of each close (FLUSH), not only of the last one (RELEASE).
        drops_pages: The kernel is to drop the pages that it has of the file, before it opens it.
        passed: The kernel reads and writes the content object itself (passthrough).
        opener: Thread id of whoever opened it, 0 where nobody needs it.
        since_ns: When a passthrough open for writing began, else 0.
        number: Its number.
        tree_id: The branch that its connection shows; "" where each caller sees its own.
        at: Where its record is.
    """

    __slots__ = (
        "at", "drops_pages", "flushes", "inode", "number", "opener", "passed", "privileged", "since_ns", "tree_id", "writes",
    )  # fmt: skip

    def __init__(self, inode: Inode, privileged: bool, mode: int) -> None:
        self.inode, self.privileged = inode, privileged
        self.writes = mode != os.O_RDONLY
        self.flushes = self.passed = self.drops_pages = False
        self.opener = self.since_ns = self.number = self.at = 0
        self.tree_id = ""

    @classmethod
    def restored(cls, inode: Inode, flags: int) -> "FileHandle":
        """Return a handle of the daemon before. *flags*: what flags() returned."""
        handle = cls(inode, bool(flags & 1), os.O_WRONLY if flags & 2 else os.O_RDONLY)
        handle.flushes, handle.passed = bool(flags & 4), bool(flags & 8)
        return handle

    def flags(self) -> int:
        """Return what its record says of it."""
        return self.privileged | self.writes << 1 | self.flushes << 2 | self.passed << 3


class DirHandle:
    """One open of a directory, in the branch of whoever opened it. The first read fixes the listing.

    Attributes:
        is_shared: The kernel may answer a part of this listing from what it has cached of another open's.
        caller: Who opened it, if rules hold for that process.
        opener: Thread id of whoever opened it.
        bound: For a directory in ``.agentfs``: the branch that the opener is bound to.
        at: Where its record is.
    """

    __slots__ = ("at", "bound", "caller", "is_shared", "listing", "node", "opener", "tree_id")

    def __init__(self, node: DirNode | VirtualNode, tree_id: str) -> None:
        self.node, self.tree_id = node, tree_id
        self.is_shared = False
        self.caller: RuledCaller | None = None
        self.bound: str | None = None
        self.listing: list[bytes] = []
        self.opener = self.at = 0


class TextHandle:
    """One open of a file in ``.agentfs``: either ready text, or a control channel.

    Attributes:
        is_lost: The daemon before had it, and what it was has gone with that daemon.
        at: Where its record is.
    """

    __slots__ = ("at", "channel", "is_lost", "text")

    def __init__(self, text: bytes, channel: ControlChannel | None) -> None:
        self.text, self.channel = text, channel
        self.is_lost = False
        self.at = 0

    def check(self) -> None:
        """Raise OSError (ENOTCONN) if it is lost."""
        if self.is_lost:
            raise OSError(errno.ENOTCONN, "the daemon was started again: open it again")


Handle = FileHandle | DirHandle | TextHandle


# Kinds of records, and their words. The first word is the handle's number.
FILE_HANDLE = 16  # node, flags, backing id, opener, since_ns; payload: number of the request that opened it
DIR_HANDLE = 17  # node, is_shared, tree, opener, 0; payload: the same number, then the listing's names with zero bytes between
TEXT_HANDLE = 18  # node, 0, 0, 0, 0
REQUEST = struct.Struct("=Q")


class HandleTable:
    """All handles of one connection, by number.

    Args:
        records: The ledger's records of nodes of that connection.
        tree_id: The one branch that the connection shows; "" where each caller sees its own.

    Attributes:
        writers: How many files are open for writing: the kernel may hold changed pages of those that are mapped.
        request: The number of the request that is being handled; 0: nobody knows.
    """

    def __init__(self, records: NodeRecords, tree_id: str = "") -> None:
        self._tree_id = tree_id
        self.writers = 0
        self.request = 0
        self._records, self._ledger = records, records.ledger
        self._by_number: dict[int, Handle] = {}
        self._numbers = itertools.count((self._ledger.life << 32) + 1)

    def __len__(self) -> int:
        return len(self._by_number)

    def __getitem__(self, number: int) -> Handle:
        try:
            return self._by_number[number]
        except KeyError:
            raise OSError(errno.EBADF, "no such handle") from None

    def get(self, number: int) -> Handle | None:
        """Return the handle of that number, if there is one."""
        return self._by_number.get(number)

    def numbers(self) -> list[int]:
        """Return the number of every handle."""
        return list(self._by_number)

    def add(self, handle: Handle, node_id: int) -> int:
        """Enter a handle of a node; return its number."""
        number = next(self._numbers)
        request = REQUEST.pack(self.request)
        if isinstance(handle, FileHandle):
            handle.at = self._ledger.put(FILE_HANDLE, (number, node_id, handle.flags(), 0, 0, 0), request)
        elif isinstance(handle, DirHandle):
            tree = self._records.tree(handle.tree_id)
            handle.at = self._ledger.put(DIR_HANDLE, (number, node_id, 0, tree, handle.opener, 0), request)
        else:
            handle.at = self._ledger.put(TEXT_HANDLE, (number, node_id, 0, 0, 0, 0))
        self.take_over(number, handle)
        return number

    def take_over(self, number: int, handle: Handle) -> None:
        """Enter a handle that has its record."""
        self._by_number[number] = handle
        if isinstance(handle, FileHandle):
            handle.number, handle.tree_id = number, self._tree_id
            self.writers += handle.writes

    def opened(self, handle: FileHandle, backing: int) -> None:
        """Record how a file was opened, once that is decided. *backing*: the kernel's id of its object; 0 for none."""
        at, words = handle.at >> 3, self._ledger.words
        words[at + 3], words[at + 4], words[at + 5], words[at + 6] = handle.flags(), backing, handle.opener, handle.since_ns

    def listed(self, handle: DirHandle) -> None:
        """Record the listing of a directory, which the kernel reads on in by position."""
        old, words = handle.at, self._ledger.words
        if not old:
            return
        number, node_id, _, tree, opener = words[(old >> 3) + 1 : (old >> 3) + 6]
        payload = REQUEST.pack(0) + b"\0".join(handle.listing)  # the request that opened it was answered
        handle.at = self._ledger.put(DIR_HANDLE, (number, node_id, int(handle.is_shared), tree, opener, 0), payload)
        self._ledger.drop(old)

    def remove(self, number: int) -> Handle | None:
        """Take a handle out and return it; None when there is none of that number."""
        handle = self._by_number.pop(number, None)
        if handle is not None:
            self._ledger.drop(handle.at)
        if isinstance(handle, FileHandle):
            self.writers -= handle.writes
        return handle

    def open_for_writing(self, tree_id: str) -> list[Inode]:
        """Return the file of each handle of that branch that is open for writing."""
        handles = [handle for handle in self._by_number.values() if isinstance(handle, FileHandle) and handle.writes]
        return [handle.inode for handle in handles if handle.inode.tree.id == tree_id]
