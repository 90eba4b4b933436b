"""Records what the lower had at a name when a branch first hid or changed the name: the origin rows of the database.

Comparing a record with the lower tells whether the lower has changed since. The content kept with it is the base of merges.
"""

import errno
import os
import stat
import time

from agentfsd.core.content_objects import clone_object, share_object
from agentfsd.core.inode import NO_LOWER, LowerIdentity
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.metadata import origin_rows
from agentfsd.metadata.row_store import GARBAGE
from agentfsd.metadata.rows import OriginRow, is_whiteout
from agentfsd.metadata.transaction import Transaction
from agentfsd.types import Lower

_COARSE = 5  # CLOCK_REALTIME_COARSE: file systems take their time stamps from it, and a finer clock is ahead of them
_UNKNOWN = -1  # a change time that no file has
BASE_BYTES = 1 << 20  # larger files are not merged by lines


def note(
    tx: Transaction, directory: Inode, name: bytes, *, keep: bool, status: os.stat_result | None = None
) -> None:  # fmt: skip
    """Record what the lower has at *name*, before the branch hides the name or gives it other content.

    An earlier record stays, unless the branch shows a newer object of the lower at *name*. An object that the lower got after the
    branch had made *name* itself is not recorded, because the branch has never shown it.

    Args:
        tx: The open transaction.
        directory: It has a row already.
        name: A name in the directory.
        keep: Whether to keep the lower's content as the base of merges. Only regular files of 1 to BASE_BYTES bytes are kept.
        status: What stat(2) says of the lower's *name*, if the caller has asked already.
    """
    tree = directory.tree
    if directory.lower_path is None:
        return
    old = origin_rows.find(tree.store, directory.id, name, tree.chain)
    path, shows_lower = join(directory.lower_path, name), tree.shows_lower(directory, name)
    if old is not None and (old.base or not keep) and not shows_lower:
        return
    try:
        status = status or tree.lower.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    identity = tree.identify(status)
    if old is not None and identity_of(old) != identity:
        if not shows_lower:
            return
        _drop_base(tree, old)
        old = None
    elif old is not None and (old.base or not keep):
        return
    if old is None and not shows_lower and not _comes_from(directory, name, path, identity):
        return
    base = _keep_content(tx, tree, tree.lower, path, status) if keep else 0
    if old is None:
        since_ns = min(time.clock_gettime_ns(_COARSE), _first_change(directory, name))
        old = OriginRow(directory.id, name, tree.head, *identity, since_ns, base)
    elif not base:
        return
    origin_rows.put(tree.store, old._replace(layer=tree.head, base=base))


def note_again(directory: Inode, name: bytes) -> None:
    """Record what the lower has at *name* now in place of an earlier record, because the branch removes it once more."""
    tree = directory.tree
    old = origin_rows.find(tree.store, directory.id, name, tree.chain)
    if old is not None and directory.lower_path is not None:
        now = now_in_lower(tree, join(directory.lower_path, name))
        origin_rows.put(tree.store, OriginRow(directory.id, name, tree.head, *now, old.since_ns, 0))


def doubt(directory: Inode, name: bytes) -> None:
    """Record that nobody knows which state of the lower's *name* the branch has changed, so that it counts as moved.

    Call it in a transaction, after the change.
    """
    tree = directory.tree
    if directory.lower_path is None or not directory.id:
        return
    old = origin_rows.find(tree.store, directory.id, name, tree.chain)
    if old is not None:
        _drop_base(tree, old)
    now = now_in_lower(tree, join(directory.lower_path, name))
    since_ns = old.since_ns if old is not None else time.clock_gettime_ns(_COARSE)
    origin_rows.put(tree.store, OriginRow(directory.id, name, tree.head, *now._replace(ctime_ns=_UNKNOWN), since_ns, 0))


