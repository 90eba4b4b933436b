"""How a lower object becomes the branch's own: first its name and attributes, later, at the first data write, its content.

Content is always complete before a row refers to it, so an interrupted copy-up leaves nothing visible.
"""

import errno
import functools
import os
import stat
import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from agentfsd.core import origin
from agentfsd.core.content_objects import clone_object, create_object
from agentfsd.core.inode import ROOT_ID
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.domain_errors import NO_ROOM
from agentfsd.metadata.row_store import GARBAGE, Transaction
from agentfsd.types import ContentFile

THREAD_BYTES = 4 << 20  # a copy of this size belongs in a thread: others must not wait for it

_P = ParamSpec("_P")
_T = TypeVar("_T")

# What the kernel's own file systems stamp with; a finer clock would run ahead of the times of content objects.
_CLOCK = time.CLOCK_REALTIME_COARSE if hasattr(time, "CLOCK_REALTIME_COARSE") else 5


def now_ns() -> int:
    return time.clock_gettime_ns(_CLOCK)


def change_time_ns(inode: Inode) -> int:
    """For a change of *inode*: later than the change time that it shows now, as the kernel's finer stamps are."""
    shown = inode.ctime_ns
    if inode.has_live_times and inode.is_file:
        shown = max(shown, inode.tree.data_stat(inode).st_ctime_ns)
    stamp = now_ns()
    return stamp if stamp > shown else time.time_ns()


def check_writable(tree: Tree) -> None:
    if tree.detached:
        raise OSError(errno.ESTALE, "this view was replaced or deleted")
    if tree.read_only:
        raise OSError(errno.EROFS, "a snapshot cannot be changed")


