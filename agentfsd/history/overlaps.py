"""Which paths several branches have changed, and whether merging them would conflict there.

A path is compared only after a second branch has touched it, as a merge would decide about it: with the common state of the two,
and by the same rules. Not told of are git's own files, files that git ignores, and directories that exist in both.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Literal, NamedTuple

from agentfsd.core import inode_stat, origin, tree_diff
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree
from agentfsd.core.tree_diff import EntryPair
from agentfsd.history.overlap_decision import decide, is_directory
from agentfsd.history.touched_paths import Progress, TouchedPaths
from agentfsd.repositories import ignored_files
from agentfsd.repositories.gathering import workplace
from agentfsd.repositories.reading import at

_ALL_PAIRS = 4  # of so many branches every two are compared; of more, each with the first and with the one before it
_LOOK_AGAIN = 200  # overlaps whose files are looked at again at once, because a write to them, or to the lower's, touches no row
_MOST_MOVES = 100  # files that a branch has added or removed: to find renames among more takes too long


class Overlap(NamedTuple):
    """A path that several branches have changed.

    Attributes:
        branches: Their ids, oldest first.
        between: The two of them of which a merge would conflict there, the first such ones; empty for none.
        kind: The kind of that conflict: see PathConflict.
    """

    branches: tuple[str, ...]
    between: tuple[str, ...] = ()
    kind: str = ""


class News(NamedTuple):
    """A branch has changed a path that others have changed, too; or has done so in a way that conflicts."""

    kind: Literal["overlap", "conflict"]
    path: bytes
    branch: str
    others: tuple[str, ...]


class Overlaps:
    """The overlaps of one overlay's branches.

    Attributes:
        found: What is known of them, by path.
    """

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._touched = TouchedPaths(overlay)
        self._holders: dict[bytes, set[str]] = {}  # the branches that have touched a path
        self._above: dict[bytes, set[str]] = {}  # those that have touched something below it
        self._ignored: dict[bytes, bool] = {}
        self._seen: dict[bytes, tuple[object, ...]] = {}  # the files of an overlap, as they were compared
        self._waiting: list[bytes] = []  # overlaps to look at again, before all others are
        self.found: dict[bytes, Overlap] = {}

    @property
    def is_behind(self) -> bool:
        """Return whether something was changed since the last update()."""
        return self._touched.is_behind

    def forget(self) -> None:
        """Forget everything: the next update() reads all branches."""
        self._touched.forget()
        for known in (self._holders, self._above, self._ignored, self._seen, self.found):
            known.clear()

    def update(self) -> Generator[Progress, None, list[News]]:
        """Compare what was touched since the last time, in steps. Return what is new."""
        touched = yield from self._touched.update()
        gone, self._touched.gone = self._touched.gone, set()
        again = self._drop(gone)
        for done, (branch_id, paths) in enumerate(touched.items()):
            if branch_id in self._touched.of:  # else it was replaced meanwhile, and is read again the next time
                again |= self._enter(branch_id, paths)
            yield done, len(touched), "overlaps"
        return (yield from self._compare(again, touched))

    def look_again(self) -> Generator[Progress, None, list[News]]:
        """Compare again the overlaps whose files are not as they were: some of them, others the next time. Return what is new."""
        self._waiting = self._waiting or list(self.found)
        some, self._waiting = [path for path in self._waiting[:_LOOK_AGAIN] if path in self.found], self._waiting[_LOOK_AGAIN:]
        moved = {path for path in some if self._look(path, self.found[path].branches) != self._seen.get(path)}
        return (yield from self._compare(moved, {}))

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return (overlaps, conflicts) of each branch that has any, by its id."""
        counted = dict[str, tuple[int, int]]()
        for overlap in self.found.values():
            for branch_id in overlap.branches:
                shared, clashing = counted.get(branch_id, (0, 0))
                counted[branch_id] = shared + 1, clashing + (branch_id in overlap.between)
        return counted

    # -- what was touched

    def _drop(self, gone: set[str]) -> set[bytes]:
        """Forget branches that are gone or were replaced. Return the paths to compare again."""
        again = set[bytes]()
        for path, holders in list(self._holders.items()) if gone else ():
            if holders & gone:
                holders -= gone
                if path in self.found:
                    again.add(path)
                if not holders:
                    del self._holders[path]
        for path, holders in list(self._above.items()) if gone else ():
            holders -= gone
            if not holders:
                del self._above[path]
        return again

    def _enter(self, branch_id: str, paths: Iterable[bytes]) -> set[bytes]:
        """Enter touched paths. Return those that other branches have touched."""
        again, removed = set[bytes](), self._touched.removed.get(branch_id, set())
        has_new = False
        for path in paths:
            if _is_in_git(path):
                continue
            holders = self._holders.setdefault(path, set())
            has_new = has_new or branch_id not in holders
            holders.add(branch_id)
            if len(holders) > 1:
                again.add(path)
            if path in removed and self._above.get(path, set()) - {branch_id}:
                again.add(path)
            above = path.rpartition(b"/")[0]
            while above:
                self._above.setdefault(above, set()).add(branch_id)
                if self._holders.get(above, set()) - {branch_id}:
                    again.add(above)
                above = above.rpartition(b"/")[0]
        if has_new:  # it may be the new name of a file that is missing elsewhere
            again |= {path for path, one in self.found.items() if one.kind == "modify/delete" and branch_id in one.between}
        return again

    # -- comparing

    def _compare(self, paths: set[bytes], touched: dict[str, set[bytes]]) -> Generator[Progress, None, list[News]]:
        yield from self._find_ignored([path for path in paths if path not in self._ignored])
        news = list[News]()
        with _Comparison(self._overlay, self._touched.of) as comparison:
            for done, path in enumerate(sorted(paths)):
                known = self.found.get(path)
                candidates = self._holders.get(path, set()) | self._above.get(path, set())
                overlap = None if self._ignored.get(path) else comparison.of(path, candidates)
                if overlap is None:
                    self.found.pop(path, None)
                    self._seen.pop(path, None)
                else:
                    self.found[path], self._seen[path] = overlap, self._look(path, overlap.branches)
                    news += _news(path, known, overlap, touched)
                yield done, len(paths), "overlaps"
        return news

    def _find_ignored(self, paths: Collection[bytes]) -> Generator[Progress, None, None]:
        """Find out which paths git ignores, by the rules of the default branch."""
        if not paths:
            return
        row = self._overlay.refs.branch(self._overlay.default_id)
        with self._overlay.trees.kept(row.head) as tree:
            ignored = yield from ignored_files.find(workplace(self._overlay.parts), [tree], paths)
        self._ignored |= {path: path in ignored for path in paths}

    def _look(self, path: bytes, branches: Iterable[str]) -> tuple[object, ...]:
        """Return what tells whether files of an overlap, or the lower's, have been written."""
        seen: list[object] = [origin.now_in_lower(self._overlay.trees.of_branch(self._overlay.default_id), path)]
        for branch_id in branches:
            inode = at(self._overlay.trees.of_branch(branch_id), path) if self._overlay.refs.exists(branch_id) else None
            if inode is not None and inode.is_file:
                found = inode_stat.data_stat(inode)
                seen.append((branch_id, found.st_size, found.st_mtime_ns))
        return tuple(seen)


