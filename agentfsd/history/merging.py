"""Merge branches: from names to a branch that holds the result. The target changes in one transaction or not at all."""

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from agentfsd.core import copyup, origin, tree_diff
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree
from agentfsd.core.tree_diff import EntryPair
from agentfsd.domain_errors import invalid
from agentfsd.history import kept_bases, other_lower, picked
from agentfsd.history.applying import Author, apply, refresh_indexes, until_taken
from agentfsd.history.known_lower import KnownLower
from agentfsd.history.leaving import Leaving
from agentfsd.history.listed_changes import ListedChanges, list_changes
from agentfsd.history.merge import merge, moved_refs
from agentfsd.history.merge_records import LeftOpen, MergeDecision, MergeOutcome, PathConflict, Rules
from agentfsd.history.picked import Picks
from agentfsd.history.source_changes import SourceChanges
from agentfsd.history.target_changes import TargetSince
from agentfsd.metadata.rows import BranchRow
from agentfsd.repositories import git_database_paths
from agentfsd.repositories.gathering import Workshops
from agentfsd.repositories.telling import tell
from agentfsd.types import Lower


@dataclass(slots=True)
class Merged:
    """The result of a merge of branches.

    Attributes:
        how: merged, fast-forward or nothing.
        listed: What differs in the target now.
        merged: The names of the sources that were merged.
        left: The names of the sources that had conflicts.
        undecided: The conflicts that are left in the target, with the name of the source.
        sources: The sources that changed a path, by path.
        decided: As in MergeOutcome, with the name of the source.
        marked: Likewise.
    """

    how: str = "nothing"
    listed: ListedChanges = field(default_factory=lambda: ListedChanges([], []))
    conflicts: list[PathConflict] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # of histories of git
    merged: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    undecided: list[tuple[str, LeftOpen]] = field(default_factory=list)
    sources: dict[bytes, list[str]] = field(default_factory=dict)
    decided: list[tuple[str, MergeDecision]] = field(default_factory=list)
    marked: list[tuple[str, bytes]] = field(default_factory=list)

    def take(self, source: str, paths: Iterable[bytes]) -> None:
        """Note that *source* changed *paths* of the target."""
        self.merged.append(source)
        for path in dict.fromkeys(paths):
            self.sources.setdefault(path, []).append(source)

    def add(self, source: str, outcome: MergeOutcome) -> None:
        """Note that *source* was merged."""
        self.take(source, (step.path for step in outcome.steps))
        self.said += outcome.said
        self.decided += [(source, decision) for decision in outcome.decided]
        self.marked += [(source, path) for path in outcome.marked]

    def leave(self, source: str, target: str, conflicts: Iterable[PathConflict]) -> None:
        """Note that *source* was not merged."""
        self.left.append(source)
        for conflict in conflicts:
            against = tuple(self.sources.get(conflict.path, ())) or (target,)
            self.conflicts.append(replace(conflict, source=source, against=against))


Objects = Callable[[Tree, Tree, Sequence[bytes]], list[PathConflict]]


def _nobody_objects(_: Tree, __: Tree, ___: Sequence[bytes]) -> list[PathConflict]:
    return []


Progress = Generator[tuple[int, int, str], None, Merged]


def merge_branches(
    overlay: Overlay, sources: Sequence[str], target: str, rules: Rules, author: Author, *, dry_run: bool = False,
    wanted: tuple[bytes, ...] = (), picks: Picks = (), leave_conflicting: bool = False, objects: Objects = _nobody_objects,
) -> Progress:  # fmt: skip
    """Merge each source, in order, into the branch *target*.

    If there are conflicts, or with *dry_run*, the target does not change.

    Args:
        overlay: The overlay.
        sources: Refs of the branches and snapshots to merge.
        target: The branch to merge into.
        rules: How to merge.
        author: The process that asks.
        dry_run: Change nothing.
        wanted: The only paths to merge; empty for all. A later merge does not start from such a merge.
        picks: Files of which only some lines are merged. There is one source then, a branch.
        leave_conflicting: Leave out sources with conflicts, and merge the others.
        objects: Given the old tree, the new tree and the changed paths, return further conflicts.

    Raises:
        Refusal: ``invalid`` if a source is the target or is named twice; ``target-moves`` if the target changes too fast.
    """
    into = overlay.refs.branch(target)
    target_id, ids = into.id, [overlay.refs.find(source).id for source in sources]
    if target_id in ids:
        raise invalid(f"{into.name!r} cannot be merged into itself", "name another branch to merge into")
    if len(set(ids)) < len(ids):
        raise invalid("a branch is named twice", "name each branch once")
    if picks and not (len(ids) == 1 and isinstance(overlay.refs.find(ids[0]), BranchRow)):
        raise invalid("lines can be picked from one branch only", "name one branch to merge")
    overlay.unfinished.refuse(overlay.refs.branch(target_id), "merged into")
    for source in ids:
        overlay.unfinished.refuse(overlay.refs.find(source), "merged")
    return (yield from until_taken(
        lambda: _attempt(overlay, ids, target_id, rules, author, dry_run, wanted, picks, leave_conflicting, objects),
        target, "merged into",
    ))  # fmt: skip


