"""Puts a frozen base beneath a branch: a layer that has the base, above what the branch is made from."""

from agentfsd.core.base_lowers import BaseLowers
from agentfsd.core.open_trees import OpenTrees
from agentfsd.metadata import layer_rows


def add(trees: OpenTrees, lowers: BaseLowers, layer: int, base: str) -> int:
    """Make a layer above the sealed *layer* that shows a frozen base, in the open transaction, and return it.

    A commit of another branch may move in the real directory what *layer* reads from there, and its rows then name the new place.
    In the base it stays where it is. So the new layer has rows of its own for that.
    """
    store = trees.parts.store
    made = lowers.new_layer(layer, base)
    chain = set(layer_rows.chain(store, layer))
    if any(not layer_rows.is_empty(store, number) for number in chain):
        with trees.kept(layer) as tree:
            for number in {use.id for use in store.uses_of_lower() if use.layer in chain}:
                inode = tree.find_stored(number)
                if inode is not None and not inode.has_own_data and inode.lower_path is not None:
                    store.put_inode(inode.row(made))
    return made
