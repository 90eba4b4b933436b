"""Copies objects of the lower up into a branch: first name and attributes, and at the first data write the content.

Content is complete before a row refers to it, so an interrupted copy-up leaves nothing visible.
"""

import errno
import functools
import os
import stat
import time
from collections.abc import Callable
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from agentfsd.core import inode_stat, origin
from agentfsd.core.content_objects import clone_object, create_object
from agentfsd.core.inode import ROOT_ID
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.domain_errors import NO_ROOM
from agentfsd.metadata.row_store import GARBAGE
from agentfsd.metadata.transaction import Transaction
from agentfsd.types import ContentFile

LENT = "a run with --io overlay uses the branch: only that run changes it"
THREAD_BYTES = 4 << 20  # copy files of this size or more in a thread, so that other requests need not wait

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The clock of the kernel's own file systems. A finer clock would run ahead of the times of content objects.
_CLOCK = time.CLOCK_REALTIME_COARSE if hasattr(time, "CLOCK_REALTIME_COARSE") else 5


def now_ns() -> int:
    """Return the time for a new timestamp, in ns since the epoch."""
    return time.clock_gettime_ns(_CLOCK)


def change_time_ns(inode: Inode) -> int:
    """Return the change time for a change of *inode*, in ns: later than the one that stat shows now.

    If the coarse clock is not later, use the fine clock, as the kernel does for its own stamps.
    """
    shown = inode.ctime_ns
    if inode.has_live_times and inode.is_file:
        shown = max(shown, inode_stat.data_stat(inode).st_ctime_ns)
    stamp = now_ns()
    return stamp if stamp > shown else time.time_ns()


def check_writable(tree: Tree) -> None:
    """Check that a tree may be changed; OSError ESTALE or EROFS."""
    if tree.detached:
        raise OSError(errno.ESTALE, "this view was replaced or deleted")
    if tree.read_only:
        raise OSError(errno.EROFS, "a snapshot cannot be changed")
    if tree.is_lent:
        raise OSError(errno.EROFS, LENT)


