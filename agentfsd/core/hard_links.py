"""All names of files with hard links, including names that only the lower knows because no row holds them yet."""

import stat
from collections.abc import Collection, Iterable, Iterator

from agentfsd.core import inode_stat
from agentfsd.core.inode import ROOT_ID
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.types import Lower


def names(tree: Tree, inodes: Iterable[Inode]) -> dict[Inode, set[bytes]]:
    """Return the paths that lead to each inode.

    Walks the whole lower once if an inode has names there that no row holds.
    """
    paths_of = {inode: {path for path in stored(tree, inode.id) if _leads_to(tree, path, inode)} for inode in inodes}
    linked = [inode for inode in paths_of if inode.linked]
    counts = {inode: inode.nlink if inode.id else inode_stat.attributes(inode).nlink for inode in linked}
    hidden = {inode.lower.ino: inode for inode in linked if len(paths_of[inode]) < counts[inode]}
    for number, path in _in_lower(tree.lower, hidden.keys()) if hidden else ():
        if path not in paths_of[hidden[number]] and _leads_to(tree, path, hidden[number]):
            paths_of[hidden[number]].add(path)
    return paths_of


def stored(tree: Tree, inode_id: int) -> Iterator[bytes]:
    """Yield the paths of an inode in the rows of the tree's layers. Newer rows may hide some of them."""
    todo = [(inode_id, b"")] if inode_id else []
    while todo:
        number, below = todo.pop()
        if number == ROOT_ID:
            yield below
            continue
        for directory, name in {(row[0], row[1]) for row in tree.store.names_of(number) if row[2] in tree.chain}:
            todo.append((directory, name + b"/" + below if below else name))


def _leads_to(tree: Tree, path: bytes, inode: Inode) -> bool:
    try:
        return tree.walk(path) is inode
    except OSError:
        return False


def _in_lower(lower: Lower, numbers: Collection[int]) -> Iterator[tuple[int, bytes]]:
    todo = [b""]
    while todo:
        directory = todo.pop()
        try:
            entries = lower.readdir(directory)
        except (FileNotFoundError, NotADirectoryError):  # removed since its parent was listed
            continue
        for entry in entries:
            if entry.type == stat.S_IFDIR:
                todo.append(join(directory, entry.name))
            elif entry.ino in numbers:
                yield entry.ino, join(directory, entry.name)
