"""Puts another frozen base beneath a branch: a three-way merge of what the branch has changed and what the base has."""

import errno
from collections.abc import Generator
from contextlib import ExitStack
from typing import Literal

from agentfsd.core import frozen_layers, tree_diff
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Parts, Tree
from agentfsd.core.tree_diff import EntryPair
from agentfsd.domain_errors import Refusal
from agentfsd.history import committed_since, other_lower
from agentfsd.history.applying import Author, apply, refresh_indexes, until_taken
from agentfsd.history.known_lower import KnownLower
from agentfsd.history.listed_changes import list_changes
from agentfsd.history.merge import merge
from agentfsd.history.merge_records import Rules
from agentfsd.history.merging import Merged, Objects
from agentfsd.history.paths import directories_above
from agentfsd.history.source_changes import Progress, SourceChanges
from agentfsd.history.target_changes import TargetChanges
from agentfsd.repositories.gathering import Workshops

BASE = "the new base"

Side = Literal["", "branch", "base"]  # which one wins where both have changed the same

_AS_MERGED: dict[Side, Literal["", "ours", "theirs"]] = {"": "", "branch": "theirs", "base": "ours"}


def check(overlay: Overlay, ref: str) -> None:
    """Refuse if a branch has no frozen base, or an unfinished merge. Refusal ``not-frozen``, ``merge-unfinished``."""
    row = overlay.refs.branch(ref)
    if not overlay.lowers.name(row.head):
        raise Refusal(
            errno.EINVAL, "not-frozen", f"branch {row.name!r} follows the real directory: it has no base to renew",
            f"`agentfsd branch create NAME --frozen --from {row.name}` makes a branch with a frozen base",
        )  # fmt: skip
    overlay.unfinished.refuse(row, "rebased")


def rebase(
    overlay: Overlay, ref: str, base: str, side: Side, author: Author, objects: Objects, *, markers: bool = False,
    dry_run: bool = False,
) -> Generator[Progress, None, Merged]:  # fmt: skip
    """Put a frozen base beneath a branch. If there are conflicts, or with *dry_run*, the branch does not change.

    Args:
        overlay: The overlay.
        ref: The branch; see check().
        base: Id of the base.
        side: Which one wins where both have changed the same.
        author: The process that asks.
        objects: As for merge_branches().
        markers: Write conflicts of text into the files, between markers.
        dry_run: Change nothing.

    Raises:
        Refusal: ``target-moves`` if the branch changes too fast.
    """
    check(overlay, ref)  # again: the base was made meanwhile
    branch, rules = overlay.refs.branch(ref), Rules(_AS_MERGED[side], markers=markers)
    return (
        yield from until_taken(
            lambda: _attempt(overlay, branch.id, base, rules, author, objects, dry_run), branch.name, "rebased"
        )
    )


def _attempt(
    overlay: Overlay, branch_id: str, base: str, rules: Rules, author: Author, objects: Objects, dry_run: bool
) -> Generator[Progress, None, Merged | None]:
    """Try once. Return None if the branch has changed meanwhile."""
    result, parts, name = Merged(), overlay.parts, overlay.refs.branch(branch_id).name
    with ExitStack() as held:
        theirs = held.enter_context(overlay.trees.frozen(branch_id, readers_follow=False))
        before = held.enter_context(overlay.trees.made_from(branch_id))
        with overlay.store.transaction():
            beneath = overlay.lowers.beneath(overlay.refs.branch(branch_id).base_layer)
            bottom = frozen_layers.add(overlay.trees, overlay.lowers, beneath, base)
        ours = held.enter_context(overlay.trees.scratch(held.enter_context(overlay.trees.pinned(bottom, read_only=True))))
        yield from other_lower.take_what_went(ours, before)
        before = held.enter_context(overlay.trees.scratch(before))
        yield from committed_since.add(before, theirs, ours)
        workshops, source = held.enter_context(Workshops(parts)), SourceChanges(parts, before, theirs)
        outcome = yield from merge(workshops, parts, _BaseChanges(parts, source, ours), source, rules, (), (BASE, name))
        if conflicts := outcome.conflicts or objects(ours, theirs, outcome.paths):
            result.leave(name, BASE, conflicts)
            return result
        now = held.enter_context(overlay.trees.scratch(ours))
        yield from apply(now, theirs, outcome, _Seen())
        yield from refresh_indexes(now, outcome)
        result.how = "merged"
        result.add(name, outcome)
        result.listed = yield from list_changes(parts, ours, now, result.sources)
        if dry_run:
            return result
        is_done = overlay.branches.rebase(branch_id, now, theirs.head, ours.head, author.pid, author.command)
        return result if is_done else None


class _BaseChanges(TargetChanges):
    """What has changed from one base to another at the paths that a branch has changed, and above these."""

    def __init__(self, parts: Parts, branch: SourceChanges, ours: Tree) -> None:
        super().__init__(parts, branch.base, ours)
        self._branch = branch

    def read(self) -> Generator[Progress, None, dict[bytes, EntryPair]]:
        """Return the changes by path, each directory before its content."""
        yield from self._branch.steps
        changed = self._branch.found
        paths = changed.keys() | {above for path in changed for above in directories_above(path)}
        found = dict[bytes, EntryPair]()
        for path in sorted(paths, key=lambda path: path.split(b"/")):
            pair = tree_diff.pair_at(self.base, self.ours, path)
            if pair is not None:
                found[path] = pair
            yield len(found), len(paths), "changes of the base"
        return found


class _Seen(KnownLower):
    """The merge has seen all that the new base has: a commit compares the real directory with that."""

    def __init__(self) -> None:
        pass

    def at(self, tree: Tree, path: bytes) -> bool:
        return True

    def is_unchanged(self, tree: Tree, path: bytes) -> bool:
        return True
