"""Tells names of the lower that a branch has removed or changed from names that the branch has never seen.

A program may create a file in the lower at a path where the branch has already made a directory or another file. The branch
does not show the new file, but it has not deleted it. Only an origin row (core/origin.py) records that a branch removed or
changed what the lower had.
"""

from agentfsd.core import origin
from agentfsd.core.inode import NO_LOWER, ROOT_ID
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.metadata import origin_rows
from agentfsd.metadata.rows import OriginRow


class SeenNames:
    """The names of the lower that one tree has hidden or changed.

    The rows are read when first needed, and are valid as long as the tree does not change.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._directories: dict[bytes, tuple[int, bool]] | None = None  # path in the lower: (inode id, has a name)
        self._rows: dict[bytes, OriginRow] = {}

    def row(self, path: bytes) -> OriginRow | None:
        """Find what the lower had at *path* when the tree first hid or changed it.

        Args:
            path: A path in the lower.

        Returns:
            The origin row. Its identity is NO_LOWER if the last commit left nothing at *path*. None if the tree has never seen
            anything there, or if a commit has since removed a directory above *path* from the lower.
        """
        self._load()
        above = b""
        for name in path.split(b"/")[:-1]:
            above = join(above, name)
            row = self._rows.get(above)
            if row is not None and origin.identity_of(row) == NO_LOWER:
                return None  # a commit removed the directory that the branch knew; the lower's is another
        stored = self._rows.get(path)
        return stored if stored is not None or self._is_recorded(path) else self._guess(path)

    def rows(self) -> dict[bytes, OriginRow]:
        """Return what the lower had at each path that the tree has hidden or changed, by path in the lower."""
        self._load()
        return self._rows

    def was_removed(self, path: bytes) -> bool:
        """Tell whether the tree removed or moved away the lower's *path*, which it does not show there."""
        row = self.row(path)
        if row is not None:
            return origin.identity_of(row) != NO_LOWER
        return self._is_elsewhere(path)

    def covers(self, directory: Inode, name: bytes, path: bytes) -> bool:
        """Tell the same as was_removed() of *name* in *directory* of the tree.

        One query is enough if *directory* is merged with the directory of *path* in the lower.
        """
        if directory.lower_path is None or join(directory.lower_path, name) != path:
            return self.was_removed(path)
        row = origin_rows.find(self._tree.store, directory.id, name, self._tree.chain) if directory.id else None
        return row is not None and origin.identity_of(row) != NO_LOWER

    def _load(self) -> None:
        if self._directories is None:
            self._directories = _directories(self._tree)
            places = {number: path for path, (number, _) in self._directories.items()}
            for (directory, name), row in origin_rows.find_all(self._tree.store, self._tree.chain).items():
                if directory in places:
                    self._rows[join(places[directory], name)] = row

    def _is_recorded(self, path: bytes) -> bool:
        """Tell whether the origin rows are complete for *path*: its directory still has an inode row, even if it was removed."""
        assert self._directories is not None
        return path.rpartition(b"/")[0] in self._directories

    def _is_elsewhere(self, path: bytes) -> bool:
        """Tell whether the tree shows the lower's *path* elsewhere, below a directory that was moved."""
        assert self._directories is not None
        above, names = path, list[bytes]()
        while above:
            above, _, name = above.rpartition(b"/")
            names.append(name)
            number, is_there = self._directories.get(above, (0, False))
            if is_there:
                node = self._tree.root if number == ROOT_ID else self._tree.stored(number)
                while node is not None and names:
                    node = self._tree.find(node, names.pop()) if node.is_dir else None
                return node is not None and (node.lower_path == path or node.linked)
        return False

    def _guess(self, path: bytes) -> OriginRow | None:
        """Guess the origin row of a name below a directory that was removed before removed directories were recorded.

        If the lower's object has not changed since the branch removed the directory, it was there at that time.
        """
        above = path
        while above:
            above = above.rpartition(b"/")[0]
            row = self._rows.get(above)
            if row is None and above and self._is_recorded(above):
                return None  # the branch has never hidden that directory
            if row is None:
                continue
            try:
                status = self._tree.lower.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            if status.st_ctime_ns >= row.since_ns:
                return None
            return OriginRow(row.dir, row.name, row.layer, *self._tree.identify(status), row.since_ns, 0)
        return None


def _directories(tree: Tree) -> dict[bytes, tuple[int, bool]]:
    """Return (inode id, has a name) of each directory merged with one of the lower, by path in the lower.

    If several have one path, one that has a name counts before one that has none, and then the newest.
    """
    directories = {b"": (ROOT_ID, True)}
    for number, nlink, path in origin_rows.directories(tree.store, tree.chain):
        known = directories.get(path)
        if known is None or (nlink > 0, number) > (known[1], known[0]):
            directories[path] = number, nlink > 0
    return directories


class Removals:
    """Tells, among the names that only the old tree shows, those that the new tree removed from those it has never seen."""

    def __init__(self, old: Tree, new: Tree) -> None:
        self._old = old
        self._has_seen_all = new.on_base and old.lower is new.lower
        self._seen = SeenNames(new)
        self._walked: set[bytes] = set()
        self._holding: dict[bytes, bytes] = {}  # a directory: a path below it that the new tree has never seen

    def was_removed(self, path: bytes, inode: Inode, within: Inode | None) -> bool:
        """Tell whether the new tree removed *inode*, which only the old tree shows at *path*.

        *within* is the new tree's directory in which the name is missing, or None if that directory is missing too.
        """
        if inode.id or inode.lower_path is None or self._has_seen_all:
            return True
        if within is None:
            return self._seen.was_removed(inode.lower_path)
        return self._seen.covers(within, path.rpartition(b"/")[2], inode.lower_path)

    def unseen_below(self, path: bytes, directory: Inode) -> bytes:
        """Find a path below a directory of the old tree that the new tree has never seen; b"" if there is none."""
        todo = [(path, directory)] if path not in self._walked else []
        while todo:
            above, node = todo.pop()
            self._walked.add(above)
            for name in self._old.names(node):
                below, child = join(above, name), self._old.find(node, name)
                if child is None:
                    continue
                if not self.was_removed(below, child, None):
                    self._hold(path, below)
                elif child.is_dir:
                    todo.append((below, child))
        return self._holding.get(path, b"")

    def _hold(self, top: bytes, unseen: bytes) -> None:
        path = unseen
        while path != top:
            path = path.rpartition(b"/")[0]
            self._holding.setdefault(path, unseen)