class _Comparison(ExitStack):
    """Compares paths of branches with the states that they have in common, which stay open until the end of the block."""

    def __init__(self, overlay: Overlay, touched: Mapping[str, Collection[bytes]]) -> None:
        super().__init__()
        self._overlay, self._touched = overlay, touched
        self._bases: dict[tuple[int, int], int] = {}
        self._trees: dict[int, Tree] = {}
        self._moves: dict[tuple[int, str], dict[bytes, EntryPair] | None] = {}

    def of(self, path: bytes, candidates: Iterable[str]) -> Overlap | None:
        """Return the overlap of a path among some branches; None if less than two of them have changed it. One atomic step."""
        branches = [branch_id for branch_id in sorted(candidates) if self._overlay.refs.exists(branch_id)]
        changes = dict[tuple[int, str], EntryPair | None]()
        sharing, between, kind = set[str](), tuple[str, ...](), ""
        for one, other in _pairs(branches):
            base = self._base(one, other)
            ours, theirs = (self._change(changes, base, branch_id, path) for branch_id in (one, other))
            if ours is None or theirs is None or (is_directory(ours) and is_directory(theirs)):
                continue
            sharing |= {one, other}
            if not kind and (kind := self._decide(path, base, (one, other), (ours, theirs))):
                between = one, other
        return Overlap(tuple(sorted(sharing)), between, kind) if sharing else None

    def _decide(self, path: bytes, base: int, sides: tuple[str, str], changes: tuple[EntryPair, EntryPair]) -> str:
        """Return the kind of conflict that merging two changes of a path would be; "" for none, or if that was not compared."""
        moves: list[dict[bytes, EntryPair]] = [{}, {}]
        for number, branch_id in enumerate(sides):
            if changes[number].new is None and changes[1 - number].new is not None:
                found = self._possible_moves(base, branch_id)
                if found is None:
                    return ""
                moves[number] = found
        trees = self._overlay.trees.of_branch(sides[0]), self._overlay.trees.of_branch(sides[1])
        return decide(path, changes, trees, (moves[0], moves[1]))

    def _possible_moves(self, base: int, branch_id: str) -> dict[bytes, EntryPair] | None:
        """Return the files that a branch has added or removed, if some may be others under a new name; None if they are many."""
        place = base, branch_id
        if place not in self._moves:
            old, new = self._trees[base], self._overlay.trees.of_branch(branch_id)
            paths = sorted(self._touched.get(branch_id, ()))
            found = dict[bytes, EntryPair]()
            for pair in tree_diff.pairs_at(old, new, paths):
                if pair is not None and (pair.old is None) != (pair.new is None):
                    found[pair.path] = pair
            has_new = any(pair.new is not None and pair.new.is_file for pair in found.values())
            self._moves[place] = {} if not has_new else found if len(found) <= _MOST_MOVES else None
        return self._moves[place]

    def _base(self, one: str, other: str) -> int:
        """Return the layer that two branches have in common, as a merge finds it."""
        rows = self._overlay.refs.branch(one), self._overlay.refs.branch(other)
        heads = rows[0].head, rows[1].head
        if heads not in self._bases:
            self._bases[heads] = self._overlay.layers.common(heads[:1], heads[1])
        return self._bases[heads]

    def _change(self, known: dict[tuple[int, str], EntryPair | None], base: int, branch_id: str, path: bytes) -> EntryPair | None:
        place = base, branch_id
        if place not in known:
            if base not in self._trees:
                self._trees[base] = self.enter_context(self._overlay.trees.kept(base))
            known[place] = _change(self._trees[base], self._overlay.trees.of_branch(branch_id), path)
        return known[place]


