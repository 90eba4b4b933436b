"""The common state from which both sides of a merge started: a tree, or the lower as it was when a branch first changed it."""

from collections.abc import Callable, Iterator
from typing import Protocol

from agentfsd.core import origin
from agentfsd.core.inode import NO_LOWER
from agentfsd.core.tree import Tree, join
from agentfsd.metadata.rows import OriginRow
from agentfsd.repositories import reading
from agentfsd.repositories.reading import GitDatabase

UNKNOWN = b"?"  # stands for a content that is not kept: nothing is equal to it


class Before(Protocol):
    """The common state. ``trees`` are the trees whose object files belong to it."""

    trees: tuple[Tree, ...]

    def text(self, path: bytes) -> bytes | None:
        """Return a file's content; None if there was no file."""
        ...

    def database(self, ours: GitDatabase, theirs: GitDatabase) -> Iterator[GitDatabase | None]:
        """Read the database that both sides have, as it was then. Yields None at each step, and the database last."""
        ...


class TreeBefore:
    """The common state of two branches."""

    def __init__(self, tree: Tree) -> None:
        self.trees: tuple[Tree, ...] = (tree,)

    def text(self, path: bytes) -> bytes | None:
        """See Before."""
        return reading.text(self.trees[0], path, reading.REFS_BYTES)

    def database(self, ours: GitDatabase, theirs: GitDatabase) -> Iterator[GitDatabase | None]:
        """See Before."""
        return reading.database(self.trees[0], ours.path)


class OriginBefore:
    """The lower as it was when a branch changed it, file by file.

    Args:
        lower: The lower as it is now.
        branch: The branch's tree.
        row: Returns what was recorded about a path of the lower; None if nothing was.
    """

    def __init__(self, lower: Tree, branch: Tree, row: Callable[[bytes], OriginRow | None]) -> None:
        self.trees: tuple[Tree, ...] = ()
        self._lower, self._branch, self._row = lower, branch, row

    def text(self, path: bytes) -> bytes | None:
        """See Before. Returns UNKNOWN if the content was not kept."""
        row, now = self._row(path), origin.now_in_lower(self._lower, path)
        if row is None:
            inode = reading.at(self._branch, path)
            return None if inode is not None and inode.content else reading.text(self._lower, path, reading.REFS_BYTES)
        before = origin.identity_of(row)
        if before == NO_LOWER:
            return None
        if before == now:
            return reading.text(self._lower, path, reading.REFS_BYTES)
        if not row.lower_size:
            return b""
        return self._kept(row) if row.base else UNKNOWN

    def _kept(self, row: OriginRow) -> bytes:
        file = self._branch.backstore.open(row.base)
        try:
            return file.pread(row.lower_size, 0)
        finally:
            file.close()

    def database(self, ours: GitDatabase, theirs: GitDatabase) -> Iterator[GitDatabase | None]:
        """See Before."""
        head = _value(self.text(join(ours.path, b"HEAD")) or b"")
        made = GitDatabase(ours.path, head, format=ours.format, bare=ours.bare)
        packed = self.text(join(ours.path, b"packed-refs"))
        names = {*ours.refs, *theirs.refs}
        made.refs = dict.fromkeys(names, UNKNOWN) if packed == UNKNOWN else reading.packed_refs(packed or b"")
        for name in sorted(names):
            value = self.text(join(ours.path, name))
            if value is not None:
                made.refs[name] = _value(value)
            yield None
        yield made


def _value(data: bytes) -> bytes:
    return data if data == UNKNOWN else reading.ref_value(data.strip())