def _attempt(
    overlay: Overlay,
    ids: list[str],
    target_id: str,
    rules: Rules,
    author: Author,
    dry_run: bool,
    wanted: tuple[bytes, ...],
    picks: Picks,
    leave_conflicting: bool,
    objects: Objects,
) -> Generator[tuple[int, int, str], None, Merged | None]:
    """Try the merge once. Return None if the target has changed meanwhile."""
    result, target, began_ns = Merged(), overlay.refs.branch(target_id).name, copyup.now_ns()
    with ExitStack() as held:
        ours = held.enter_context(overlay.trees.frozen(target_id, readers_follow=False))
        workshops = held.enter_context(Workshops(overlay.parts))
        seen, now, merged, unfinished = ours.head, ours, list[tuple[str, int]](), set[str]()
        yield from other_lower.prepare(overlay, ids, ours.lower)
        since, sources = TargetSince(overlay.trees, held), _Sources(overlay, ids, held, wanted, picks, ours.lower)
        leaving = Leaving(overlay, held, target)
        for source in ids:
            name, theirs = overlay.refs.find(source).name, sources.tree(source)
            base_layer = sources.base_layer(source, [seen, *(layer for _, layer in merged)])
            known = base_layer == theirs.head
            if known and (wanted or not (yield from _has_moved_refs(overlay, since, base_layer, now, theirs, rules))):
                continue
            fits = not known and base_layer == seen and now is ours and not wanted and rules.way != "beside"
            fits = fits and overlay.trees.share_lower(ours.head, theirs.head)
            if fits and not (yield from _needs_steps(overlay, ours, theirs)):
                if (yield from _fast_forward(overlay, ours, theirs, (target, name), objects, result)):
                    now = theirs
                    since.forget()
                    merged.append((source, theirs.head))
                continue
            base = since.base(base_layer, now)
            changes = sources.changes(source, base.base)
            workshops.meanwhile = sources.ahead(source, base_layer, base.base, [seen, *(layer for _, layer in merged)])
            outcome = yield from merge(workshops, overlay.parts, base, changes, rules, wanted, (target, name))
            if known and not (outcome.steps or outcome.conflicts or outcome.left):
                workshops.forget_merge()
                continue
            result.how = "merged"
            if conflicts := leaving.objects(outcome) or outcome.conflicts or objects(now, theirs, outcome.paths):
                result.leave(name, target, conflicts)
                workshops.forget_merge()
                continue
            before = now
            if now.read_only or outcome.left:
                now = held.enter_context(overlay.trees.scratch(now))
            yield from apply(now, theirs, outcome, KnownLower(base.base, theirs, began_ns))
            yield from refresh_indexes(now, outcome)
            whole = not (wanted or known or rules.way == "beside")
            result.undecided += yield from leaving.add((source, name), (base.base, before, theirs), now, outcome, whole=whole)
            yield from since.follow(now, outcome.steps)
            result.add(name, outcome)
            unfinished |= {source} if outcome.unfinished or outcome.left or known else set()
            merged.append((source, theirs.head))
        if result.conflicts and not leave_conflicting:
            result.merged, result.left = [], result.merged + result.left
            return result
        result.listed = yield from list_changes(overlay.parts, ours, now, result.sources)
        if not merged or dry_run:
            return result
        # Nothing records a merge that git has yet to finish: after `git merge --abort` the target lacks the source's commits.
        merged = [] if wanted or rules.way == "beside" else [one for one in merged if one[0] not in unfinished]
        also = leaving.storing(now.head, seen)
        taken = overlay.branches.take_over(target_id, now, seen, "merge", merged, author.pid, author.command, also)
        return result if taken else None


