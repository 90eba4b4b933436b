"""Finds a stored inode by its number, with the name that it has: what a request by path finds on its way."""

from agentfsd.core.inode import ROOT_ID
from agentfsd.core.tree import Inode, Tree


def find_placed(tree: Tree, inode_id: int) -> Inode | None:
    """Return a stored inode in the place where its tree has it; None if it has no name in this tree.

    A file of the lower that has several names there may come without a place, until it is looked up.

    Raises:
        OSError: The rows contradict each other.
    """
    if inode_id == ROOT_ID:
        return tree.root
    inode = tree.find_stored(inode_id)
    if inode is None:
        return None
    if inode.parent is not None and inode.parent.nlink and tree.entries(inode.parent).get(inode.name) == inode_id:
        return inode
    for directory_id, name, layer in tree.store.names_of(inode_id):
        if layer not in tree.chain:
            continue
        directory = find_placed(tree, directory_id)
        if directory is not None and tree.entries(directory).get(name) == inode_id:
            inode.parent, inode.name = directory, name
            return inode
    return inode if inode.linked else None  # its names may be the lower's, which have no rows
