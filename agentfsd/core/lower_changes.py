"""Updates inodes that come from the lower after a commit, or its undo, has changed the lower."""

from collections.abc import Iterator

from agentfsd.core.inode import LowerIdentity
from agentfsd.core.overlay_state import OverlayState
from agentfsd.core.tree import Tree

_LAST_MOVE = "lower moved"  # the key under which the store keeps the last commit that was applied here


class LowerChanges:
    """Follows commits in every tree of one overlay, and in its rows."""

    def __init__(self, state: OverlayState) -> None:
        self._state = state

    def _trees(self) -> Iterator[Tree]:
        yield from self._state.trees.values()
        yield from self._state.replaced

    def moved(self, paths: dict[bytes, bytes], once: str) -> None:
        """Replace the lower paths of inodes after a commit has moved files in the lower. No frozen base has moved.

        Args:
            paths: The new path by the old one.
            once: The name of the commit. Repeating the last call, after the daemon was killed, changes nothing.
        """
        store = self._state.store
        if store.value(_LAST_MOVE) == once:
            return
        with store.transaction() as tx:
            store.put_value(_LAST_MOVE, once)
            for tree in self._trees():
                for inode in tree.from_lower() + tree.loaded() if tree.lower is self._state.lowers.live else ():
                    if inode.lower_path in paths:
                        tx.set(inode, lower_path=paths[inode.lower_path])
            store.move_lower_paths(paths, self._state.lowers.frozen_layers())

    def touched(self, identities: dict[LowerIdentity, LowerIdentity]) -> None:
        """Replace the lower identities of inodes after an undone commit has put objects back into the lower.

        Args:
            identities: The new identity by the old one.
        """
        store = self._state.store
        with store.transaction() as tx:
            for tree in self._trees():
                for inode in tree.loaded():
                    if inode.lower in identities:
                        tx.set(inode, lower=identities[inode.lower])
            for old, new in identities.items():
                store.change_lower_identity(old, new)
