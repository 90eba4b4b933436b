"""How many paths each branch has changed, and what it committed with git: counted once, and again only when that may differ.

A change is a path that `diff --own` lists. A count stays valid while the branch's rows, the objects that it may write, and
what was seen of the lower are as they were. It knows no request.
"""

import logging
import time
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from agentfsd.core import tree_changes, tree_diff
from agentfsd.core.lower_stamps import LowerStamps, StampedLower
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree, join
from agentfsd.core.tree_diff import EntryPair
from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import layer_rows
from agentfsd.metadata.rows import BranchRow
from agentfsd.repositories.git_internals import GitInternals
from agentfsd.repositories.reading import at
from agentfsd.repositories.telling import Told, tell

MOST_STORED = 10_000  # stored files and names of a branch that are compared to count its changes
BUDGET_S = 2.0  # how long one answer may count, beyond the first branch that it counts

log = logging.getLogger(__name__)

_FEW_STORED = 30  # more than what git stores when it refreshes the index of a repository or two
_STEP = 200  # files of one step
_UNLOOKED = 20  # steps of a comparison between two looks whether the branch has changed
_ROUNDS = 2
_SETTLED_NS = 50_000_000  # a file's times may stay the same through two writes so close together

Progress = tuple[int, int, str]


class ChangeCount(NamedTuple):
    """How much a branch has changed.

    Attributes:
        changed: The number of paths that differ from what the branch was made from, without git's own files; or, unless
            *counted*, how many changes are stored, which may be more.
        counted: Whether the paths were counted.
        repositories: What was done with git.
    """

    changed: int
    counted: bool
    repositories: tuple[Told, ...] = ()


class _Objects(NamedTuple):
    """The contents that a branch may write in place, as they were."""

    numbers: tuple[int, ...]
    seen: int
    newest_ns: int


class _Kept(NamedTuple):
    result: ChangeCount
    writes: dict[int, int]
    lower: LowerStamps
    objects: _Objects


class ChangeCounts:
    """The counts of one overlay's branches."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def of(self, overlay: Overlay, branch_id: str, spent: "Budget") -> Generator[Progress, None, ChangeCount]:
        """Count a branch's changes in steps.

        Args:
            overlay: The overlay.
            branch_id: The branch. It may change meanwhile.
            spent: What counting may cost; shared by the branches of one answer.
        """
        row = _row(overlay, branch_id)
        if row is None:
            return ChangeCount(0, True)
        layers = _layers(overlay, row)
        if all(layer_rows.is_empty(overlay.parts.store, layer) for layer in layers):
            self._kept.pop(branch_id, None)
            return ChangeCount(0, True)
        kept = self._kept.get(branch_id)
        if kept is not None and (yield from _still_holds(overlay, kept, layers)):
            return kept.result
        if not layer_rows.hold_more(overlay.parts.store, layers, MOST_STORED) and spent.allows():
            with spent.counting():
                try:
                    for _ in range(_ROUNDS):
                        made = yield from self._count(overlay, branch_id)
                        if made is not None:
                            return made
                except OSError as exc:  # such as a renamed file whose content is gone from the real directory
                    log.debug("the changes of branch %s cannot be counted: %s", branch_id, exc)
        stored = 0
        for some in overlay.branches.stored_changes(branch_id):
            stored += some
            yield stored, 0, "counting"
        return ChangeCount(stored, False)

    def shows_lower(self, overlay: Overlay, branch_id: str) -> Generator[Progress, None, bool]:
        """Return whether a branch shows what the lower does, in all that people count: git may have refreshed its index there.

        A branch that stores more than a few files counts as changed without a look.
        """
        row = _row(overlay, branch_id)
        if row is None or layer_rows.hold_more(overlay.parts.store, _layers(overlay, row), _FEW_STORED):
            return False
        count = yield from self.of(overlay, branch_id, Budget())
        moved = any(told.ahead or told.refs or (told.behind and not _was_left(overlay, row, told)) for told in count.repositories)
        return count.counted and not count.changed and not moved

    def _count(self, overlay: Overlay, branch_id: str) -> Generator[Progress, None, ChangeCount | None]:
        """Return None if the branch changes meanwhile."""
        row = _row(overlay, branch_id)
        if row is None:
            return ChangeCount(0, True)
        begun_ns, writes = time.time_ns(), _writes(overlay, _layers(overlay, row))
        lower = StampedLower(overlay.parts.lower)
        parts = overlay.parts._replace(lower=lower)
        objects = yield from _objects(overlay, _writable(overlay, row.head))
        trees, live = overlay.trees, overlay.lowers.live  # a frozen base is no part of what a branch has changed
        with trees.made_from(branch_id, over=live) as base, trees.pinned(row.head, read_only=True, over=live) as new:
            old = Tree(parts, base.id, base.head, base.chain, read_only=True)
            steps = tree_changes.paths_in_steps(overlay.parts, old, new)
            paths = yield from _while_still(steps, lambda: _is_still(overlay, row, writes))
            if paths is None:
                return None
            shown = GitInternals(old, new).without(paths, lambda path: path)
            repositories = yield from tell(overlay.parts, old, new, paths)
        count = ChangeCount(len(shown), True, tuple(repositories))
        stamps = lower.stamps()
        settled = max(stamps.newest_ns, objects.newest_ns) < begun_ns - _SETTLED_NS
        if settled and not lower.is_torn and _is_still(overlay, row, writes):
            self._kept[branch_id] = _Kept(count, writes, stamps, objects)
        return count

    def forget_gone(self, overlay: Overlay) -> None:
        """Drop what is known of branches that are gone."""
        for branch_id in [branch_id for branch_id in self._kept if not overlay.refs.exists(branch_id)]:
            del self._kept[branch_id]


class Budget:
    """What counting may cost in one answer: the first branch may take as long as it does, others only some time more."""

    def __init__(self, seconds: float = BUDGET_S) -> None:
        self._left_s, self._has_begun = seconds, False

    def allows(self) -> bool:
        """Return whether another branch may be counted."""
        return not self._has_begun or self._left_s > 0

    def counting(self) -> "_Spending":
        """Measure the time that the block takes."""
        return _Spending(self)

    def spend(self, seconds: float) -> None:
        """Note that time was spent."""
        self._has_begun = True
        self._left_s -= seconds


class _Spending:
    def __init__(self, budget: Budget) -> None:
        self._budget, self._began = budget, time.monotonic()

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._budget.spend(time.monotonic() - self._began)


def _was_left(overlay: Overlay, row: BranchRow, told: Told) -> bool:
    """Return whether a git branch lacks commits only because the lower has got them, and the overlay's branch keeps its ref."""
    path = join(told.path, f".git/refs/heads/{told.branch}".encode())
    with overlay.trees.pinned(row.head, read_only=True, over=overlay.lowers.live) as tree:
        old, new, within = at(overlay.trees.side(None), path), at(tree, path), at(tree, path.rpartition(b"/")[0])
        return tree_diff.only_lower_moved(EntryPair(path, old, new, ("content",), within))


