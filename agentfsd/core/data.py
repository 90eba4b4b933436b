"""Reading and writing through open files. An open file follows its inode: whoever reads sees what others write.

Every handle of an inode shares one descriptor, which moves from the lower file to the content object at copy-up.
"""

import errno
import os

from agentfsd.core import attributes, copyup
from agentfsd.core.inode import Inode

_DAY_NS = 24 * 3600 * 10**9


def open_(inode: Inode, flags: int) -> None:
    """Counts one more handle and opens the data; ``O_TRUNC`` empties it without copying. EROFS, EISDIR, ESTALE."""
    writing = flags & os.O_ACCMODE != os.O_RDONLY
    if writing or flags & os.O_TRUNC:
        copyup.check_writable(inode.tree)
    if inode.is_dir:
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if inode.is_file and not flags & os.O_TRUNC:
        _open_source(inode)
    inode.opens += 1
    if flags & os.O_TRUNC and inode.is_file:
        try:
            attributes.truncate(inode, 0)
        except BaseException:
            release(inode)
            raise


def _open_source(inode: Inode) -> None:
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
        _open_source(inode)
    if inode.file is not None:
        return inode.file.pread(size, offset)
    return os.pread(inode.lower_fd, size, offset)


def write(inode: Inode, data: bytes, offset: int, *, privileged: bool = True) -> int:
    """Bytes written, as write(2) has it; the first write after a snapshot or to a lower file copies up."""
    if not copyup.is_owned(inode):
        copyup.own_content(inode)
    if inode.file is None:
        inode.file = inode.tree.backstore.open(inode.content)
    if not privileged:
        attributes.drop_setid(inode)
    return inode.file.pwrite(data, offset)


def copy_size(inode: Inode) -> int:
    """Bytes that the next write would copy first; 0 when it can write in place."""
    return 0 if copyup.is_owned(inode) else inode.tree.data_stat(inode).st_size


def sync(inode: Inode, *, data_only: bool) -> None:
    """fsync(2): content first, then the rows that refer to it."""
    if inode.file is not None:
        inode.file.sync(data_only)
    inode.tree.store.sync()
