"""Tells what changed in the lower since a branch changed a path. It plans nothing, and never reads a content."""

from collections.abc import Iterable

from agentfsd.core import origin
from agentfsd.core.inode import NO_LOWER, LowerIdentity
from agentfsd.core.seen_names import SeenNames
from agentfsd.core.tree import Inode, Tree
from agentfsd.core.tree_diff import EntryPair
from agentfsd.metadata.rows import OriginRow


class LowerDrift:
    """The changes of the lower under the paths that a branch changed. *pairs*: how the lower and the branch's tree differ."""

    def __init__(self, tree: Tree, pairs: Iterable[EntryPair]) -> None:
        self._seen = SeenNames(tree)
        self._before = {  # by path, the lower objects that the branch knew: for paths without an origin row
            pair.new.lower_path: pair.new.lower for pair in pairs
            if pair.new is not None and pair.new.id and pair.new.lower_path is not None
        }  # fmt: skip

    def origin_of(self, path: bytes) -> OriginRow | None:
        """Return the origin row of *path*: what the lower had there when the branch changed it."""
        return self._seen.row(path)

    def has_moved(self, pair: EntryPair) -> bool:
        """Tell whether the lower has something else at that path than when the branch changed it."""
        path, now = pair.path, in_lower(pair)
        row = self._seen.row(path)
        if pair.old is not None and pair.old.is_dir and pair.new is not None and pair.new.is_dir:
            return _directory_moved(pair.new, now, path, row)
        if row is not None:
            return now != origin.identity_of(row)
        if pair.new is not None and pair.new.linked and pair.new.lower == now:
            return False  # the branch may have changed it under another hard link, which has the origin row
        before = self._before.get(path, NO_LOWER)
        if before != NO_LOWER or now == NO_LOWER:
            return now != before
        return not self._seen.was_removed(path)

    def is_added_there(self, pair: EntryPair) -> bool:
        """Tell whether the name was created both in the lower and in the branch, independently."""
        path = pair.path
        if pair.old is None or pair.new is None or pair.new.lower_path == path or pair.new.linked:
            return False
        row = self._seen.row(path)
        return origin.identity_of(row) == NO_LOWER if row is not None else not self._seen.was_removed(path)


def in_lower(pair: EntryPair) -> LowerIdentity:
    """Return what the lower had at the path when the two trees were compared."""
    return pair.old.lower if pair.old is not None else NO_LOWER


def _directory_moved(inode: Inode, now: LowerIdentity, path: bytes, row: OriginRow | None) -> bool:
    """Tell whether the attributes of the lower's directory have changed since the branch changed the directory.

    The change time also changes when a name in the directory does. In doubt the answer is True.
    """
    if inode.lower_path == path:
        return now[:2] != inode.lower[:2] or now.ctime_ns > max(inode.btime_ns, inode.lower.ctime_ns)
    return row is None or now[:2] != origin.identity_of(row)[:2] or now.ctime_ns >= row.since_ns
