"""Goes on with a connection of the daemon before: reads its ledger, and finds again what the kernel holds there.

The kernel may have cached what has changed since, in the lower or by a request that was done and not answered. So all that it has
cached of names and attributes is expired.
"""

import logging
from collections.abc import Iterable

from agentfsd.core import data
from agentfsd.core.file_locks import LockRequest
from agentfsd.fuse import handles, lock_records
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.handles import REQUEST, DirHandle, FileHandle, TextHandle
from agentfsd.fuse.kernel_nodes import DirNode, FileNode, VirtualNode
from agentfsd.fuse.ledger import LedgerRecord
from agentfsd.fuse.native.native_connection import NativeConnection
from agentfsd.fuse.native.native_session import NativeSession
from agentfsd.fuse.node_revival import RevivedNodes
from agentfsd.fuse.page_owners import PAGES
from agentfsd.fuse.reply import CallContext

log = logging.getLogger(__name__)


def resume(session: NativeSession) -> list[LedgerRecord]:
    """Go on with a session's connection, before it is served.

    Returns:
        The records of locks: for take_locks(), once all connections are resumed.

    Raises:
        OSError: Its ledger cannot be read.
    """
    session.resume()
    conn = session.connection
    revived = RevivedNodes(conn.nodes, conn.overlay.trees.by_id, conn.shared.nameless)
    records = revived.read(conn.nodes.records.ledger.records())
    if revived.numbers():
        conn.nodes.former = revived
    _resume_handles(session.requests, records)
    return [record for record in records if record.kind == lock_records.LOCKS]


def _resume_handles(native: NativeConnection, records: Iterable[LedgerRecord]) -> None:
    for record in records:
        number = record.words[0]
        try:
            if record.kind == handles.FILE_HANDLE:
                _resume_file(native, number, record)
            elif record.kind == handles.DIR_HANDLE:
                _resume_directory(native, number, record)
            elif record.kind == handles.TEXT_HANDLE:
                lost = TextHandle(b"", None)
                lost.is_lost, lost.at = True, record.at
                native.services.handles.take_over(number, lost)
            elif record.kind == PAGES:
                node, conn = native.services.nodes[number], native.services
                if isinstance(node, FileNode):
                    conn.shared.page_owners.was_holder(node.inode, conn.cache, record.at)
        except OSError as exc:
            log.warning("a file that a process has open is lost: %s", exc.strerror)
            native.services.nodes.records.ledger.drop(record.at)


def _resume_file(native: NativeConnection, number: int, record: LedgerRecord) -> None:
    _, node_id, flags, backing, opener, since_ns = record.words
    conn = native.services
    node = conn.nodes[node_id]
    inode = node.inode if isinstance(node, FileNode) else conn.access.open_inode(node_id, CallContext(0, 0, 0))
    data.open_(inode, 0)
    handle = FileHandle.restored(inode, flags)
    handle.at, handle.opener, handle.since_ns = record.at, opener, since_ns
    conn.handles.take_over(number, handle)
    native.requested[REQUEST.unpack(record.payload)[0]] = number
    if native.passthrough is not None and inode.is_file:
        native.passthrough.resume(inode, backing if handle.passed else 0)
    if handle.writes:
        conn.shared.opened_for_writing(conn.cache, inode)


def _resume_directory(native: NativeConnection, number: int, record: LedgerRecord) -> None:
    conn = native.services
    _, node_id, is_shared, tree_number, opener, _ = record.words
    node = conn.nodes[node_id]
    if not isinstance(node, DirNode | VirtualNode):
        return
    handle = DirHandle(node, conn.nodes.records.tree_id(tree_number))
    handle.at, handle.opener, handle.is_shared = record.at, opener, bool(is_shared)
    handle.bound = conn.bindings.branch_of(opener)
    listing = record.payload[REQUEST.size :]
    handle.listing = listing.split(b"\0") if listing else []
    before = conn.handles.get(number)
    if isinstance(before, DirHandle):  # killed while a record with the listing took the place of one without
        older, handle = (handle, before) if before.listing else (before, handle)
        conn.nodes.records.ledger.drop(older.at)
    if isinstance(node, DirNode) and handle.tree_id:
        handle.caller = conn.guard.strictest(conn.access.tree_by_id(handle.tree_id))  # its opener may have ended
    conn.handles.take_over(number, handle)
    native.requested[REQUEST.unpack_from(record.payload)[0]] = number


def take_locks(connections: dict[str, Connection], records: Iterable[LedgerRecord]) -> None:
    """Give back the locks that processes hold, once all connections are resumed.

    Args:
        connections: The connections by the branch that they show; "" for the mount's, whose ledger has the records.
        records: The records of the daemon before. Ours take their place.
    """
    for record in records:
        for lock in lock_records.read(record).locks:
            conn = connections.get(lock.tree_id)
            handle = conn.handles.get(lock.handle) if conn is not None else None
            if conn is None or not isinstance(handle, FileHandle):
                continue
            wanted = LockRequest(lock.owner, lock.kind, lock.start, lock.end, lock.flock, lock.pid, handle)
            conn.shared.locks.take_over(handle.inode, wanted, is_mortal=lock.is_mortal)
        connections[""].nodes.records.ledger.drop(record.at)