def _pairs(branches: list[str]) -> Iterator[tuple[str, str]]:
    for number, other in enumerate(branches):
        near = branches[:number] if len(branches) <= _ALL_PAIRS else {branches[0], branches[max(0, number - 1)]} - {other}
        yield from ((one, other) for one in near)


def _change(base: Tree, tree: Tree, path: bytes) -> EntryPair | None:
    """Return what a branch has changed at a path.

    A directory that is there counts as changed, too: the branch has touched something below it, which conflicts with a removal of
    the directory. See _decide().
    """
    pair = next((found for found in tree_diff.pairs_at(base, tree, [path]) if found is not None and found.path == path), None)
    if pair is not None and not tree_diff.only_lower_moved(pair):
        return pair
    here = at(tree, path)
    return EntryPair(path, at(base, path), here, ()) if here is not None and here.is_dir else None


def _is_in_git(path: bytes) -> bool:
    return b".git" in path and b".git" in path.split(b"/")


def _news(path: bytes, known: Overlap | None, overlap: Overlap, touched: dict[str, set[bytes]]) -> Iterator[News]:
    """Yield what is new about an overlap: who has joined it, and whether it conflicts now."""
    new = [branch_id for branch_id in overlap.branches if known is None or branch_id not in known.branches]
    if overlap.between and not (known is not None and known.between):
        who = next((branch_id for branch_id in overlap.between if path in touched.get(branch_id, ())), overlap.between[1])
        yield News("conflict", path, who, tuple(branch_id for branch_id in overlap.between if branch_id != who))
        new = [branch_id for branch_id in new if branch_id not in overlap.between]
    elif known is None:
        new = [branch_id for branch_id in new if path in touched.get(branch_id, ())][-1:] or new[-1:]
    for branch_id in new:
        yield News("overlap", path, branch_id, tuple(other for other in overlap.branches if other != branch_id))
