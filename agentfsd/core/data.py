"""Reading and writing through open files. An open file follows its inode: whoever reads sees what others write.

Every handle of an inode shares one descriptor, which moves from the lower file to the content object at copy-up.
"""

import errno
import os
from collections.abc import Callable

from agentfsd.core import copyup, inode_attributes
from agentfsd.core.tree import Inode
from agentfsd.types import ContentFile

_DAY_NS = 24 * 3600 * 10**9


def open_(inode: Inode, flags: int) -> None:
    """Counts one more handle and opens the data; ``O_TRUNC`` empties it without copying. EROFS, EISDIR, ESTALE."""
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
    """Opens what holds a file's data, if nobody has."""
    if inode.file is not None or inode.lower_fd >= 0:
        return
    if inode.content:
        inode.file = inode.tree.backstore.open(inode.content)
    else:
        inode.lower_fd = copyup.open_lower(inode)


def note_access(inode: Inode, flags: int) -> bool:
    """After an open for reading: moves the access time when relatime would; True when it moved.

    The kernel may have all pages, so no read need come to us. Only content that the branch owns has such a time of its
    own: reading changes nothing of what is shared.
    """
    if flags & (os.O_ACCMODE | os.O_TRUNC | os.O_NOATIME) or inode.file is None:
        return False
    if inode.tree.read_only or not (inode.has_live_times and copyup.is_owned(inode)):
        return False
    found = inode.file.stat()
    if found.st_atime_ns > max(found.st_mtime_ns, found.st_ctime_ns) > copyup.now_ns() - _DAY_NS:
        return False
    return inode.file.touch_atime()


def release(inode: Inode) -> None:
    """One handle less; the last one closes the data."""
    inode.opens -= 1
    if inode.opens == 0 and not inode.anonymous:
        inode.release_files()


def read(inode: Inode, size: int, offset: int) -> bytes:
    """Up to *size* bytes; fewer only at the end of the file."""
    if inode.file is None and inode.lower_fd < 0:
        open_source(inode)
    if inode.file is not None:
        return inode.file.pread(size, offset)
    return os.pread(inode.lower_fd, size, offset)


def read_into(inode: Inode, buffer: memoryview, offset: int) -> int:
    """Like read, into a buffer; the number of bytes."""
    if inode.file is None and inode.lower_fd < 0:
        open_source(inode)
    return os.preadv(inode.lower_fd if inode.file is None else inode.file.fileno(), [buffer], offset)


def write(inode: Inode, data: bytes | memoryview, offset: int, *, privileged: bool = True, append: bool = False) -> int:
    """Bytes written, as write(2) has it; the first write after a snapshot or to a lower file copies up.

    *append*: *offset* is the end, unless somebody appends past us.
    """
    content = _writable(inode, privileged)
    if append and inode in inode.tree.external_writers:
        return os.pwritev(content.fileno(), [data], 0, os.RWF_APPEND)
    return content.pwrite(data, offset)


def _writable(inode: Inode, privileged: bool) -> ContentFile:
    """The content, to be changed in place; who changes it without privilege takes setuid bits away, and capabilities go."""
    if not copyup.is_owned(inode):
        copyup.own_content(inode)
    if inode.file is None:
        inode.file = inode.tree.backstore.open(inode.content)
    if inode.xattrs:
        inode_attributes.drop_capabilities(inode)
    if not privileged:
        inode_attributes.drop_setid(inode)
    return inode.file


def allocate(inode: Inode, mode: int, offset: int, length: int) -> None:
    """fallocate(2); the kernel has taken setuid bits away already."""
    _writable(inode, True).allocate(mode, offset, length)


def seek(inode: Inode, offset: int, whence: int) -> int:
    """lseek(2) with SEEK_DATA or SEEK_HOLE; ENXIO beyond the end."""
    if inode.file is None and inode.lower_fd < 0:
        open_source(inode)
    return os.lseek(inode.lower_fd if inode.file is None else inode.file.fileno(), offset, whence)


def copy_range(source: Inode, from_offset: int, target: Inode, to_offset: int, length: int) -> int:
    """copy_file_range(2): shares blocks where the backstore does. Bytes copied, perhaps fewer than *length*."""
    if source.file is None and source.lower_fd < 0:
        open_source(source)
    written = _writable(target, True)
    fd = source.lower_fd if source.file is None else source.file.fileno()
    return written.copy_from(fd, from_offset, to_offset, length)


def changed_since(inode: Inode, time_ns: int) -> bool:
    """Whether an open file's data may have been changed at that time or later."""
    return inode.tree.data_stat(inode).st_mtime_ns >= time_ns


def copy_size(inode: Inode) -> int:
    """Bytes that the next write would copy first; 0 when it can write in place."""
    return 0 if copyup.is_owned(inode) else inode.tree.data_stat(inode).st_size


def sync(inode: Inode, *, data_only: bool) -> None:
    """fsync(2): content first, then the rows that refer to it."""
    sync_later(inode, data_only=data_only)()


def sync_later(inode: Inode, *, data_only: bool) -> Callable[[], None]:
    """Likewise, to be called in any thread: the disk may take long."""
    store = inode.tree.store
    store.commit()
    content = inode.tree.backstore.open(inode.content) if inode.content else None  # without a name there is nothing to keep

    def work() -> None:
        try:
            if content is not None:
                content.sync(data_only)
            store.sync()
        finally:
            if content is not None:
                content.close()

    return work
