"""All names of a file that has several, also those that nobody has looked at yet."""

import stat
from collections.abc import Iterator

from agentfsd.core.inode import ROOT_ID, Inode
from agentfsd.core.tree import Tree, join
from agentfsd.types import Lower


def names(tree: Tree, inode: Inode) -> set[bytes]:
    """The paths that lead to *inode*. Goes through the whole lower when the file has names there that no row knows."""
    known = {path for path in _stored(tree, inode.id) if _leads_to(tree, path, inode)}
    if inode.linked and len(known) < tree.attributes(inode).nlink:
        found = (path for path in _same_number(tree.lower, b"", inode.lower.ino) if path not in known)
        known.update(path for path in found if _leads_to(tree, path, inode))
    return known


def _stored(tree: Tree, inode_id: int) -> Iterator[bytes]:
    """Paths by the rows of the tree's layers; some may be hidden by newer rows."""
    if inode_id == ROOT_ID:
        yield b""
        return
    for directory, name in {(row[0], row[1]) for row in tree.store.names_of(inode_id) if row[2] in tree.chain}:
        for path in _stored(tree, directory):
            yield join(path, name)


def _leads_to(tree: Tree, path: bytes, inode: Inode) -> bool:
    try:
        return tree.walk(path) is inode
    except OSError:
        return False


def _same_number(lower: Lower, directory: bytes, number: int) -> Iterator[bytes]:
    for entry in lower.readdir(directory):
        path = join(directory, entry.name)
        if entry.type == stat.S_IFDIR:
            yield from _same_number(lower, path, number)
        elif entry.ino == number:
            yield path
