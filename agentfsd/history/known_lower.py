"""Tells at which paths a merged branch has seen what the lower is now, so that its commit there is no drift.

That is so only where the target shows the lower itself, or has changed what the lower has there now, and the base of the merge
holds itself what the source was made from: the merge has then compared the lower as it is with that. Everywhere else the source's
record of the lower counts, and a commit reports the drift. So it does where the base is content that is kept (kept_bases.py): the
lower may have taken in what the source has done, and a person may have taken it back since.
"""

import stat

from agentfsd.core import origin
from agentfsd.core.inode import NO_LOWER
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.metadata import origin_rows
from agentfsd.metadata.rows import is_whiteout
from agentfsd.repositories import reading


class KnownLower:
    """What one merge knows.

    Args:
        base: The state from which both sides started.
        theirs: The source.
        began_ns: What copyup.now_ns() was before anything was read of the target.
    """

    def __init__(self, base: Tree, theirs: Tree, began_ns: int) -> None:
        self._base, self._theirs, self._began_ns = base, theirs, began_ns
        self._may_hold = base.head in theirs.chain  # the source is built on the base, which is not the bare lower

    def at(self, tree: Tree, path: bytes) -> bool:
        """Return whether *tree*, the target before a step at *path*, has what the lower has, and the merge has seen that."""
        if not self._may_hold or not self._holds(path):
            return False
        place = _place(tree, path)
        has_lower = place is not None and _has_lower(tree, *place) and not _has_other_names(tree, path)
        return has_lower and self.is_unchanged(tree, path)

    def is_unchanged(self, tree: Tree, path: bytes) -> bool:
        """Return whether the lower at a path is older than the merge."""
        now = origin.now_in_lower(tree, path)
        if now == NO_LOWER:  # the directory tells when a name has come or gone
            now = origin.now_in_lower(tree, path.rpartition(b"/")[0])
        return now != NO_LOWER and now.ctime_ns < self._began_ns

    def _holds(self, path: bytes) -> bool:
        """Return whether the base holds itself what the source has changed at a path: it is not the lower's."""
        place = _place(self._base, path)
        child = self._base.entries(place[0]).get(place[1]) if place is not None else None
        if place is None or child is None:
            return False
        if is_whiteout(child):
            return True
        was, later = self._base.inode(child, *place), reading.at(self._theirs, path)
        if was.is_file:
            return was.nlink == 1 and (was.has_own_data or (later is not None and later.is_file and not later.has_own_data))
        return not was.is_dir and was.lower_path is None


def _place(tree: Tree, path: bytes) -> tuple[Inode, bytes] | None:
    """Return the directory that holds a path, which shows the lower's at the same place, and the name; None if there is none."""
    parent, _, name = path.rpartition(b"/")
    directory = reading.at(tree, parent)
    if not path or directory is None or not directory.is_dir or directory.lower_path is None:
        return None
    return (directory, name) if join(directory.lower_path, name) == path else None


def _has_lower(tree: Tree, directory: Inode, name: bytes) -> bool:
    """Return whether *tree* shows the lower at a name, or has changed the file there that the lower has now."""
    child = tree.entries(directory).get(name)
    if child is None:
        return True
    row = origin_rows.find(tree.store, directory.id, name, tree.chain)
    if is_whiteout(child) or row is None or not tree.inode(child, directory, name).has_own_data:
        return False
    assert directory.lower_path is not None
    return origin.identity_of(row) == origin.now_in_lower(tree, join(directory.lower_path, name))


def _has_other_names(tree: Tree, path: bytes) -> bool:
    try:
        status = tree.lower.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1
