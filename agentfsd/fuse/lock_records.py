"""What the ledger has about locks on files, which processes hold while the daemon is killed and started again."""

from collections.abc import Callable, Hashable

import msgspec

from agentfsd.core.file_locks import Lock, LockTable
from agentfsd.core.tree import Inode
from agentfsd.fuse.handles import FileHandle
from agentfsd.fuse.ledger import Ledger, LedgerRecord

LOCKS = 24  # the kind of record; payload: a KeptLocks


class KeptLock(msgspec.Struct, array_like=True):
    """A lock, as core.file_locks.Lock.

    Attributes:
        handle: The number of the open through which it came, on the connection of *tree_id*.
        is_mortal: It ends with its process.
    """

    owner: int
    kind: int
    start: int
    end: int
    flock: bool
    pid: int
    tree_id: str
    handle: int
    is_mortal: bool = False


class KeptLocks(msgspec.Struct, array_like=True):
    """The locks on one file."""

    locks: list[KeptLock]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(KeptLocks)


class LockRecords:
    """Records the locks of a table whenever they change.

    Args:
        table: The locks.
        ledger: Where they are recorded.
        is_mortal: Whether a lock ends with its process.
    """

    def __init__(self, table: LockTable, ledger: Ledger, is_mortal: Callable[[Lock], bool]) -> None:
        self._table, self._ledger, self._is_mortal = table, ledger, is_mortal
        self._at: dict[Hashable, int] = {}
        table.on_changed = self.changed

    def changed(self, file: Hashable) -> None:
        """LedgerRecord the locks that a file has now."""
        if not isinstance(file, Inode):
            return
        locks = [
            KeptLock(
                lock.owner,
                lock.kind,
                lock.start,
                lock.end,
                lock.flock,
                lock.pid,
                lock.handle.tree_id,
                lock.handle.number,
                self._is_mortal(lock),
            )
            for lock in self._table.held(file)
            if isinstance(lock.handle, FileHandle)
        ]
        before = self._at.pop(file, 0)
        if locks:
            self._at[file] = self._ledger.put(LOCKS, (0, 0, 0, 0, 0, 0), _encoder.encode(KeptLocks(locks)))
        self._ledger.drop(before)


def read(record: LedgerRecord) -> KeptLocks:
    """Return what a record says."""
    return _decoder.decode(record.payload)