def retry_with_reserve(operation: Callable[Concatenate[Tree, _P], _T]) -> Callable[Concatenate[Tree, _P], _T]:
    """Decorate an operation that frees disk space. If the disk is full, free the reserved space and try once more."""

    @functools.wraps(operation)
    def attempt(tree: Tree, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return operation(tree, *args, **kwargs)
        except OSError as exc:
            if exc.errno not in NO_ROOM or tree.store.whole is not None or not tree.store.reserve.use():
                raise
        return operation(tree, *args, **kwargs)

    return attempt


def save(tx: Transaction, inode: Inode) -> None:
    """Store an inode's row in the head layer."""
    tree = inode.tree
    tree.store.put_inode(inode.row(tree.head))
    tx.set(inode, row_layer=tree.head)


def materialize(tx: Transaction, inode: Inode, *, itself: bool = True) -> None:
    """Give an object of the lower, and the directories above it, rows of their own. This copies no data.

    Every change begins with this call. Afterwards the fields of *inode* are what stat shows.

    Args:
        tx: The open transaction.
        inode: The object. One that has a row already keeps it.
        itself: False for a directory in which only names change. It keeps mode and access list (see copyup_settings.py).
    """
    if inode.row_layer:
        _settle_times(tx, inode)
        return
    tree, parent = inode.tree, inode.parent
    if parent is not None:
        materialize(tx, parent, itself=False)
    load_lower_attributes(tx, inode)
    if itself:
        _apply_settings(tx, inode)
    if parent is None:
        tx.set(inode, id=ROOT_ID)
        save(tx, inode)
        return
    number = tree.store.next_id("inode")
    tx.set(inode, id=number)
    save(tx, inode)
    set_entry(tx, parent, inode.name, number)
    tx.when_undone(lambda: tree.forget([number]))
    tree.adopt(inode)


def _apply_settings(tx: Transaction, inode: Inode) -> None:
    """Replace the lower's mode and xattrs by those that the copyup.* settings choose; set the change time if they differ."""
    if not (inode.is_file or inode.is_dir):
        return
    assert inode.xattrs is not None
    mode, xattrs = inode.tree.copyup_settings.rules.initial(inode.mode, inode.xattrs)
    if (mode, xattrs) != (inode.mode, inode.xattrs):
        tx.set(inode, mode=mode, xattrs=xattrs, ctime_ns=change_time_ns(inode))
        inode.tree.events.copied_up(inode)


def _settle_times(tx: Transaction, inode: Inode) -> None:
    """Copy a sealed object's times to the inode, before a newer row refers to the object: from then on the row's times count."""
    if inode.content and inode.content_layer == inode.row_layer != inode.tree.head:
        old = inode_stat.attributes(inode)
        tx.set(inode, atime_ns=old.atime_ns, mtime_ns=old.mtime_ns, ctime_ns=old.ctime_ns)


def load_lower_attributes(tx: Transaction, inode: Inode, status: os.stat_result | None = None) -> None:
    """Read attributes and xattrs from the lower, and the identity that later shows whether the lower has changed.

    *status*: What stat(2) says of the lower's object, if the caller has asked just now.
    """
    tree = inode.tree
    path = inode.lower_path
    assert path is not None
    status = status or inode_stat.lower_stat(inode)
    if status.st_nlink == 0:  # still open here, but removed from the lower: the branch has no path to store it under
        raise OSError(errno.ESTALE, "the lower file has gone")
    tx.set(
        inode,
        ino=inode.ino or tree.identify(status).shown_ino,
        mode=status.st_mode,
        uid=status.st_uid,
        gid=status.st_gid,
        nlink=status.st_nlink,
        rdev=status.st_rdev,
        atime_ns=status.st_atime_ns,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        btime_ns=now_ns(),
        lower=tree.identify(status),
        xattrs=lower_xattrs(tree, path),
    )
    if stat.S_ISLNK(status.st_mode):
        inode.target = tree.lower.readlink(path)


def lower_xattrs(tree: Tree, path: bytes) -> dict[bytes, bytes]:
    """Return the readable xattrs of an object of the lower."""
    xattrs = {}
    for name in tree.lower.listxattr(path):
        try:
            xattrs[name] = tree.lower.getxattr(path, name)
        except OSError as exc:
            if exc.errno not in (errno.ENODATA, errno.EPERM, errno.EACCES, errno.ENOTSUP):
                raise
    return xattrs


def set_entry(tx: Transaction, directory: Inode, name: bytes, child: int) -> None:
    """Store a name of a directory in the head layer; *child* is an inode id or WHITEOUT."""
    tree = directory.tree
    tree.store.put_dentry(directory.id, name, tree.head, child)
    tx.put(tree.entries(directory), name, child)


# -- content


class Copy:
    """A content copy in three steps: create it in the event loop, run() it in any thread, install() it in the event loop."""

    def __init__(self, inode: Inode, max_copy_bytes: int | None = None) -> None:
        """Open the source. *max_copy_bytes*: run() raises EFBIG if it cannot share blocks and would have to copy more."""
        tree = inode.tree
        self._limit = max_copy_bytes
        self._tree = tree
        self._inode = inode
        self._of = inode.content  # 0: the lower's
        self._object = tree.store.next_id("object")
        self._source = content_fd(inode)
        self.result: ContentFile | None = None

    def run(self) -> None:
        """Copy the content, which may take long; OSError (ENOSPC, EFBIG, ...) leaves nothing behind. Call this once."""
        try:
            self.result = clone_object(self._tree, self._source, self._object, self._limit)
        finally:
            os.close(self._source)

    def abandon(self) -> None:
        """Remove the copy, if there is one."""
        if self.result is not None:
            self.result.close()
            self._tree.backstore.remove(self._object)

    def install(self) -> None:
        """Make the copy the inode's content, or remove the copy if the inode has another content by now.

        Another request may have copied the file up or replaced its content meanwhile. A snapshot may even have sealed that.
        """
        assert self.result is not None
        if is_owned(self._inode) or self._inode.content != self._of:
            self.abandon()
            return
        try:
            _install(self._inode, self._object, self.result)
        except BaseException:
            self.abandon()
            raise


def check_copy(inode: Inode) -> None:
    """Check that a file may be copied up; OSError EROFS for a snapshot's."""
    if inode.tree.read_only:
        raise OSError(errno.EROFS, "a snapshot cannot be changed")
    if inode.tree.is_lent:
        raise OSError(errno.EROFS, LENT)


def is_owned(inode: Inode) -> bool:
    """Return whether a file's content may be written in place."""
    return inode.anonymous or (inode.content != 0 and inode.content_layer == inode.tree.head)


def own_content(inode: Inode, *, empty: bool = False) -> None:
    """Give a regular file a content that the head layer owns: a copy of the old content, or an empty one for *empty*."""
    if is_owned(inode):
        return
    if not empty:
        copy = Copy(inode)
        copy.run()
        copy.install()
        return
    tree = inode.tree
    number = tree.store.next_id("object")
    _install(inode, number, create_object(tree, number))


def open_owned(inode: Inode, *, empty: bool = False) -> ContentFile:
    """Return the open content of a file that the head layer owns, for writing. ``inode.file`` stays open.

    An object whose mode permits nobody to write it gets replaced by a copy, or by an empty one for *empty*: an ordinary user's
    run may have made such a file, and it keeps its mode where a layer still has it.
    """
    tree = inode.tree
    content = inode.file = inode.file or tree.backstore.open(inode.content)
    if not content.is_readonly:
        return content
    number = tree.store.next_id("object")
    replace_content(inode, number, create_object(tree, number) if empty else clone_object(tree, content.fileno(), number))
    inode.file = inode.file or tree.backstore.open(inode.content)
    return inode.file


def keep_original(tx: Transaction, inode: Inode, sealed: int, max_copy_bytes: int | None = None) -> None:
    """Leave a file's object to the branch after sealing its layer, and give the sealed layer a clone of the object.

    This is for files with external writers or readers, whose descriptors cannot be moved to another object. A writer would
    change the sealed layer. A reader would only miss the branch's later writes, so for readers the copy may be limited.
    Nothing happens if no process has the object open.

    Args:
        tx: The transaction that seals the layer.
        inode: The file.
        sealed: The layer that was sealed.
        max_copy_bytes: Do nothing if blocks cannot be shared and more bytes would have to be copied. None: no limit.
    """
    tree, original = inode.tree, inode.content
    if not original or inode.file is None or not inode.file.is_open_elsewhere():
        return
    if inode.content_layer != sealed:  # sealed earlier, when there was no such process: other trees show the object
        return
    number = tree.store.next_id("object")
    try:
        clone = clone_object(tree, inode.file.fileno(), number, max_copy_bytes)
    except OSError as exc:
        if exc.errno == errno.EFBIG and max_copy_bytes is not None:
            return
        raise
    tx.when_undone(lambda: tree.backstore.remove(number))
    status = inode.file.stat()
    clone.utime(status.st_atime_ns, status.st_mtime_ns)
    clone.close()
    tree.store.put_object(number, sealed)
    tree.store.replace_content(inode.id, original, number)
    tree.store.put_object(original, tree.head)
    tx.set(inode, content_layer=tree.head)
    save(tx, inode)


def content_fd(inode: Inode) -> int:
    """Return a descriptor of a regular file's content; the caller closes it. OSError ESTALE if the lower file has gone."""
    if inode.file is not None:
        return os.dup(inode.file.fileno())
    if inode.lower_fd >= 0:
        return os.dup(inode.lower_fd)
    if inode.content:
        content = inode.tree.backstore.open(inode.content)
        try:
            return os.dup(content.fileno())
        finally:
            content.close()
    return open_lower(inode)


def open_lower(inode: Inode) -> int:
    """Return a descriptor of an inode's lower file; the caller closes it. OSError ESTALE if the file has gone."""
    assert inode.lower_path is not None
    try:
        return inode.tree.lower.open(inode.lower_path)
    except (FileNotFoundError, NotADirectoryError):
        raise OSError(errno.ESTALE, "the lower file has gone") from None


class WantedAttributes(NamedTuple):
    """The attributes that a file is to have. Times in ns."""

    mode: int
    uid: int
    gid: int
    xattrs: dict[bytes, bytes]
    atime_ns: int
    mtime_ns: int


def replace_content(inode: Inode, number: int, content: ContentFile, look: WantedAttributes | None = None) -> None:
    """Replace a file's content with a new, complete object. An error removes the object. *look*: new attributes, if any."""
    try:
        _install(inode, number, content, look)
    except BaseException:
        content.close()
        inode.tree.backstore.remove(number)
        raise


def _install(inode: Inode, number: int, content: ContentFile, look: WantedAttributes | None = None) -> None:
    """Make a complete object the inode's content, in one transaction, and keep the inode's times, unless *look* has others.

    An old object that the head layer owns becomes garbage.
    """
    tree = inode.tree
    old = look or inode_stat.attributes(inode)
    content.utime(old.atime_ns, old.mtime_ns)
    if inode.nlink == 0 or tree.detached:  # no name leads here: the object lives as long as it is open
        with tree.store.transaction():
            tree.store.put_object(number, GARBAGE)
        tree.doom(inode, number)
        tree.events.loses_names(inode)
    else:
        adopt_content(inode, number, look)
    inode.release_files()
    if inode.opens or inode.anonymous:
        inode.file = content
    else:
        content.close()


def adopt_content(inode: Inode, number: int, look: WantedAttributes | None) -> None:
    """Make a complete object the content of a file that has a name, in one transaction. The caller closes the old content.

    An old object that the head layer owns becomes garbage. *look*: new attributes, if any.
    """
    tree, garbage = inode.tree, inode.content if is_owned(inode) else 0
    with tree.store.transaction() as tx:
        materialize(tx, inode)
        _note_origin(tx, inode)
        tree.store.put_object(number, tree.head)
        if garbage:
            tree.store.put_object(garbage, GARBAGE)
        if look is not None:
            set_look(tx, inode, look)
        tx.set(inode, content=number, content_layer=tree.head)
        save(tx, inode)


def set_look(tx: Transaction, inode: Inode, look: WantedAttributes) -> None:
    """Set an inode's attributes, except its type."""
    tx.set(inode, mode=stat.S_IFMT(inode.mode) | stat.S_IMODE(look.mode), uid=look.uid, gid=look.gid, xattrs=look.xattrs)
    tx.set(inode, atime_ns=look.atime_ns, mtime_ns=look.mtime_ns, ctime_ns=change_time_ns(inode))


def _note_origin(tx: Transaction, inode: Inode) -> None:
    """Record what the lower has before a file's first data change (see origin.note), if it still has its lower path."""
    parent, path = inode.parent, inode.lower_path
    if path is None or parent is None or parent.lower_path is None or inode.content:
        return
    if join(parent.lower_path, inode.name) == path:
        origin.note(tx, parent, inode.name, keep=True)
