"""Reads and writes open files. All handles of an inode share one descriptor, so each reader sees what other handles write.

At copy-up, the content object replaces the lower file behind all of them.
"""

import errno
import os
from collections.abc import Callable

from agentfsd.core import copyup, inode_attributes, inode_stat
from agentfsd.core.tree import Inode
from agentfsd.types import ContentFile

_DAY_NS = 24 * 3600 * 10**9


def open_(inode: Inode, flags: int) -> None:
    """Count one more handle and open the data. ``O_TRUNC`` empties the file without copying its content first.

    Args:
        inode: The file.
        flags: The flags of open(2).

    Raises:
        OSError: EROFS when a snapshot is opened for writing; ESTALE likewise for a replaced view, or if the lower file has gone.
        IsADirectoryError: It is a directory.
    """
    writing = flags & os.O_ACCMODE != os.O_RDONLY
    if writing or flags & os.O_TRUNC:
        copyup.check_writable(inode.tree)
    if inode.is_dir:
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if inode.is_file and not flags & os.O_TRUNC:
        open_source(inode)
    inode.opens += 1
    if flags & os.O_TRUNC and inode.is_file:
        try:
            inode_attributes.truncate(inode, 0)
        except BaseException:
            release(inode)
            raise


def open_source(inode: Inode) -> None:
    """Open the content object or lower file that holds a file's data, unless it is open."""
    if inode.file is not None or inode.lower_fd >= 0:
        return
    if inode.content:
        inode.file = inode.tree.backstore.open(inode.content)
    else:
        inode.lower_fd = copyup.open_lower(inode)


def note_access(inode: Inode, flags: int) -> bool:
    """Update the access time after an open for reading, if the relatime mount option would; return whether it changed.

    This happens at open because the kernel may serve all reads from its page cache. Only content that the branch owns
    gets a new access time: a read must not change an object that other branches or snapshots share.
    """
    if flags & (os.O_ACCMODE | os.O_TRUNC | os.O_NOATIME) or inode.file is None:
        return False
    if inode.tree.read_only or not (inode.has_live_times and copyup.is_owned(inode)):
        return False
    status = inode.file.stat()
    if status.st_atime_ns > max(status.st_mtime_ns, status.st_ctime_ns) > copyup.now_ns() - _DAY_NS:
        return False
    return inode.file.touch_atime()


def release(inode: Inode) -> None:
    """Decrease the number of handles by one. The last release closes the data."""
    inode.opens -= 1
    if inode.opens == 0 and not inode.anonymous:
        inode.release_files()


def read(inode: Inode, size: int, offset: int) -> bytes:
    """Return up to *size* bytes from *offset*; fewer only at the end of the file."""
    if inode.file is None and inode.lower_fd < 0:
        open_source(inode)
    if inode.file is not None:
        return inode.file.pread(size, offset)
    return os.pread(inode.lower_fd, size, offset)


def read_into(inode: Inode, buffer: memoryview, offset: int) -> int:
    """Read into *buffer* like read(), and return the number of bytes."""
    if inode.file is None and inode.lower_fd < 0:
        open_source(inode)
    return os.preadv(inode.lower_fd if inode.file is None else inode.file.fileno(), [buffer], offset)


def write(inode: Inode, data: bytes | memoryview, offset: int, *, privileged: bool = True, append: bool = False) -> int:
    """Write like write(2). The first write to a lower file, or after a snapshot, copies the content first.

    Args:
        inode: An open file.
        data: The bytes to write.
        offset: Where to write them, in bytes.
        privileged: False removes the setuid and setgid bits, as for a writer without CAP_FSETID.
        append: *offset* is the end of the file. If an external writer may append too, the kernel finds the end.

    Returns:
        The number of bytes written.
    """
    content = _writable(inode, privileged)
    if append and inode in inode.tree.external_writers:
        return os.pwritev(content.fileno(), [data], 0, os.RWF_APPEND)
    return content.pwrite(data, offset)


def _writable(inode: Inode, privileged: bool) -> ContentFile:
    """Return the content, copied up if necessary, for a change in place.

    Removes the file's capabilities, and its setuid and setgid bits if the writer is not privileged.
    """
    if inode.tree.lent is not None:
        copyup.check_writable(inode.tree)
    if not copyup.is_owned(inode):
        copyup.own_content(inode)
    content = inode.file
    if content is None or content.is_readonly:
        content = copyup.open_owned(inode)
    if inode.xattrs:
        inode_attributes.drop_capabilities(inode)
    if not privileged:
        inode_attributes.drop_setid(inode)
    return content


def allocate(inode: Inode, mode: int, offset: int, length: int) -> None:
    """Do fallocate(2) with the FALLOC_FL bits of *mode*, in bytes. The kernel has removed the setuid bits before."""
    _writable(inode, True).allocate(mode, offset, length)


def seek(inode: Inode, offset: int, whence: int) -> int:
    """Return the offset that lseek(2) finds with SEEK_DATA or SEEK_HOLE; OSError ENXIO beyond the end."""
    if inode.file is None and inode.lower_fd < 0:
        open_source(inode)
    return os.lseek(inode.lower_fd if inode.file is None else inode.file.fileno(), offset, whence)


def copy_range(source: Inode, from_offset: int, target: Inode, to_offset: int, length: int) -> int:
    """Copy bytes like copy_file_range(2), sharing blocks where the backstore can.

    Returns:
        The number of bytes copied, which may be less than *length*.
    """
    if source.file is None and source.lower_fd < 0:
        open_source(source)
    written = _writable(target, True)
    fd = source.lower_fd if source.file is None else source.file.fileno()
    return written.copy_from(fd, from_offset, to_offset, length)


def changed_since(inode: Inode, time_ns: int) -> bool:
    """Return whether a file's data was modified at *time_ns* (since the epoch) or later, by its modification time."""
    return inode_stat.data_stat(inode).st_mtime_ns >= time_ns


def copy_size(inode: Inode) -> int:
    """Return the size in bytes of what the next write would copy first; 0 if it can write in place."""
    return 0 if copyup.is_owned(inode) else inode_stat.data_stat(inode).st_size


def sync(inode: Inode, *, data_only: bool) -> None:
    """Do fsync(2): first the content, then the metadata that refers to it. *data_only*: as fdatasync(2)."""
    sync_later(inode, data_only=data_only)()


def sync_later(inode: Inode, *, data_only: bool) -> Callable[[], None]:
    """Return a function that completes sync(). It may take long, so call it in a worker thread."""
    store = inode.tree.store
    store.commit()
    content = inode.tree.backstore.open(inode.content) if inode.content else None  # 0: the lower's, or a file without a name

    def work() -> None:
        try:
            if content is not None:
                content.sync(data_only)
            store.sync()
        finally:
            if content is not None:
                content.close()

    return work
