"""Tells which state of the lower a run may have seen, while others change the lower under it."""

import stat

from agentfsd.core.tree import Inode, Tree, join


class LowerDoubts:
    """About one run.

    Args:
        tree: The branch.
        since_ns: When the run began. What the lower has changed since then, nobody knows whether the run has seen.
    """

    def __init__(self, tree: Tree, since_ns: int) -> None:
        self._tree, self._since_ns = tree, since_ns

    def is_uncertain(self, node: Inode, name: bytes) -> bool:
        """Return whether nobody knows if the run has seen what the lower has for a file whose data the branch has from there."""
        try:
            if node.lower_path is not None and self._tree.shows_lower(node, name):
                status = self._tree.lower.stat(join(node.lower_path, name))
                return status.st_ctime_ns >= self._since_ns and not stat.S_ISDIR(status.st_mode)
            inode = self._tree.find(node, name)
            if inode is None or inode.is_dir or inode.has_own_data or inode.lower_path is None:
                return False
            return self._tree.identify(self._tree.lower.stat(inode.lower_path)) != inode.lower  # the run has seen a copy
        except (FileNotFoundError, NotADirectoryError):
            return False

    def may_be_unseen(self, node: Inode, name: bytes) -> bool:
        """Return whether the lower may have got what it has at a name after the run has made something there itself."""
        if node.lower_path is None:
            return False
        try:
            return self._tree.lower.stat(join(node.lower_path, name)).st_ctime_ns >= self._since_ns
        except (FileNotFoundError, NotADirectoryError):
            return True

    def may_lack(self, node: Inode) -> bool:
        """Return whether names may have been removed from a directory of the lower since the run began."""
        if node.lower_path is None:
            return False
        try:
            return self._tree.lower.stat(node.lower_path).st_ctime_ns >= self._since_ns
        except (FileNotFoundError, NotADirectoryError):
            return True
