"""What stat(2) shows of an inode: from its row, from its content object, or from the lower while it is unmodified."""

import errno
import os
import stat

from agentfsd.core.inode import Attributes
from agentfsd.core.tree import Inode, Tree
from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import checksum_rows


def look(tree: Tree, directory: Inode, name: bytes) -> tuple[Inode, Attributes] | None:
    """Find the inode of *name* and its attributes; None if there is no such name.

    Raises:
        NotADirectoryError: *directory* is none.
        OSError: ENAMETOOLONG.
    """
    entry = tree.search(directory, name)
    if entry is None:
        return None
    inode, lower = entry
    return inode, attributes(inode) if lower is None or inode.id else _as_in_lower(inode, lower)


def attributes(inode: Inode) -> Attributes:
    """Return what stat(2) shows of an inode.

    Raises:
        OSError: ESTALE if the lower object that it is read from was removed or replaced.
    """
    if not inode.id and inode.nlink:
        return _as_in_lower(inode, lower_stat(inode))
    mode = inode.mode
    if not stat.S_ISREG(mode):
        is_dir = stat.S_ISDIR(mode)
        return _stored(inode, 4096 if is_dir else len(inode.target or b""), 8 if is_dir else 0)
    status = data_stat(inode)
    if not inode.has_live_times:
        return _stored(inode, status.st_size, status.st_blocks)
    return Attributes(
        inode.ino, mode, inode.nlink, inode.uid, inode.gid, inode.rdev, status.st_size, status.st_blocks,
        status.st_atime_ns, status.st_mtime_ns, max(status.st_ctime_ns, inode.ctime_ns), inode.btime_ns,
    )  # fmt: skip


def _stored(inode: Inode, size: int, blocks: int) -> Attributes:
    return Attributes(
        inode.ino, inode.mode, inode.nlink, inode.uid, inode.gid, inode.rdev, size, blocks,
        inode.atime_ns, inode.mtime_ns, inode.ctime_ns, inode.btime_ns,
    )  # fmt: skip


def _as_in_lower(inode: Inode, status: os.stat_result) -> Attributes:
    tree = inode.tree
    return Attributes(
        inode.ino or tree.identify(status).shown_ino, status.st_mode, status.st_nlink, status.st_uid, status.st_gid,
        status.st_rdev, status.st_size, status.st_blocks,
        status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns, 0,
    )  # fmt: skip


def lower_stat(inode: Inode) -> os.stat_result:
    """Return the present stat result of the lower object that an inode is read from. Raises as attributes() does."""
    if inode.lower_fd >= 0 and inode.lower_path is None:
        return os.fstat(inode.lower_fd)
    assert inode.lower_path is not None
    if inode.lower_fd >= 0:
        return inode.tree.lower.stat_open(inode.lower_path, inode.lower_fd)
    try:
        status = inode.tree.lower.stat(inode.lower_path)
    except (FileNotFoundError, NotADirectoryError):
        raise OSError(errno.ESTALE, "the lower file has gone") from None
    if stat.S_IFMT(status.st_mode) != stat.S_IFMT(inode.mode):
        raise OSError(errno.ESTALE, "the lower file has been replaced")
    return status


def data_stat(inode: Inode) -> os.stat_result:
    """Return the stat result of the content object or lower file that holds a regular file's data."""
    if inode.file is not None:
        return inode.file.stat()
    if inode.content:
        try:
            return inode.tree.backstore.stat(inode.content)
        except DamagedContent:
            return _damaged_stat(inode)
    return lower_stat(inode)


def _damaged_stat(inode: Inode) -> os.stat_result:
    """Return a stat result for a file whose content is lost. Its size is above 0, so that a reader reads it and gets EIO."""
    size = max(checksum_rows.size_of(inode.tree.store, inode.content), 1)
    ns = (inode.atime_ns, inode.mtime_ns, inode.ctime_ns)
    seconds = [time_ns // 1_000_000_000 for time_ns in ns]
    named = dict(zip(("st_atime_ns", "st_mtime_ns", "st_ctime_ns"), ns, strict=True)) | {"st_blocks": 0}
    return os.stat_result((inode.mode, 0, 0, 1, inode.uid, inode.gid, size, *seconds), named)
