"""The names that may differ between two trees of one overlay, by the rows of layers that they do not share.

It reads rows in steps, and never looks at what a name leads to: tree_diff.py compares that.
"""

from collections.abc import Iterator

from agentfsd.core import hard_links
from agentfsd.core.inode import ROOT_ID
from agentfsd.core.tree import Tree
from agentfsd.metadata.layer_rows import names_in
from agentfsd.metadata.prefetch import Prefetch
from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import InodeRow

_STEP = 500  # names in one step on the way up to the root


class TouchedNames:
    """The names and inodes that have rows in layers which only one of the two trees has.

    Attributes:
        names: By inode of the directory, the names in it that may differ, those on the way down to others among them.
        below: By path of the directory, the same for hard links of touched files.
    """

    def __init__(self, old: Tree, new: Tree) -> None:
        self.names: dict[int, set[bytes]] = {}
        self.below: dict[bytes, set[bytes]] = {}
        self.old, self.new, self._rows = old, new, Prefetch((old.chain, new.chain))

    def reading(self, store: Store) -> Iterator[None]:
        """Read the rows in steps, older layers first: a layer's rows may move into a newer one meanwhile, so none is missed."""
        old, new, rows, dirs = self.old, self.new, self._rows, set[int]()
        chain = old.chain | new.chain
        old.prefetch = new.prefetch = rows
        for layer in sorted(old.chain ^ new.chain):
            for some in names_in(store, layer):
                for directory, name, _ in some:
                    self.names.setdefault(directory, set()).add(name)
                    dirs.add(directory)
                yield
            yield from rows.adding(store, layer)
        yield from self._marking_way_up(store, chain, dirs | rows.inodes.keys(), rows)

    @property
    def inode_rows(self) -> dict[int, list[InodeRow]]:
        """The versions of each inode that has a row in one of these layers, once they were read."""
        return self._rows.inodes

    def forget(self) -> None:
        """Drop the prefetched rows. They are out of date once the trees change."""
        self.old.prefetch = self.new.prefetch = None

    def add_links(self) -> None:
        """Add all names of touched files with hard links, because a change under one name shows under all of them."""
        linked = [versions[0].id for versions in self._rows.inodes.values() if versions[0].linked]
        for tree in (self.old, self.new) if linked else ():
            inodes = (tree.stored(number) for number in linked)
            for paths in hard_links.names(tree, [inode for inode in inodes if inode is not None and inode.nlink]).values():
                for path in paths:
                    self._add_path(path)

    def _add_path(self, path: bytes) -> None:
        while path:
            path, _, name = path.rpartition(b"/")
            self.below.setdefault(path, set()).add(name)

    def _marking_way_up(self, store: Store, chain: frozenset[int], start: set[int], rows: Prefetch) -> Iterator[None]:
        """Add every name on the way from the root to something touched."""
        todo, seen = list(start), set(start)
        while todo:
            if not len(todo) % _STEP:
                yield
            child = todo.pop()
            if child == ROOT_ID:
                continue
            for directory, name, layer in rows.names[child] if child in rows.names else store.names_of(child):
                if layer in chain:
                    self.names.setdefault(directory, set()).add(name)
                    if directory not in seen:
                        seen.add(directory)
                        todo.append(directory)
