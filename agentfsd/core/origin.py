"""What the lower had under a name when a branch first hid or changed it: to see later whether the lower has moved since,
and to have a base for merging then."""

import errno
import os
import stat
import time

from agentfsd.core.content_objects import clone_object
from agentfsd.core.inode import NO_LOWER, LowerIdentity
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.metadata import origin_rows
from agentfsd.metadata.row_store import GARBAGE, Transaction
from agentfsd.metadata.rows import OriginRow, is_whiteout

_COARSE = 5  # CLOCK_REALTIME_COARSE, which file systems stamp with: a finer one would run ahead
BASE_BYTES = 1 << 20  # larger files are not merged by lines


def note(tx: Transaction, directory: Inode, name: bytes, *, keep: bool) -> None:
    """Before *name* is hidden or gets other content; with *keep* the lower's content is kept as the base of merges.

    Only the first time counts, and only what the branch has seen: not what the lower got since the branch made the name itself.
    *directory* has a row already.
    """
    tree = directory.tree
    if directory.lower_path is None:
        return
    old = origin_rows.find(tree.store, directory.id, name, tree.chain)
    path, shows_lower = join(directory.lower_path, name), tree.entries(directory).get(name) is None
    if old is not None and (old.base or not keep) and not shows_lower:
        return
    try:
        found = tree.lower.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    identity = tree.identify(found)
    if old is not None and identity_of(old) != identity:
        if not shows_lower:
            return
        _drop_base(tree, old)
        old = None
    elif old is not None and (old.base or not keep):
        return
    if old is None and not shows_lower and not _comes_from(directory, name, path, identity):
        return
    base = _keep_content(tx, tree, path, found) if keep else 0
    if old is None:
        since_ns = min(time.clock_gettime_ns(_COARSE), _first_change(directory, name))
        old = OriginRow(directory.id, name, tree.head, *identity, since_ns, base)
    elif not base:
        return
    origin_rows.put(tree.store, old._replace(layer=tree.head, base=base))


def _comes_from(directory: Inode, name: bytes, path: bytes, identity: LowerIdentity) -> bool:
    """Whether what the branch has as *name* is what the lower has at *path*, whatever the branch changed of it."""
    tree, child = directory.tree, directory.tree.entries(directory).get(name) or 0
    inode = tree.known(child) or tree.stored(child) if child else None
    return inode is not None and (inode.lower_path == path or (inode.linked and inode.lower[:2] == identity[:2]))


def _drop_base(tree: Tree, row: OriginRow) -> None:
    if row.base and row.layer == tree.head:
        tree.store.put_object(row.base, GARBAGE)


def renew(tx: Transaction, directory: Inode, name: bytes, path: bytes) -> None:
    """After a commit: what the lower has at *path* now is what the branch made of it."""
    tree = directory.tree
    now = now_in_lower(tree, path)
    base = 0
    if now != NO_LOWER:
        base = _keep_content(tx, tree, path, tree.lower.stat(path))
    old = origin_rows.find(tree.store, directory.id, name, tree.chain)
    if old is not None:
        _drop_base(tree, old)
    origin_rows.put(tree.store, OriginRow(directory.id, name, tree.head, *now, time.time_ns(), base))


def carry(source: Tree, tree: Tree, path: bytes) -> None:
    """After *tree* took *path* over from *source*: what the lower had when that was changed counts, not what it has now."""
    parent, _, name = path.rpartition(b"/")
    try:
        directory, like = tree.walk(parent), source.walk(parent)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not (path and directory.id and like.id and directory.lower_path is not None and directory.lower_path == like.lower_path):
        return
    row, mine = _row_of(source, like, name), origin_rows.find(tree.store, directory.id, name, tree.chain)
    now = now_in_lower(tree, join(directory.lower_path, name))
    if row is None or (mine is not None and identity_of(mine) != now):
        return
    if mine is not None and identity_of(row) == now:
        if mine.layer == tree.head and row.since_ns < mine.since_ns:
            with tree.store.transaction():
                origin_rows.put(tree.store, mine._replace(since_ns=row.since_ns))
        return
    with tree.store.transaction() as tx:
        base = _clone_base(tx, tree, row.base) if row.base else 0
        if mine is not None:
            _drop_base(tree, mine)
        origin_rows.put(tree.store, row._replace(dir=directory.id, layer=tree.head, base=base))


