"""Files that a process writes without the daemon: through a real descriptor, or through the kernel's passthrough.

Their size and times are the object's, so nothing is wrong with them; but nobody may cache what stat showed, and when the layer is
sealed the writer keeps the object, which a clone replaces below (copyup.keep_original). It knows no descriptor and no kernel.
"""

from collections.abc import Iterator

from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.tree import Inode, Tree
from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import layer_rows


def begin(inode: Inode) -> None:
    """Count one more external writer of *inode*.

    The branch's mark is stored durably, because the writer may outlive a daemon that is killed.
    """
    tree = inode.tree
    if tree.id and not tree.external_writers_noted:
        with tree.store.transaction():
            tree.store.put_value(_key(tree.id), "1")
        tree.external_writers_noted = True
    tree.external_writers[inode] = tree.external_writers.get(inode, 0) + 1


def end(tree: Tree, inode: Inode) -> None:
    """Count one external writer of *inode* less; *tree* is the tree that counted it."""
    left = tree.external_writers.get(inode, 0) - 1
    if left > 0:
        tree.external_writers[inode] = left
    else:
        tree.external_writers.pop(inode, None)


def left_over(trees: OpenTrees) -> Iterator[Inode]:
    """Yield, after a start, the files that a process still has open through an earlier daemon.

    A branch that has no such file loses its mark.
    """
    store = trees.parts.store
    for branch_id in trees.branch_ids():
        if not store.value(_key(branch_id)):
            continue
        tree, any_left = trees.of_branch(branch_id), False
        for inode_id, number in layer_rows.contents_of(store, tree.head):
            if not _is_open(tree, number):
                continue
            inode = tree.find_stored(inode_id)
            if inode is not None and inode.content == number:
                any_left = True
                yield inode
        if not any_left:
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