def _row(overlay: Overlay, branch_id: str) -> BranchRow | None:
    return overlay.refs.branch(branch_id) if overlay.refs.exists(branch_id) else None


def _layers(overlay: Overlay, row: BranchRow) -> set[int]:
    """Return the layers in which the branch differs from what it was made from."""
    store = overlay.parts.store
    return {*layer_rows.chain(store, row.head)} ^ {*layer_rows.chain(store, row.base_layer)}


def _writes(overlay: Overlay, layers: set[int]) -> dict[int, int]:
    return {layer: overlay.parts.store.writes[layer] for layer in layers}


def _is_still(overlay: Overlay, row: BranchRow, writes: dict[int, int]) -> bool:
    now = _row(overlay, row.id)
    return now is not None and now.head == row.head and _writes(overlay, set(writes)) == writes


def _while_still(
    steps: Generator[Progress, None, list[bytes]], is_still: Callable[[], bool]
) -> Generator[Progress, None, list[bytes] | None]:
    """Return None if something has changed meanwhile."""
    try:
        while True:
            for _ in range(_UNLOOKED):
                at = next(steps)
            yield at
            if not is_still():
                return None
    except StopIteration as end:
        found: list[bytes] = end.value
        return found
    finally:
        steps.close()


def _writable(overlay: Overlay, layer: int) -> list[int]:
    """Return the objects that a branch with this head layer may write in place."""
    return [number for _, number in layer_rows.contents_of(overlay.parts.store, layer)]


def _objects(overlay: Overlay, numbers: Iterable[int]) -> Generator[Progress, None, _Objects]:
    """Look at the size and times of objects."""
    known, stamps, newest_ns = tuple(numbers), list[tuple[int, ...]](), 0
    for done, number in enumerate(known):
        try:
            found = overlay.backstore.stat(number)
        except DamagedContent:  # freed since, or lost
            stamps.append((number,))
        else:
            stamps.append((number, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
            newest_ns = max(newest_ns, found.st_ctime_ns)
        if not done % _STEP:
            yield done, len(known), "counting"
    return _Objects(known, hash(tuple(stamps)), newest_ns)


def _still_holds(overlay: Overlay, kept: _Kept, layers: set[int]) -> Generator[Progress, None, bool]:
    if kept.writes != _writes(overlay, layers):
        return False
    objects = yield from _objects(overlay, kept.objects.numbers)
    return objects.seen == kept.objects.seen and (yield from kept.lower.are_of(overlay.parts.lower))
