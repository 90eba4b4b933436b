"""Finds what a file of a branch was made from if the lower has changed since. The base of a merge shows the lower as it is now.

The content that the lower had then is kept with its record: see core/origin.py.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from agentfsd.core import origin
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.seen_names import SeenNames
from agentfsd.core.transplant import Transplant
from agentfsd.core.tree import Tree, join
from agentfsd.core.tree_diff import EntryPair
from agentfsd.history.paths import touches
from agentfsd.metadata import origin_rows
from agentfsd.metadata.rows import OriginRow
from agentfsd.repositories.reading import at
from agentfsd.types import Lower


class KeptBase:
    """The content of a file of the lower, as a branch has changed it first. *number*: of its object."""

    def __init__(self, tree: Tree, number: int) -> None:
        self._tree, self._number = tree, number

    def read(self) -> bytes:
        """Return the content: at most origin.BASE_BYTES bytes."""
        file = self._tree.backstore.open(self._number)
        try:
            return file.pread(origin.BASE_BYTES, 0)
        finally:
            file.close()


def find(pair: EntryPair) -> KeptBase | None:
    """Return what the new file of *pair* was made from, if the old one shows what the lower has become since.

    None if the lower is as it was, or its content is not kept: the file was large or empty; or if the file has other names, or
    lies in a directory that was renamed.
    """
    old, new, within = pair.old, pair.new, pair.within
    if old is None or new is None or within is None or not (old.is_file and new.is_file):
        return None
    if old.has_own_data or not new.has_own_data or not within.id:
        return None
    name = pair.path.rpartition(b"/")[2]
    if within.lower_path is None or join(within.lower_path, name) != old.lower_path or new.nlink > 1 or new.linked:
        return None
    row = origin_rows.find(within.tree.store, within.id, name, within.tree.chain)
    if row is None or not row.base or origin.identity_of(row) == old.lower:
        return None
    return KeptBase(within.tree, row.base)


@contextmanager
def made_from(
    trees: OpenTrees, branch: str, wanted: tuple[bytes, ...] = (), over: Lower | None = None
) -> Iterator[Tree]:  # fmt: skip
    """Open what a branch was made from, as a person looks at what it changed.

    A file that the branch has changed is as it was then, if the lower has changed it since: what others did is no change of the
    branch. Everything else is as trees.made_from() shows it.

    Args:
        wanted: The only paths that are looked at; empty for all.
        over: What to show it over; None for the real directory: what a commit has brought there is no change any more.
    """
    with ExitStack() as held:
        base = held.enter_context(trees.made_from(branch, over=over or trees.parts.lower))
        moved = _moved(base, trees.of(branch), wanted)
        if moved:
            made = held.enter_context(trees.scratch(base))
            transplant = Transplant(made)
            for path, kept in moved.items():
                transplant.take(path, base.walk(path), content=kept.read())
            base = made
        yield base


def _moved(base: Tree, tree: Tree, wanted: tuple[bytes, ...]) -> dict[bytes, KeptBase]:
    found = dict[bytes, KeptBase]()
    for path, row in _rows(tree, wanted).items():
        if not row.base or not touches(wanted, path) or (old := at(base, path)) is None or old.lower == origin.identity_of(row):
            continue
        kept = find(EntryPair(path, old, at(tree, path), ("content",), at(tree, path.rpartition(b"/")[0])))
        if kept is not None:
            found[path] = kept
    return found


def _rows(tree: Tree, wanted: tuple[bytes, ...]) -> dict[bytes, OriginRow]:
    """Return what SeenNames.rows() does, or with *wanted* files only the rows of these."""
    found = dict[bytes, OriginRow]()
    for path in wanted:
        inode, within = at(tree, path), at(tree, path.rpartition(b"/")[0])
        if inode is not None and inode.is_dir:
            break
        row = origin_rows.find(tree.store, within.id, path.rpartition(b"/")[2], tree.chain) if within is not None else None
        if row is not None:
            found[path] = row
    else:
        return found if wanted else SeenNames(tree).rows()
    return SeenNames(tree).rows()
