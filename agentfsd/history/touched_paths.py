"""Which paths each branch may have changed, kept up to date from the rows that are written.

A path counts as touched as soon as a row about it was written, also if the branch shows there what it showed before: whoever
needs to know compares. So a write costs one entry in a set, and a branch is read as a whole only after its state was replaced.
"""

from collections.abc import Generator, Iterable, Iterator

from agentfsd.core import hard_links
from agentfsd.core.inode import ROOT_ID
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree, join
from agentfsd.metadata import layer_rows
from agentfsd.metadata.rows import BranchRow, Touch, is_whiteout

Progress = tuple[int, int, str]

_STEP = 100  # rows


class TouchedPaths:
    """The touched paths of one overlay's branches.

    Attributes:
        of: The paths of each branch, by its id.
        removed: Those of them of which a name was removed, likewise.
        gone: Branches that were deleted or replaced. Who follows the paths empties it.
    """

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self.of: dict[str, set[bytes]] = {}
        self.removed: dict[str, set[bytes]] = {}
        self.gone: set[str] = set()
        self._heads: dict[int, str] = {}  # the branch that writes to a layer, or did so lately
        overlay.store.take_touched()
        overlay.events.on_replaced.append(lambda tree: self._forget(tree.id))

    @property
    def is_behind(self) -> bool:
        """Return whether there is something to read."""
        return bool(self._overlay.store.touched or self.gone) or self._overlay.branches.ids() != sorted(self.of)

    def update(self) -> Generator[Progress, None, dict[str, set[bytes]]]:
        """Read what was written since the last time, in steps.

        Returns:
            What was touched since then, by branch, paths that were known among it. A branch that is read as a whole is there with
            all of its paths; one that has gone is missing in ``of``.
        """
        known, touched = set(self._overlay.branches.ids()), self._overlay.store.take_touched()
        for branch_id in self.of.keys() - known:
            self._forget(branch_id)
        self._note_heads(known)
        found = dict[str, set[bytes]]()
        for branch_id in known - self.of.keys():
            if not self._overlay.refs.exists(branch_id):
                continue  # it was discarded meanwhile
            self.of[branch_id], self.removed[branch_id] = set(), set()
            yield from self._read(branch_id, self._stored(branch_id), found)
        by_branch = dict[str, list[Touch]]()
        for touch in touched:
            branch_id = self._heads.get(touch[0], "")
            if branch_id in self.of:
                by_branch.setdefault(branch_id, []).append(touch)
        for branch_id, touches in by_branch.items():
            yield from self._read(branch_id, iter([touches]), found)
        return found

    def forget(self) -> None:
        """Forget all branches: the next update() reads them as a whole."""
        self.of.clear()
        self.removed.clear()
        self.gone.clear()

    def _forget(self, branch_id: str) -> None:
        self.of.pop(branch_id, None)
        self.removed.pop(branch_id, None)
        self.gone.add(branch_id)

    def _note_heads(self, known: set[str]) -> None:
        """Note which branch writes to which layer. A layer that was sealed meanwhile may have been written to before."""
        if len(self._heads) > 4 * len(known) + 64:
            self._heads.clear()
        for branch_id in known:
            row = self._overlay.refs.branch(branch_id)
            if row.head not in self._heads:
                self._heads.update(dict.fromkeys(self._own_layers(row), branch_id))

    def _own_layers(self, row: BranchRow) -> list[int]:
        """Return the layers in which a branch differs from what it was made from, older ones first."""
        store = self._overlay.store
        return sorted({*layer_rows.chain(store, row.head)} ^ {*layer_rows.chain(store, row.base_layer)})

    def _stored(self, branch_id: str) -> Iterator[list[Touch]]:
        """Yield all that a branch stores, as if it were written now."""
        store = self._overlay.store
        for layer in self._own_layers(self._overlay.refs.branch(branch_id)):
            for names in layer_rows.names_in(store, layer):
                yield [(layer, *name) for name in names]
            for inodes in layer_rows.files_in(store, layer):
                yield [(layer, number, b"", 0) for number in inodes]

    def _read(self, branch_id: str, some: Iterable[list[Touch]], found: dict[str, set[bytes]]) -> Generator[Progress, None, None]:
        """Enter the paths of rows into what is known of a branch, and into *found*."""
        places, named = dict[int, list[bytes]](), set[int]()
        for touches in some:
            touches.sort(key=lambda touch: not touch[2])  # names first: they tell the paths of the files, too
            for done, (_, number, name, child) in enumerate(touches):
                if branch_id not in self.of or not self._overlay.refs.exists(branch_id):
                    return  # it was replaced or deleted meanwhile
                if not done % _STEP:
                    yield done, len(touches), "changed paths"
                if not name and number in named:
                    continue
                named.add(child)
                tree = self._overlay.trees.of_branch(branch_id) if number not in places else None
                if tree is not None:
                    places[number] = _paths(tree, number)
                paths = [join(place, name) for place in places[number]] if name else places[number]
                found.setdefault(branch_id, set()).update(paths)
                self.of[branch_id].update(paths)
                if name and is_whiteout(child):
                    self.removed[branch_id].update(paths)


def _paths(tree: Tree, number: int) -> list[bytes]:
    """Return the paths of a stored inode: none if it is gone, or only the lower knows its names."""
    if number == ROOT_ID:
        return [b""]
    found = list[bytes]()
    for path in hard_links.stored(tree, number):
        try:
            if tree.walk(path).id == number:
                found.append(path)
        except OSError:  # a newer row hides it
            continue
    return found
