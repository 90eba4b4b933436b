"""Puts a frozen base beneath a branch: a layer that has the base, above what the branch is made from."""

from agentfsd.core import hard_links
from agentfsd.core.inode import ROOT_ID
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.tree import Inode, Tree
from agentfsd.metadata import layer_rows


def add(trees: OpenTrees, layer: int, base: str) -> int:
    """Make a layer above the sealed *layer* that shows a frozen base, in the open transaction, and return it.

    A commit of another branch may move in the real directory what *layer* has moved, and its rows then name the new place. In the
    base it stays where it is. So the new layer has rows of its own for that.
    """
    store = trees.parts.store
    made = layer_rows.new_layer(store, layer, base)
    trees.know_bases()
    chain = layer_rows.chain(store, layer)
    if any(not layer_rows.is_empty(store, number) for number in chain):
        with trees.kept(layer) as tree:
            for inode in _moved(tree):
                store.put_inode(inode.row(made))
    return made


def _moved(tree: Tree) -> list[Inode]:
    """Return the stored inodes that read the lower at another path than they have."""
    found = []
    for number in {use.id for use in tree.store.uses_of_lower() if use.layer in tree.chain and use.id != ROOT_ID}:
        inode = tree.find_stored(number)
        if inode is None or inode.has_own_data or inode.lower_path is None:
            continue
        if inode.lower_path not in hard_links.stored(tree, number):
            found.append(inode)
    return found