def _row_of(tree: Tree, directory: Inode, name: bytes) -> OriginRow | None:
    row = origin_rows.find(tree.store, directory.id, name, tree.chain)
    inode = tree.find(directory, name) if row is None else None
    if inode is None or not inode.id or directory.lower_path is None or inode.lower_path != join(directory.lower_path, name):
        return row
    return OriginRow(directory.id, name, tree.head, *inode.lower, inode.btime_ns, 0)


def _clone_base(tx: Transaction, tree: Tree, base: int) -> int:
    number, old = tree.store.next_id("object"), tree.backstore.open(base)
    try:
        clone_object(tree, old.fileno(), number).close()
    finally:
        old.close()
    tx.when_undone(lambda: tree.backstore.remove(number))
    tree.store.put_object(number, tree.head)
    return number


def _first_change(directory: Inode, name: bytes) -> int:
    """When something in the directory that is *name* was first hidden or changed."""
    child = directory.tree.entries(directory).get(name)
    return 1 << 63 if child is None or is_whiteout(child) else origin_rows.oldest(directory.tree.store, child)


def follow(tx: Transaction, inode: Inode, path: bytes) -> None:
    """After a commit: what *inode* is, the lower has at *path* now, and it comes from there.

    *inode* has a row in the head layer.
    """
    tree = inode.tree
    now = now_in_lower(tree, path)
    if now == NO_LOWER:
        return
    tx.set(inode, lower=now)
    if inode.lower_path is not None:
        tx.set(inode, lower_path=path)
    tree.store.put_inode(inode.row(tree.head))


def _keep_content(tx: Transaction, tree: Tree, path: bytes, found: os.stat_result) -> int:
    """The object's number; 0 where there is nothing to keep, or no room."""
    if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= BASE_BYTES:
        return 0
    number = tree.store.next_id("object")
    try:
        fd = tree.lower.open(path)
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
    return LowerIdentity(row.lower_ino, row.lower_dev, row.lower_size, row.lower_mtime, row.lower_ctime)


def found_at(directory: Inode, name: bytes, inode: Inode) -> OriginRow | None:
    """What is known of the lower's file that *inode*, which has *name*, is a copy of; None where it is of none at that place."""
    if directory.lower_path is None or inode.lower_path != join(directory.lower_path, name):
        return None
    return origin_rows.find(directory.tree.store, directory.id, name, directory.tree.chain)


def expected(tree: Tree, directory: Inode, name: bytes, inode: Inode | None) -> LowerIdentity:
    """What the lower should have at *name*, if it has not moved since the branch changed that; NO_LOWER: nothing."""
    if directory.lower_path is None:
        return NO_LOWER
    row = origin_rows.find(tree.store, directory.id, name, tree.chain) if directory.id else None
    if row is not None:
        return identity_of(row)
    if inode is not None and inode.lower_path == join(directory.lower_path, name):
        return inode.lower
    return NO_LOWER


def has_moved(tree: Tree, directory: Inode, name: bytes, inode: Inode | None) -> bool:
    """Whether the lower has something else now than when the branch first changed *name* (*inode*: what it has there)."""
    if directory.lower_path is None:
        return False
    before = expected(tree, directory, name, inode)
    now = now_in_lower(tree, join(directory.lower_path, name))
    if now[:2] == before[:2] and inode is not None and inode.is_dir:
        return False  # its other fields move with what it holds
    return now != before


def now_in_lower(tree: Tree, path: bytes) -> LowerIdentity:
    """What the lower has at *path*; NO_LOWER for nothing."""
    try:
        return tree.identify(tree.lower.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return NO_LOWER
