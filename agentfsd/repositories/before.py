"""The common state from which both sides of a merge started: a tree, or the lower as it was when a branch first changed it."""

from collections.abc import Callable, Iterator
from typing import Protocol

from agentfsd.core import origin
from agentfsd.core.inode import NO_LOWER
from agentfsd.core.seen_names import SeenNames
from agentfsd.core.tree import Tree, join
from agentfsd.metadata.rows import OriginRow
from agentfsd.repositories import reading
from agentfsd.repositories.reading import GitDatabase

UNKNOWN = b"?"  # stands for a content that is not kept: nothing is equal to it


class Before(Protocol):
    """The common state."""

    def text(self, path: bytes) -> bytes | None:
        """Return a file's content; None if there was no file."""
        ...

    def database(self, ours: GitDatabase, theirs: GitDatabase) -> Iterator[GitDatabase | None]:
        """Read the database that both sides have, as it was then. Yields None at each step, and the database last."""
        ...


class TreeBefore:
    """The common state of two branches, *tree*; *theirs* is the branch whose changes since then are merged into *ours*.

    Where the common state shows the lower, it shows what the lower has now. Where *theirs* changed that path, the lower had
    something else then: that is what both began with. A ref that the lower got and *theirs* has never seen was not there. The
    same holds for *ours* where *theirs* has what the lower has.
    """

    def __init__(self, tree: Tree, theirs: Tree, ours: Tree) -> None:
        self._tree, self._theirs, self._seen = tree, theirs, SeenNames(theirs)
        self._ours, self._seen_by_ours = ours, SeenNames(ours)

    def text(self, path: bytes) -> bytes | None:
        """See Before. UNKNOWN for what is not kept."""
        found, now = reading.at(self._tree, path), origin.now_in_lower(self._tree, path)
        if (found is not None and found.has_own_data) or (found is None and now != NO_LOWER):
            return reading.text(self._tree, path, reading.REFS_BYTES)
        row = self._seen.row(path)
        if row is None:
            shown = reading.at(self._theirs, path)
            was_seen = self._seen.was_removed(path) if shown is None else not shown.has_own_data
            return reading.text(self._tree, path, reading.REFS_BYTES) if was_seen else None
        before = origin.identity_of(row)
        if before == now:
            return reading.text(self._tree, path, reading.REFS_BYTES)
        return None if before == NO_LOWER else _kept(self._theirs, row)

    def database(self, ours: GitDatabase, theirs: GitDatabase) -> Iterator[GitDatabase | None]:
        """See Before."""
        made = None
        for step in reading.database(self._tree, ours.path):
            made = step
            yield None
        if made is None:
            return
        changed = dict[bytes, bytes | None]()
        for name in sorted(made.refs.keys() | theirs.refs.keys()):
            path = join(ours.path, name)
            if made.refs.get(name) != theirs.refs.get(name):
                value = self.text(path)
            elif made.refs.get(name) != ours.refs.get(name) and self._has_moved_beneath_ours(path):
                row = self._seen_by_ours.row(path)
                value = None if row is None or origin.identity_of(row) == NO_LOWER else _kept(self._ours, row)
            else:
                continue
            changed[name] = value
            yield None
        packed = reading.packed_refs(self.text(join(ours.path, b"packed-refs")) or b"")  # after the files, as reading.py does
        for name, value in changed.items():
            made.refs[name] = packed.get(name, b"") if value is None else _value(value)
        made.refs = {name: value for name, value in made.refs.items() if value}
        yield made

    def _has_moved_beneath_ours(self, path: bytes) -> bool:
        """Return whether the common state shows what the lower has got at *path* since *ours* changed or hid it.

        *theirs* shows it too, or has a copy of its own: a branch in use keeps what it has committed.
        """
        shown = reading.at(self._tree, path)
        if shown is not None and shown.has_own_data:
            return False
        mine, row, now = reading.at(self._ours, path), self._seen_by_ours.row(path), origin.now_in_lower(self._ours, path)
        if row is None and mine is None:
            return not self._seen_by_ours.was_removed(path)
        if row is None:
            return mine is not None and mine.has_own_data and now != NO_LOWER
        return origin.identity_of(row) != now


class OriginBefore:
    """The lower as it was when a branch changed it, file by file.

    Args:
        lower: The lower as it is now.
        branch: The branch's tree.
        row: Returns what was recorded about a path of the lower; None if nothing was.
    """

    def __init__(self, lower: Tree, branch: Tree, row: Callable[[bytes], OriginRow | None]) -> None:
        self._lower, self._branch, self._row = lower, branch, row

    def text(self, path: bytes) -> bytes | None:
        """See Before. Returns UNKNOWN if the content was not kept."""
        row, now = self._row(path), origin.now_in_lower(self._lower, path)
        if row is None:
            inode = reading.at(self._branch, path)
            return None if inode is None or inode.content else reading.text(self._lower, path, reading.REFS_BYTES)
        before = origin.identity_of(row)
        if before == NO_LOWER:
            return None
        if before == now:
            return reading.text(self._lower, path, reading.REFS_BYTES)
        return _kept(self._branch, row)

    def database(self, ours: GitDatabase, theirs: GitDatabase) -> Iterator[GitDatabase | None]:
        """See Before."""
        head = _value(self.text(join(ours.path, b"HEAD")) or b"")
        made = GitDatabase(ours.path, head, format=ours.format, bare=ours.bare)
        names, loose = {*ours.refs, *theirs.refs}, dict[bytes, bytes]()
        for name in sorted(names):
            value = self.text(join(ours.path, name))
            if value is not None:
                loose[name] = _value(value)
            yield None
        packed = self.text(join(ours.path, b"packed-refs"))  # after the files: git writes it before it removes them
        made.refs = (dict.fromkeys(names, UNKNOWN) if packed == UNKNOWN else reading.packed_refs(packed or b"")) | loose
        yield made


def _value(data: bytes) -> bytes:
    return data if data == UNKNOWN else reading.ref_value(data.strip())


def _kept(tree: Tree, row: OriginRow) -> bytes:
    """The lower's content when *tree* changed a file; UNKNOWN where it was not kept."""
    if not row.lower_size:
        return b""
    if not row.base:
        return UNKNOWN
    file = tree.backstore.open(row.base)
    try:
        return file.pread(row.lower_size, 0)
    finally:
        file.close()
