"""Files whose content somebody writes without asking us: through a real descriptor, or the kernel's passthrough.

Their size and times are the object's, so nothing is wrong with them; but nobody may cache what stat showed, and when the layer is
sealed the writer keeps the object, which a clone replaces below (copyup.keep_original). It knows no descriptor and no kernel.
"""

from collections.abc import Iterator

from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.tree import Inode, Tree
from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import layer_rows


def begin(inode: Inode) -> None:
    """Counts one more who writes it past us. Durable for the branch: a writer outlives a daemon that is killed."""
    tree = inode.tree
    if tree.id and not tree.external_writers_noted:
        with tree.store.transaction():
            tree.store.put_value(_key(tree.id), "1")
        tree.external_writers_noted = True
    tree.external_writers[inode] = tree.external_writers.get(inode, 0) + 1


def end(tree: Tree, inode: Inode) -> None:
    """One less; *tree*: the inode's at that time."""
    left = tree.external_writers.get(inode, 0) - 1
    if left > 0:
        tree.external_writers[inode] = left
    else:
        tree.external_writers.pop(inode, None)


def left_over(trees: OpenTrees) -> Iterator[Inode]:
    """After a start: the files that somebody still has open since an earlier daemon gave them out."""
    store = trees.parts.store
    for branch_id in trees.branch_ids():
        if not store.value(_key(branch_id)):
            continue
        tree, found = trees.of_branch(branch_id), False
        for inode_id, number in layer_rows.contents_of(store, tree.head):
            if not _is_open(tree, number):
                continue
            inode = tree.find_stored(inode_id)
            if inode is not None and inode.content == number:
                found = True
                yield inode
        if not found:
            with store.transaction():
                store.put_value(_key(branch_id), "")


def _is_open(tree: Tree, number: int) -> bool:
    try:
        content = tree.backstore.open(number)
    except DamagedContent:
        return False
    try:
        return content.is_open_elsewhere()
    finally:
        content.close()


def _key(branch_id: str) -> str:
    return f"written past us {branch_id}"