def _comes_from(directory: Inode, name: bytes, path: bytes, identity: LowerIdentity) -> bool:
    """Return whether the branch's inode at *name* was copied up from *path*, or from another hard link of that lower file."""
    tree, child = directory.tree, directory.tree.entries(directory).get(name) or 0
    inode = tree.known(child) or tree.stored(child) if child else None
    return inode is not None and (inode.lower_path == path or (inode.linked and inode.lower[:2] == identity[:2]))


def _drop_base(tree: Tree, row: OriginRow) -> None:
    """Mark the content kept with a record as garbage. A record in a sealed layer keeps it."""
    if row.base and row.layer == tree.head:
        tree.store.put_object(row.base, GARBAGE)


def renew(tx: Transaction, directory: Inode, name: bytes, path: bytes, live: Lower) -> None:
    """Record, after a commit has written the branch's state to *path*, what the real directory has there now.

    It replaces the earlier record of *name* in *directory*. The content becomes the base of later merges.
    """
    tree = directory.tree
    now = now_in(live, tree, path)
    base = 0
    if now != NO_LOWER:
        base = _keep_content(tx, tree, live, path, live.stat(path))
    old = origin_rows.find(tree.store, directory.id, name, tree.chain)
    if old is not None:
        _drop_base(tree, old)
    origin_rows.put(tree.store, OriginRow(directory.id, name, tree.head, *now, time.time_ns(), base))


def carry(source: Tree, tree: Tree, path: bytes, *, gone: OriginRow | None = None) -> bool:
    """Copy the record of *path* from *source*, after *tree* has taken the path over from there, or before it does.

    *tree* then compares the lower with what it had when *source* changed the path. A record that *tree* made of an older state of
    the lower stays. *gone*: the record, if *source* has no such directory any more.

    Returns:
        Whether a second call, after *tree* has taken the path over, would change nothing.
    """
    parent, _, name = path.rpartition(b"/")
    try:
        directory = tree.walk(parent)
        like = source.walk(parent) if gone is None else None
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not path or not directory.id or directory.lower_path is None:
        return False
    if like is not None and not (like.id and directory.lower_path == like.lower_path):
        return False
    row = _row_of(source, like, name) if like is not None else gone
    if row is None:
        return True
    mine = origin_rows.find(tree.store, directory.id, name, tree.chain)
    now = now_in_lower(tree, join(directory.lower_path, name))
    if mine is not None and identity_of(mine) != now:
        return False
    if mine is not None and identity_of(row) == now:
        if mine.layer == tree.head and row.since_ns < mine.since_ns:
            with tree.store.transaction():
                origin_rows.put(tree.store, mine._replace(since_ns=row.since_ns))
        return True
    with tree.store.transaction() as tx:
        kept = _take_base(tx, tree, row.base) if row.base else 0
        if mine is not None:
            _drop_base(tree, mine)
        origin_rows.put(tree.store, row._replace(dir=directory.id, name=name, layer=tree.head, base=kept))
    return bool(kept) and identity_of(row) == now


def _row_of(tree: Tree, directory: Inode, name: bytes) -> OriginRow | None:
    """Return the record of a name. If only attributes changed, it is made from the inode, which stores the lower's identity."""
    row = origin_rows.find(tree.store, directory.id, name, tree.chain)
    inode = tree.find(directory, name) if row is None else None
    if inode is None or not inode.id or directory.lower_path is None or inode.lower_path != join(directory.lower_path, name):
        return row
    return OriginRow(directory.id, name, tree.head, *inode.lower, inode.btime_ns, 0)


def _take_base(tx: Transaction, tree: Tree, base: int) -> int:
    """Give the head layer of *tree* the kept content of another tree's record. Return the number that it has there."""
    number = tree.store.next_id("object")
    share_object(tree, base, number)
    tx.when_undone(lambda: tree.backstore.remove(number))
    tree.store.put_object(number, tree.head)
    return number