def retry_with_reserve(operation: Callable[Concatenate[Tree, _P], _T]) -> Callable[Concatenate[Tree, _P], _T]:
    """For what gives room back: on a full disk it is tried again with the room that was kept for this."""

    @functools.wraps(operation)
    def attempt(tree: Tree, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return operation(tree, *args, **kwargs)
        except OSError as exc:
            if exc.errno not in NO_ROOM or not tree.store.reserve.use():
                raise
        return operation(tree, *args, **kwargs)

    return attempt


def save(tx: Transaction, inode: Inode) -> None:
    """Stores an inode's row in the head layer."""
    tree = inode.tree
    tree.store.put_inode(inode.row(tree.head))
    tx.set(inode, row_layer=tree.head)


def materialize(tx: Transaction, inode: Inode, *, itself: bool = True) -> None:
    """Gives an unmodified lower object (and the directories above it) rows of its own; copies no data.

    Comes first in every change: afterwards the fields of *inode* are what stat shows. Not *itself*: a directory in which names
    change, and whose mode and access list are nobody's business then (see copyup_policy.py).
    """
    if inode.row_layer:
        _settle_times(tx, inode)
        return
    tree, parent = inode.tree, inode.parent
    if parent is not None:
        materialize(tx, parent, itself=False)
    load_lower_attributes(tx, inode)
    if itself:
        _apply_policy(tx, inode)
    if parent is None:
        tx.set(inode, id=ROOT_ID)
        save(tx, inode)
        return
    tx.set(inode, id=tree.store.next_id("inode"))
    save(tx, inode)
    set_entry(tx, parent, inode.name, inode.id)
    tree.adopt(inode)


def _apply_policy(tx: Transaction, inode: Inode) -> None:
    """Give an inode that has the lower's mode and xattrs those that the policy says; a change moves its change time."""
    if not (inode.is_file or inode.is_dir):
        return
    assert inode.xattrs is not None
    mode, xattrs = inode.tree.copyup_policy.rules.initial(inode.mode, inode.xattrs)
    if (mode, xattrs) != (inode.mode, inode.xattrs):
        tx.set(inode, mode=mode, xattrs=xattrs, ctime_ns=change_time_ns(inode))
        inode.tree.events.copied_up(inode)


def _settle_times(tx: Transaction, inode: Inode) -> None:
    """Before a newer row refers to a sealed object: from then on the times are the row's."""
    if inode.content and inode.content_layer == inode.row_layer != inode.tree.head:
        old = inode.tree.attributes(inode)
        tx.set(inode, atime_ns=old.atime_ns, mtime_ns=old.mtime_ns, ctime_ns=old.ctime_ns)


def load_lower_attributes(tx: Transaction, inode: Inode) -> None:
    """Takes attributes and xattrs from the lower as it is now, with its identity for finding drift later."""
    tree = inode.tree
    path = inode.lower_path
    assert path is not None
    found = tree.lower_stat(inode)
    if found.st_nlink == 0:  # open here, and removed there: it has no name under which the branch could keep it
        raise OSError(errno.ESTALE, "the lower file has gone")
    tx.set(
        inode,
        ino=inode.ino or tree.shown_ino(tree.identify(found)),
        mode=found.st_mode,
        uid=found.st_uid,
        gid=found.st_gid,
        nlink=found.st_nlink,
        rdev=found.st_rdev,
        atime_ns=found.st_atime_ns,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        btime_ns=now_ns(),
        lower=tree.identify(found),
        xattrs=lower_xattrs(tree, path),
    )
    if stat.S_ISLNK(found.st_mode):
        inode.target = tree.lower.readlink(path)


def lower_xattrs(tree: Tree, path: bytes) -> dict[bytes, bytes]:
    found = {}
    for name in tree.lower.listxattr(path):
        try:
            found[name] = tree.lower.getxattr(path, name)
        except OSError as exc:
            if exc.errno not in (errno.ENODATA, errno.EPERM, errno.EACCES, errno.ENOTSUP):
                raise
    return found


def set_entry(tx: Transaction, directory: Inode, name: bytes, child: int) -> None:
    tree = directory.tree
    tree.store.put_dentry(directory.id, name, tree.head, child)
    tx.put(tree.entries(directory), name, child)


# -- content


class Copy:
    """A content copy on its way: made in the loop, run in any thread, installed in the loop."""

    def __init__(self, inode: Inode, max_copy_bytes: int | None = None) -> None:
        """*max_copy_bytes*: EFBIG where blocks cannot be shared and more than that would have to be copied."""
        tree = inode.tree
        self._limit = max_copy_bytes
        self._tree = tree
        self._inode = inode
        self._of = inode.content  # 0: the lower's
        self._object = tree.store.next_id("object")
        self._source = content_fd(inode)
        self.result: ContentFile | None = None

    def run(self) -> None:
        """Copies; may take long. OSError (ENOSPC, ...) leaves nothing behind."""
        try:
            self.result = clone_object(self._tree, self._source, self._object, self._limit)
        finally:
            os.close(self._source)

    def abandon(self) -> None:
        if self.result is not None:
            self.result.close()
            self._tree.backstore.remove(self._object)

    def install(self) -> None:
        """Makes the copy the inode's content, unless that is another meanwhile: somebody else has copied it, or replaced it,
        and what was written there since may even be sealed already."""
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
    """A snapshot's file is not copied up for anybody."""
    if inode.tree.read_only:
        raise OSError(errno.EROFS, "a snapshot cannot be changed")


def is_owned(inode: Inode) -> bool:
    """Whether its content may be written in place."""
    return inode.anonymous or (inode.content != 0 and inode.content_layer == inode.tree.head)


def own_content(inode: Inode, *, empty: bool = False) -> None:
    """Makes a regular file's content the head layer's own; *empty* when the old content is to be dropped anyway."""
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


def keep_original(tx: Transaction, inode: Inode, sealed: int, max_copy_bytes: int | None = None) -> None:
    """After layer *sealed* was: the branch goes on with the object itself, and the sealed layer gets a clone of it.

    For a file that somebody writes past us: whoever has an object open cannot be moved to another one. Nor can a reader, who
    does no harm to what is sealed: that is worth *max_copy_bytes*.
    """
    tree, original = inode.tree, inode.content
    if not original or inode.file is None or not inode.file.is_open_elsewhere():
        return
    if inode.content_layer != sealed:  # sealed long ago, with nobody writing: other trees show that object
        return
    number = tree.store.next_id("object")
    try:
        clone = clone_object(tree, inode.file.fileno(), number, max_copy_bytes)
    except OSError as exc:
        if exc.errno == errno.EFBIG and max_copy_bytes is not None:
            return
        raise
    tx.when_undone(lambda: tree.backstore.remove(number))
    found = inode.file.stat()
    clone.utime(found.st_atime_ns, found.st_mtime_ns)
    clone.close()
    tree.store.put_object(number, sealed)
    tree.store.replace_content(inode.id, original, number)
    tree.store.put_object(original, tree.head)
    tx.set(inode, content_layer=tree.head)
    save(tx, inode)


def content_fd(inode: Inode) -> int:
    """A descriptor of the content as it is now; the caller closes it."""
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
    assert inode.lower_path is not None
    try:
        return inode.tree.lower.open(inode.lower_path)
    except (FileNotFoundError, NotADirectoryError):
        raise OSError(errno.ESTALE, "the lower file has gone") from None


def replace_content(inode: Inode, number: int, content: ContentFile) -> None:
    """Gives a file another object altogether, which is complete and new."""
    try:
        _install(inode, number, content)
    except BaseException:
        content.close()
        inode.tree.backstore.remove(number)
        raise


def _install(inode: Inode, number: int, content: ContentFile) -> None:
    """Points the inode at a complete object, in one transaction, times kept; an object of its own that it had is garbage then."""
    tree, garbage = inode.tree, inode.content if is_owned(inode) else 0
    old = tree.attributes(inode)
    content.utime(old.atime_ns, old.mtime_ns)
    if inode.nlink == 0 or tree.detached:  # no name leads here any more: the object lives as long as it is open
        tree.backstore.remove(number)
        inode.anonymous = True
        inode.content = 0
    else:
        with tree.store.transaction() as tx:
            materialize(tx, inode)
            _note_origin(tx, inode)
            tree.store.put_object(number, tree.head)
            if garbage:
                tree.store.put_object(garbage, GARBAGE)
            tx.set(inode, content=number, content_layer=tree.head)
            save(tx, inode)
    inode.release_files()
    if inode.opens or inode.anonymous:
        inode.file = content
    else:
        content.close()


def _note_origin(tx: Transaction, inode: Inode) -> None:
    """Before the first change of a lower file's data, where it still has its own name."""
    parent, path = inode.parent, inode.lower_path
    if path is None or parent is None or parent.lower_path is None or inode.content:
        return
    if join(parent.lower_path, inode.name) == path:
        origin.note(tx, parent, inode.name, keep=True)
