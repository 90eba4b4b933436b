"""Requests about a regular file's data, for both sessions: READ, WRITE, FALLOCATE, LSEEK, COPY_FILE_RANGE, FSYNC.

Before a file's content is changed otherwise than by a write, call ``ready_to_change``: what other connections have changed in
mappings comes back first, or it would come afterwards. Before a write, call ``copy_ahead`` where ``must_copy`` says so.
"""

import errno

import trio

from agentfsd.core import copyup, data, inode_stat, requested_changes
from agentfsd.core.tree import Inode
from agentfsd.fuse.connection import Connection

_COPY_BYTES = 16 << 20  # at one go: others are waiting
_KEEP_SIZE_BITS = 1 | 2 | 16  # FALLOC_FL_KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE


def read(conn: Connection, inode: Inode, size: int, offset: int) -> bytes:
    """Return at most *size* bytes from *offset* on."""
    conn.nodes.note_pages(inode)
    content = data.read(inode, size, offset)
    conn.shared.traffic.read_bytes += len(content)
    return content


def read_into(conn: Connection, inode: Inode, buffer: memoryview, offset: int) -> int:
    """Read into *buffer* from *offset* on, without a copy; return how many bytes there were."""
    conn.nodes.note_pages(inode)
    length = data.read_into(inode, buffer, offset)
    conn.shared.traffic.read_bytes += length
    return length


def write(
    conn: Connection, inode: Inode, content: bytes | memoryview, offset: int, *, keeps_setid: bool, tid: int, append: bool = False
) -> int:
    """Write *content* at *offset*; return how many bytes were written.

    Args:
        keeps_setid: The writer may leave setuid bits.
        tid: The thread that writes, 0 where the kernel does not say.
        append: See ``core.data.write``.
    """
    conn.nodes.note_pages(inode)
    written = requested_changes.write(conn.changes.by_thread(tid), inode, content, offset, privileged=keeps_setid, append=append)
    conn.shared.traffic.written_bytes += written
    return written


def end_of(conn: Connection, node_id: int, inode: Inode, believed: int) -> int:
    """Return where an append goes: the kernel does not know what was appended through another connection, or merged.

    Args:
        believed: The offset that the kernel believes to be the end, in bytes; its pages are expired where that is wrong.
    """
    end = inode_stat.data_stat(inode).st_size
    if end != believed:
        conn.notifier.expire_data(node_id)
    return end


def check_allocation(mode: int) -> None:
    """Raise OSError (EOPNOTSUPP) for FALLOC_FL bits that we do not know."""
    if mode & ~_KEEP_SIZE_BITS:
        raise OSError(errno.EOPNOTSUPP, "no such kind of allocation")


async def allocate(conn: Connection, inode: Inode, mode: int, offset: int, length: int, tid: int) -> None:
    """Answer FALLOCATE; *mode* as checked by check_allocation()."""
    await ready_to_change(conn, inode)
    requested_changes.allocate(conn.changes.by_thread(tid), inode, mode, offset, length)


def seek(inode: Inode, offset: int, whence: int) -> int:
    """Answer LSEEK (SEEK_HOLE, SEEK_DATA): return the offset in bytes; ENXIO beyond the end."""
    return data.seek(inode, offset, whence)


async def copy_range(
    conn: Connection, source: Inode, offset: int, target: Inode, target_offset: int, length: int, tid: int
) -> int:
    """Answer COPY_FILE_RANGE: copy at most 16 MiB of *length* bytes, sharing blocks where that can be; return how many."""
    await pages_back(conn, source)
    await ready_to_change(conn, target)
    copied = requested_changes.copy_range(
        conn.changes.by_thread(tid), source, offset, target, target_offset, min(length, _COPY_BYTES)
    )
    conn.shared.traffic.written_bytes += copied
    return copied


async def sync(inode: Inode, *, data_only: bool) -> None:
    """Answer FSYNC, in a thread: the disk may take long."""
    await trio.to_thread.run_sync(data.sync_later(inode, data_only=data_only))


# -- before the content changes


def others_have_pages(conn: Connection, inode: Inode) -> bool:
    """Return whether pages_back() has something to do."""
    return len(conn.shared.all) > 1 and conn.shared.others_have_pages(conn.cache, inode)


async def pages_back(conn: Connection, inode: Inode) -> None:
    """Have other connections write back what was changed in mappings of the file."""
    if others_have_pages(conn, inode):
        await conn.shared.pages_back(conn.cache, inode)


def must_copy(inode: Inode) -> bool:
    """Return whether the next write would copy so much that it belongs in a thread: call copy_ahead() first."""
    return inode.is_file and not copyup.is_owned(inode) and data.copy_size(inode) >= copyup.THREAD_BYTES


async def copy_ahead(conn: Connection, inode: Inode) -> None:
    """Copy a large file up in a thread, where must_copy() says so. Compute anew what was computed from the file before."""
    if must_copy(inode):
        await conn.shared.copy_ahead(inode)


async def ready_to_change(conn: Connection, inode: Inode) -> None:
    """Bring pages back and copy the file up, where either is needed."""
    await pages_back(conn, inode)
    await copy_ahead(conn, inode)