def _first_change(directory: Inode, name: bytes) -> int:
    """Return when the branch first hid or changed an entry of the directory *name*, in ns; 2 ** 63 for never."""
    child = directory.tree.entries(directory).get(name)
    return 1 << 63 if child is None or is_whiteout(child) else origin_rows.oldest(directory.tree.store, child)


def follow(tx: Transaction, inode: Inode, path: bytes, live: Lower) -> None:
    """Record, after a commit, that the real directory has the branch's *inode* at *path* now.

    The inode gets the identity of the lower's object. If it was copied up, *path* becomes its path in the lower.
    *inode* has a row in the head layer.
    """
    tree = inode.tree
    now = now_in(live, tree, path)
    if now == NO_LOWER:
        return
    tx.set(inode, lower=now)
    if inode.lower_path is not None:
        tx.set(inode, lower_path=path)
    tree.store.put_inode(inode.row(tree.head))


def _keep_content(tx: Transaction, tree: Tree, lower: Lower, path: bytes, status: os.stat_result) -> int:
    """Keep the content of a file of a lower in an object.

    Returns:
        The object's number; 0 if the file is not kept (see note()), cannot be read, or there is no room.
    """
    if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= BASE_BYTES:
        return 0
    number = tree.store.next_id("object")
    try:
        fd = lower.open(path)
        try:
            clone_object(tree, fd, number).close()
        finally:
            os.close(fd)
    except OSError as exc:
        if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return 0
    tx.when_undone(lambda: tree.backstore.remove(number))
    tree.store.put_object(number, tree.head)
    return number


def identity_of(row: OriginRow) -> LowerIdentity:
    """Return the identity of the lower's object that a record is about."""
    return LowerIdentity(row.lower_ino, row.lower_dev, row.lower_size, row.lower_mtime, row.lower_ctime)


def found_at(directory: Inode, name: bytes, inode: Inode) -> OriginRow | None:
    """Return the record of *name* if *inode* was copied up from that place; None if it was not, or there is no record."""
    if directory.lower_path is None or inode.lower_path != join(directory.lower_path, name):
        return None
    return origin_rows.find(directory.tree.store, directory.id, name, directory.tree.chain)


def expected(tree: Tree, directory: Inode, name: bytes, inode: Inode | None) -> LowerIdentity:
    """Return what the lower had at *name* when the branch first changed the name; NO_LOWER for nothing.

    *inode* is what the branch has at *name*, if anything.
    """
    if directory.lower_path is None:
        return NO_LOWER
    row = origin_rows.find(tree.store, directory.id, name, tree.chain) if directory.id else None
    if row is not None:
        return identity_of(row)
    path = join(directory.lower_path, name)
    if inode is None or (inode.lower_path != path and not inode.linked):
        return NO_LOWER
    is_from_here = inode.lower_path == path or now_in_lower(tree, path)[:2] == inode.lower[:2]  # by another hard link of it
    return inode.lower if is_from_here else NO_LOWER


def has_moved(tree: Tree, directory: Inode, name: bytes, inode: Inode | None) -> bool:
    """Return whether the lower has something else at *name* than when the branch first changed the name.

    A directory of the lower counts as the same as long as device and inode number are. *inode* is what the branch has at *name*,
    if anything.
    """
    if directory.lower_path is None:
        return False
    before = expected(tree, directory, name, inode)
    now = now_in_lower(tree, join(directory.lower_path, name))
    if now[:2] == before[:2] and inode is not None and inode.is_dir:
        return False  # a directory's size and times change with its entries
    return now != before


def now_in_lower(tree: Tree, path: bytes) -> LowerIdentity:
    """Return the identity of what the lower has at *path* now; NO_LOWER for nothing."""
    return now_in(tree.lower, tree, path)


def now_in(lower: Lower, tree: Tree, path: bytes) -> LowerIdentity:
    """Return the identity of what *lower* has at *path* now; NO_LOWER for nothing."""
    try:
        return tree.identify(lower.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return NO_LOWER
