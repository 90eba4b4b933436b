"""Prepares a branch for being shown over another lower than its own: a frozen base is not what the real directory is now.

What the branch has changed is its own. What it has only moved, or given other attributes, is read from its lower: it gets a
content of its own where the other lower has something else there.
"""

import stat
from collections.abc import Iterable

from agentfsd.core import copyup, hard_links, origin
from agentfsd.core.overlay import Overlay
from agentfsd.core.transplant import Transplant
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.history.kept_directories import Progress, keep_all
from agentfsd.metadata.rows import BranchRow
from agentfsd.repositories import reading
from agentfsd.types import Lower


def prepare(overlay: Overlay, refs: Iterable[str], over: Lower) -> Progress:
    """Prepare branches, in steps that yield (done, total, what). A snapshot stays as it is."""
    for ref in refs:
        row = overlay.refs.find(ref)
        tree = overlay.trees.by_id(row.id)
        if tree.lower is not over and isinstance(row, BranchRow):
            yield from _prepare(overlay, tree, set(overlay.layers.own(row)), over)


def _prepare(overlay: Overlay, tree: Tree, own: set[int], over: Lower) -> Progress:
    """Prepare a branch. *own*: the layers that it does not share with what it was made from; only their changes are its own."""
    uses = sorted(use for use in overlay.store.uses_of_lower() if use.layer in tree.chain)
    for done, number in enumerate(dict.fromkeys(use.id for use in uses)):
        inode = tree.find_stored(number)
        if inode is None or inode.has_own_data or inode.lower_path is None or not _differs(tree, inode, over):
            continue
        if inode.row_layer not in own:
            if not _is_gone(over, inode):
                continue  # what it was made from shows the same there
            _doubt(tree, inode)
        if inode.is_file:
            copyup.own_content(inode)
        else:
            yield from keep_all(inode, None, {})
        yield done, len(uses), "keeping what the base has"


def _doubt(tree: Tree, inode: Inode) -> None:
    """Have the next commit ask: another one has moved what the branch was made from, and somebody may have changed it since."""
    for path in list(hard_links.stored(tree, inode.id)):
        parent, _, name = path.rpartition(b"/")
        directory = reading.at(tree, parent)
        if directory is not None and directory.is_dir and reading.at(tree, path) is inode:
            with tree.store.transaction() as tx:
                copyup.materialize(tx, directory, itself=False)
                origin.doubt(directory, name)


def take_what_went(made: Tree, before: Tree) -> Progress:
    """Give a new state a content of its own for what it would read from its lower, which does not have it.

    Args:
        made: The new state. It may be written.
        before: The same state over another lower.
    """
    transplant = Transplant(made)
    for number in sorted({use.id for use in made.store.uses_of_lower() if use.layer in made.chain}):
        inode = made.find_stored(number)
        if inode is None or inode.has_own_data or inode.lower_path is None or not _is_gone(made.lower, inode):
            continue
        for path in [path for path in hard_links.stored(made, number) if reading.at(made, path) is inode]:
            source = reading.at(before, path)
            if source is not None and (source.has_own_data or source.lower_path is None or not _is_gone(before.lower, source)):
                yield from _take_all(transplant, path, source)


def _take_all(transplant: Transplant, path: bytes, inode: Inode) -> Progress:
    transplant.remove(path)
    transplant.take(path, inode)
    yield 0, 0, "keeping what the base has"
    for name in inode.tree.names(inode) if inode.is_dir else ():
        yield from _take_all(transplant, join(path, name), inode.tree.lookup(inode, name))


def _is_gone(lower: Lower, inode: Inode) -> bool:
    """Return whether a lower has nothing, or something of another type, where an inode reads."""
    assert inode.lower_path is not None
    try:
        return stat.S_IFMT(lower.stat(inode.lower_path).st_mode) != stat.S_IFMT(inode.mode)
    except (FileNotFoundError, NotADirectoryError):
        return True


def _differs(tree: Tree, inode: Inode, over: Lower) -> bool:
    """Return whether the other lower cannot stand for what an inode reads from the tree's own."""
    assert inode.lower_path is not None
    is_moved = inode.lower_path not in set(hard_links.stored(tree, inode.id))
    if _is_gone(tree.lower, inode):
        return False
    if _is_gone(over, inode):
        return is_moved or inode.is_file
    there, here = over.stat(inode.lower_path), tree.lower.stat(inode.lower_path)
    return is_moved and inode.is_file and tree.identify(there) != tree.identify(here)