class _Sources:
    """The trees of the sources, in order. What the next one has changed can be read while git works on the one before.

    All are shown over the target's lower. A source with another one is merged as if the lower had changed since it was made.
    """

    def __init__(
        self, overlay: Overlay, ids: Sequence[str], held: ExitStack, wanted: tuple[bytes, ...], picks: Picks, over: Lower
    ) -> None:  # fmt: skip
        self._overlay, self._held, self._wanted, self._picks, self._over = overlay, held, wanted, picks, over
        self._next = dict(itertools.pairwise(ids))
        self._trees: dict[str, Tree] = {}
        self._ahead: SourceChanges | None = None

    def tree(self, source: str) -> Tree:
        """Return the tree of a source, which stays as it is until the end."""
        if source not in self._trees:
            trees = self._overlay.trees
            tree = self._held.enter_context(trees.frozen(source, over=self._over))
            if self._picks:
                with kept_bases.made_from(trees, source, over=self._over) as old:
                    made = picked.contents(old, tree, self._picks)
                tree = self._held.enter_context(picked.applied(trees, tree, made))
            self._trees[source] = tree
        return self._trees[source]

    def base_layer(self, source: str, merged: list[int]) -> int:
        """Return the layer that is the base of the merge. From what a source was made from, the picked lines alone differ."""
        if self._picks:
            return self._overlay.refs.branch(source).base_layer
        return self._overlay.layers.common(merged, self.tree(source).head)

    def changes(self, source: str, base: Tree) -> SourceChanges:
        """Return what a source has changed since *base*. Some or all of it may have been read already."""
        theirs, ahead = self.tree(source), self._ahead
        if ahead is not None and ahead.base is base and ahead.theirs is theirs:
            return ahead
        return SourceChanges(self._overlay.parts, base, theirs, self._wanted)

    def ahead(self, source: str, base_layer: int, base: Tree, merged: list[int]) -> Iterator[object]:
        """Return steps that read what the source after *source* has changed; none unless it starts from the same base."""
        after = self._next.get(source)
        head = self.tree(after).head if after is not None else base_layer
        if after is None or head == base_layer or self._overlay.layers.common(merged, head) != base_layer:
            return iter(())
        self._ahead = self.changes(after, base)
        return self._ahead.steps


def _fast_forward(
    overlay: Overlay, ours: Tree, theirs: Tree, names: tuple[str, str], objects: Objects, result: Merged
) -> Generator[tuple[int, int, str], None, bool]:
    """Enter into *result* what a fast-forward to *theirs* changes. Return False if there are objections."""
    target, name = names
    changes = yield from overlay.comparison.diff_in_steps(ours, theirs)
    result.how, paths = "fast-forward", [change.path for change in changes]
    if conflicts := objects(ours, theirs, paths):
        result.leave(name, target, conflicts)
        return False
    result.take(name, paths)
    told = yield from tell(overlay.parts, ours, theirs, paths)
    result.said += itertools.chain.from_iterable(one.merged_from(name) for one in told)
    return True


def _has_moved_refs(
    overlay: Overlay, since: TargetSince, base_layer: int, target: Tree, theirs: Tree, rules: Rules
) -> Generator[tuple[int, int, str], None, bool]:
    """Return whether a source that shows the lower shows refs that the lower has got since the target changed them."""
    if rules.way == "beside" or not overlay.layers.is_bare(theirs.head):
        return False
    changes = yield from since.base(base_layer, target).read()
    return bool(moved_refs(theirs, changes))


def _needs_steps(overlay: Overlay, ours: Tree, theirs: Tree) -> Generator[tuple[int, int, str], None, bool]:
    """Return whether a fast-forward to *theirs* would differ from a merge of the two.

    That is so if a fast-forward would restore old content of the lower in files that nobody changed, or beside lines that
    *theirs* changed, hide what the lower has got in a directory that *theirs* made, or refs that the lower has got, or take over
    the checked-out branch or an unfinished git operation of *theirs*.
    """
    unseen: list[bytes] = []
    for pair in tree_diff.pairs_in_steps(overlay.parts, ours, theirs, unseen=unseen):
        if pair is not None and git_database_paths.is_of_one_checkout(pair.path):
            return True
        if unseen or (pair is not None and (pair.unseen or tree_diff.only_lower_moved(pair) or kept_bases.find(pair))):
            return True
        if pair is not None and _is_moved_ref(theirs, pair):
            return True
        yield 0, 0, "changes"
    return bool(unseen)


def _is_moved_ref(theirs: Tree, pair: EntryPair) -> bool:
    """Return whether the lower has got commits at a ref since *theirs* changed it."""
    if pair.within is None or not git_database_paths.may_be_ref(pair.path):
        return False
    return origin.has_moved(theirs, pair.within, pair.path.rpartition(b"/")[2], pair.new)
