"""Makes files and directories of a branch out of those of an upper directory: rows by the thousand, contents by a link."""

import errno
import os
import stat
from typing import NamedTuple, Protocol

import msgspec

from agentfsd.core import copyup, origin
from agentfsd.core.content_objects import clone_object
from agentfsd.core.copyup import WantedAttributes
from agentfsd.core.entry_rows import count_subdirectory
from agentfsd.core.inode import NEW_INO_BASE, NO_LOWER
from agentfsd.core.requested_changes import ChangeReporter
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.metadata.rows import InodeRow, is_whiteout
from agentfsd.metadata.transaction import Transaction
from agentfsd.overlayfs import on_disk
from agentfsd.overlayfs.unlocking import is_locked, opened
from agentfsd.overlayfs.upper_scan import Found, Known, signature, uncertain

# Copy what the file system gives no further name. EXDEV: the two directories are of different projects (quotas).
_NO_LINK = (errno.EMLINK, errno.EPERM, errno.ENOTSUP, errno.EXDEV)


class TakenFile(NamedTuple):
    """A file of the upper that has become a content object.

    Attributes:
        number: The number of the object.
        status: The status of the upper's file when it had become one.
        known: What is known of the upper's file now.
    """

    number: int
    status: os.stat_result
    known: Known


def attributes_of(found: Found, status: os.stat_result | None = None) -> WantedAttributes:
    """Return the attributes that the branch's file is to have; *status*: a newer one than that of *found*."""
    now = status or found.status
    return WantedAttributes(now.st_mode, now.st_uid, now.st_gid, found.xattrs, now.st_atime_ns, now.st_mtime_ns)


class TakeoverReporter(ChangeReporter, Protocol):
    """Reports what a takeover brings."""

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens to tell()."""
        ...


def make(
    tree: Tree, directory: Inode, fd: int, fresh: list[Found], by: TakeoverReporter
) -> list[tuple[Found, int, Known]]:  # fmt: skip
    """Make names that the directory does not have, in one step.

    Args:
        tree: The branch.
        directory: The directory.
        fd: A descriptor of the directory in the upper.
        fresh: What to make; no directories.
        by: Reports the changes.

    Returns:
        What was made, with its inode id and what is known of it now. What has vanished meanwhile is left out.
    """
    made: list[tuple[Found, int, Known]] = []
    rows, objects = list[InodeRow](), list[int]()
    with tree.store.transaction() as tx:
        copyup.materialize(tx, directory, itself=False)
        entries = tree.entries(directory)
        for found in fresh:
            content, status, known = 0, found.status, None
            if stat.S_ISREG(status.st_mode):
                try:
                    content, status, known = take(tx, tree, fd, found)
                except FileNotFoundError:
                    continue
                objects.append(content)
            number = tree.store.next_id("inode")
            rows.append(_row(tree, number, found, status, content))
            if is_whiteout(entries.get(found.name)):
                origin.note(tx, directory, found.name, keep=stat.S_ISREG(status.st_mode))
            tx.put(entries, found.name, number)
            made.append((found, number, known or Known(signature(status))))
        names = [(directory.id, found.name, number) for found, number, _ in made]
        tx.when_undone(lambda: tree.forget(row.id for row in rows))
        tree.store.put_new(tree.head, rows, names, objects)
    by.names_changed(directory, *(found.name for found, _, _ in made))
    for found, number, _ in made if by.is_heard else ():
        by.tell("created", tree.inode(number, directory, found.name))
    return made


def make_directory(tree: Tree, directory: Inode, found: Found, by: TakeoverReporter) -> Inode:
    """Make an empty directory."""
    with tree.store.transaction() as tx:
        copyup.materialize(tx, directory, itself=False)
        number = tree.store.next_id("inode")
        row = _row(tree, number, found, found.status, 0)
        if directory.lower_path is not None and tree.joins_lower(directory, found.name):
            row = row._replace(lower_path=join(directory.lower_path, found.name))
        tx.when_undone(lambda: tree.forget([number]))
        tree.store.put_inode(row)
        if is_whiteout(tree.entries(directory).get(found.name)):
            origin.note(tx, directory, found.name, keep=False)
        copyup.set_entry(tx, directory, found.name, number)
        inode = tree.inode(number, directory, found.name)
        count_subdirectory(tx, directory, 1)
        copyup.save(tx, directory)
    by.names_changed(directory, found.name)
    by.tell("created", inode)
    return inode


def take(tx: Transaction, tree: Tree, fd: int, found: Found) -> TakenFile:
    """Make a file of the upper a content object. The caller stores the object's row.

    Raises:
        FileNotFoundError: The file has vanished.
    """
    number, status = tree.store.next_id("object"), None
    is_as_found = True
    if is_locked(found.status):
        is_as_found = signature(os.stat(found.name, dir_fd=fd, follow_symlinks=False)) == signature(found.status)
    else:
        try:
            status = tree.backstore.take(fd, found.name, number)
        except OSError as exc:
            if exc.errno not in _NO_LINK:
                raise
    if status is None:
        status = _copy(tree, fd, found, number)
    tx.when_undone(lambda: tree.backstore.remove(number))
    is_as_found = is_as_found and has_xattrs_of(found, fd)
    return TakenFile(number, status, Known(signature(status)) if is_as_found else uncertain(status))


def has_xattrs_of(found: Found, fd: int) -> bool:
    """Return whether a file still has the extended attributes that were found. Ask after its status was read.

    Nobody knows of a file that its owner cannot read.
    """
    try:
        return is_locked(found.status) or on_disk.own_xattrs(b"/proc/self/fd/%d/%s" % (fd, found.name)) == found.xattrs
    except OSError:
        return False


def _copy(tree: Tree, directory: int, found: Found, number: int) -> os.stat_result:
    with opened(directory, found.name) as source:
        status = os.fstat(source)  # before: what is written meanwhile is another change
        clone = clone_object(tree, source, number)
        clone.utime(status.st_atime_ns, status.st_mtime_ns)
        clone.close()
        return status


def _row(tree: Tree, number: int, found: Found, status: os.stat_result, content: int) -> InodeRow:
    """Return the row of a new inode."""
    mode = status.st_mode
    return InodeRow(
        number, tree.head, NEW_INO_BASE + number, mode, status.st_uid, status.st_gid, 2 if stat.S_ISDIR(mode) else 1,
        status.st_rdev, status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns, status.st_ctime_ns, content,
        found.target if stat.S_ISLNK(mode) else None, msgspec.msgpack.encode(found.xattrs) if found.xattrs else None,
        None, *NO_LOWER, 0,
    )  # fmt: skip
