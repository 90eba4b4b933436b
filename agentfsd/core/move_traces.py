"""Tells, without a walk through two trees, whether a name that only one of them has may have another name in the other one.

It may say yes where nothing was moved, but never no where something was.
"""

from collections import defaultdict

from agentfsd.core import inode_stat
from agentfsd.core.inode import NEW_INO_BASE
from agentfsd.core.touched_names import TouchedNames
from agentfsd.core.tree import Inode, Tree
from agentfsd.metadata import chain_rows


class MoveTraces:
    """What the rows of the layers that two trees do not share tell of moves. *touched* must have read them."""

    def __init__(self, touched: TouchedNames) -> None:
        self._old, self._new, self._rows = touched.old, touched.new, touched.inode_rows
        self._ids: dict[int, set[int]] | None = None  # of the inodes that have a name, by inode number
        self._moved: set[bytes] | None = None

    def may_have_come(self, inode: Inode) -> bool:
        """Tell whether *inode*, at a name that only the new tree has, may have another name in the old tree.

        What the lower had, too, can only be at a new name if it was moved or linked, or if the old tree removed it.
        """
        return inode.ino < NEW_INO_BASE or self._is_in(self._old, inode) or self._has_twin(inode)

    def may_have_gone(self, inode: Inode) -> bool:
        """Tell whether *inode*, at a name that only the old tree has, may have another name in the new tree."""
        if self._is_in(self._new, inode) or self._has_twin(inode):
            return True
        if inode.ino >= NEW_INO_BASE or inode.lower_path is None:
            return False
        if self._shows(inode.lower_path, inode.ino):
            return True
        return (not inode.is_dir and inode_stat.attributes(inode).nlink > 1) or self._is_below_moved(inode.lower_path)

    @staticmethod
    def _is_in(tree: Tree, inode: Inode) -> bool:
        row = chain_rows.newest(tree.store, inode.id, tree.chain) if inode.id else None
        return row is not None and row.nlink > 0

    def _has_twin(self, inode: Inode) -> bool:
        """Tell whether another inode has the number: both were made from one file of the lower."""
        if self._ids is None:
            self._ids = defaultdict(set)
            for versions in self._rows.values():
                for row in versions:
                    if row.nlink:
                        self._ids[row.ino].add(row.id)
        return bool(self._ids.get(inode.ino, set()) - {inode.id})

    def _is_below_moved(self, path: bytes) -> bool:
        """Tell whether a directory of the lower above *path* is shown elsewhere in the new tree: what is below has no rows."""
        if self._moved is None:
            directories = {row.id: row.lower_path for versions in self._rows.values() for row in versions if row.nlink}
            self._moved = {place for number, place in directories.items() if place and not self._is_at(number, place)}
        while path:
            path = path.rpartition(b"/")[0]
            if path in self._moved:
                return True
        return False

    def _shows(self, path: bytes, ino: int) -> bool:
        """Tell whether the new tree has at *path* what has that inode number: the old tree has moved it away from there."""
        try:
            return self._new.walk(path).ino == ino
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _is_at(self, number: int, path: bytes) -> bool:
        try:
            return self._new.walk(path).id == number
        except (FileNotFoundError, NotADirectoryError):
            return False
