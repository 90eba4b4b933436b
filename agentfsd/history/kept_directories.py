"""Gives a branch a content of its own for what it reads from the lower, below one path."""

from collections.abc import Generator, Mapping

from agentfsd.core import copyup
from agentfsd.core.inode import NO_LOWER
from agentfsd.core.tree import Inode, join

Progress = Generator[tuple[int, int, str], None, None]


def keep_all(inode: Inode, later: bytes | None, moving: Mapping[bytes, bytes]) -> Progress:
    """Keep a file, or a directory and everything that it shows of the lower.

    Args:
        inode: What goes.
        later: The path at which this tree shows what the lower has there after the commit; None if there is none.
        moving: What the lower has at another path after the commit: the new path by the old one.
    """
    tree, path = inode.tree, inode.lower_path
    if path is None or inode.has_own_data or (later is not None and not inode.is_dir):
        return
    if inode.is_file:
        copyup.own_content(inode)
    elif later is None:
        with tree.store.transaction() as tx:
            copyup.materialize(tx, inode)
    yield 0, 0, "keeping what other branches moved"
    if not inode.is_dir:
        return
    for name in tree.names(inode):
        child = tree.find(inode, name)
        if child is not None and child.lower_path == join(path, name):
            moved = join(later, name) if later is not None else None
            yield from keep_all(child, moved if moved == moving.get(child.lower_path) else None, moving)
    if later is None:  # what the lower gets at this path some day is another directory
        with tree.store.transaction() as tx:
            tx.set(inode, lower_path=None, lower=NO_LOWER)
            copyup.save(tx, inode)
