"""Moves open files from a tree that a merge replaces to the new tree.

Without this, a process that has a file open would go on writing to a tree that no lookup reaches any more.
"""

import stat

from agentfsd.core import data
from agentfsd.core.tree import Inode, Tree


def carry_over(old: Tree, new: Tree) -> None:
    """Move the open files of *old* to *new*, where that still has them; ``old.switched_files`` gets those with other content."""
    for inode in old.in_use():
        twin = _twin(inode, new)
        if twin is None or twin is inode:
            continue
        before = _data_of(inode)
        new.take_in(inode, twin)
        if _data_of(inode) != before:
            old.switched_files.append(inode)
            inode.release_files()
            if inode.opens:
                data.open_source(inode)


def _data_of(inode: Inode) -> object:
    """Return a key that is equal for equal data. A frozen base may have another state of the same file of the lower."""
    return inode.content or (inode.lower_path, inode.lower)


def _twin(inode: Inode, new: Tree) -> Inode | None:
    """Find the same file in *new*: by its path, or else by its stored inode id."""
    try:
        twin = new.walk(inode.path)
    except OSError:
        twin = None
    if twin is not None and twin.ino == inode.ino and stat.S_IFMT(twin.mode) == stat.S_IFMT(inode.mode):
        return twin
    return new.find_stored(inode.id) if inode.id else None
