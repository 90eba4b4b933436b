"""What is open on one connection: a handle for each open file, directory and file of the daemon's own."""

import errno
import itertools
import os

from agentfsd.core.rule_checks import RuledCaller
from agentfsd.core.tree import Inode
from agentfsd.fuse.nodes import DirNode, VirtualNode
from agentfsd.types import ControlChannel


class FileHandle:
    """One open of a regular file.

    Attributes:
        inode: The file.
        privileged: Root opened it; root's writes keep setuid bits.
        writes: It is open for writing.
        flushes: The kernel tells us of each close (FLUSH), not only of the last one (RELEASE).
        passed: The kernel reads and writes the content object itself (passthrough).
        opener: Thread id of whoever opened it, 0 where nobody needs it.
        since_ns: When a passthrough open for writing began, else 0.
    """

    __slots__ = ("flushes", "inode", "opener", "passed", "privileged", "since_ns", "writes")

    def __init__(self, inode: Inode, privileged: bool, mode: int) -> None:
        self.inode, self.privileged = inode, privileged
        self.writes = mode != os.O_RDONLY
        self.flushes = False
        self.passed = False
        self.opener = self.since_ns = 0


class DirHandle:
    """One open of a directory, in the branch of whoever opened it. The first read fixes the listing.

    Attributes:
        is_shared: The kernel may answer a part of this listing from what it has cached of another open's.
        caller: Who opened it, if rules hold for that process.
    """

    __slots__ = ("caller", "is_shared", "listing", "node", "tree_id")

    def __init__(self, node: DirNode | VirtualNode, tree_id: str) -> None:
        self.node, self.tree_id = node, tree_id
        self.is_shared = False
        self.caller: RuledCaller | None = None
        self.listing: list[bytes] = []


class TextHandle:
    """One open of a file in ``.agentfs``: either ready text, or a control channel."""

    __slots__ = ("channel", "text")

    def __init__(self, text: bytes, channel: ControlChannel | None) -> None:
        self.text, self.channel = text, channel


Handle = FileHandle | DirHandle | TextHandle


class HandleTable:
    """All handles of one connection, by number.

    Attributes:
        writers: How many files are open for writing: the kernel may hold changed pages of those that are mapped.
    """

    def __init__(self) -> None:
        self.writers = 0
        self._by_number: dict[int, Handle] = {}
        self._numbers = itertools.count(1)

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

    def add(self, handle: Handle) -> int:
        """Enter a handle; return its number."""
        number = next(self._numbers)
        self._by_number[number] = handle
        if isinstance(handle, FileHandle):
            self.writers += handle.writes
        return number

    def remove(self, number: int) -> Handle | None:
        """Take a handle out and return it; None when there is none of that number."""
        handle = self._by_number.pop(number, None)
        if isinstance(handle, FileHandle):
            self.writers -= handle.writes
        return handle

    def open_for_writing(self, tree_id: str) -> list[Inode]:
        """Return the file of each handle of that branch that is open for writing."""
        handles = [handle for handle in self._by_number.values() if isinstance(handle, FileHandle) and handle.writes]
        return [handle.inode for handle in handles if handle.inode.tree.id == tree_id]
