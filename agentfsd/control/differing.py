"""Which files of two states differ, as plain lists of paths. Knows no request."""

import stat
from collections.abc import Iterable

from agentfs_client import wire
from agentfsd.control.slices import Steps
from agentfsd.core.diff import pairs
from agentfsd.core.inode import Inode
from agentfsd.core.tree import Parts, Tree


def files(parts: Parts, old: Tree, new: Tree, *, count: bool) -> Steps[wire.FilesDifferReply]:
    """The trees must hold still. *count*: also how many files are the same, for which all of *old* is walked."""
    added, modified, deleted = list[bytes](), list[bytes](), list[bytes]()
    for done, pair in enumerate(pairs(parts, old, new)):
        had, has = _is_file(pair.old), _is_file(pair.new)
        if had or has:
            (modified if had and has else deleted if had else added).append(pair.path)
        yield done, 0, "comparing"
    unchanged = -1
    if count:
        unchanged = (yield from _count(old)) - len(modified) - len(deleted)
    return wire.FilesDifferReply(added=_names(added), modified=_names(modified), deleted=_names(deleted), unchanged=unchanged)


def _is_file(inode: Inode | None) -> bool:
    return inode is not None and not inode.is_dir


def _names(paths: Iterable[bytes]) -> list[wire.PathName]:
    return [wire.PathName(**wire.path_fields(path)) for path in sorted(paths)]


def _count(tree: Tree) -> Steps[int]:
    """Whatever is no directory."""
    found, todo = 0, [tree.root]
    while todo:
        directory = todo.pop()
        for name, kind in tree.kinds(directory):
            if not stat.S_ISDIR(kind):
                found += 1
            elif (inside := tree.find(directory, name)) is not None:
                todo.append(inside)
        yield found, 0, "counting"
    return found
