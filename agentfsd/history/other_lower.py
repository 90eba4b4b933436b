"""Prepares a branch for being shown over another lower than its own: a frozen base is not what the real directory is now.

What the branch has changed is its own. What it has only moved, or given other attributes, is read from its lower: it gets a content
of its own where the other lower has something else there.
"""

import stat

from agentfsd.core import copyup, hard_links
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree
from agentfsd.history.kept_directories import Progress, keep_all
from agentfsd.types import Lower


def prepare(overlay: Overlay, ref: str, over: Lower) -> Progress:
    """Prepare a branch, in steps that yield (done, total, what). A snapshot stays as it is."""
    row = overlay.refs.find(ref)
    tree = overlay.trees.by_id(row.id)
    if tree.lower is over or tree.read_only:
        return
    uses = sorted(use for use in overlay.store.uses_of_lower() if use.layer in tree.chain)
    for done, number in enumerate(dict.fromkeys(use.id for use in uses)):
        inode = tree.find_stored(number)
        if inode is not None and not inode.has_own_data and inode.lower_path is not None and _differs(tree, inode, over):
            if inode.is_file:
                copyup.own_content(inode)
            else:
                yield from keep_all(inode, None, {})
        yield done, len(uses), "keeping what the base has"


def _differs(tree: Tree, inode: Inode, over: Lower) -> bool:
    """Return whether the other lower cannot stand for what an inode reads from the tree's own."""
    assert inode.lower_path is not None
    try:
        there = over.stat(inode.lower_path)
    except (FileNotFoundError, NotADirectoryError):
        there = None
    is_moved = inode.lower_path not in set(hard_links.stored(tree, inode.id))
    if there is None or stat.S_IFMT(there.st_mode) != stat.S_IFMT(inode.mode):
        return is_moved or inode.is_file
    return is_moved and inode.is_file and tree.identify(there) != tree.identify(tree.lower.stat(inode.lower_path))
