"""Make some paths of a branch equal to those of another state. The branch changes in one transaction or not at all."""

import errno
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from typing import NamedTuple

from agentfsd.core import tree_diff
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree, join
from agentfsd.core.tree_diff import EntryPair
from agentfsd.domain_errors import Refusal
from agentfsd.history import kept_bases, picked
from agentfsd.history.applying import Author, apply, until_taken
from agentfsd.history.listed_changes import ListedChanges, list_changes
from agentfsd.history.merge_records import MergeOutcome, Step
from agentfsd.history.paths import shown, touches
from agentfsd.history.picked import Picks
from agentfsd.repositories import reading


def restore_paths(
    overlay: Overlay, target: str, ref: str | None, wanted: tuple[bytes, ...], author: Author, picks: Picks = ()
) -> Generator[tuple[int, int, str], None, ListedChanges | None]:
    """Make some paths of a branch equal to those of *ref*, all of them or none. Return what changed; None: there was nothing
    to do.

    Args:
        overlay: The overlay.
        target: The branch.
        ref: What has the paths as they were; None for what the branch was made from.
        wanted: The paths.
        author: The process that asks.
        picks: Files of which only some lines are restored.
    """
    target_id, source = overlay.refs.branch(target).id, overlay.refs.find(ref).id if ref is not None else None
    found = yield from until_taken(
        lambda: _restore_attempt(overlay, target_id, source, wanted, author, picks), target, "restored"
    )  # fmt: skip
    return found.listed


class _Restored(NamedTuple):
    listed: ListedChanges | None


def _restore_attempt(
    overlay: Overlay, target_id: str, source: str | None, wanted: tuple[bytes, ...], author: Author, picks: Picks
) -> Generator[tuple[int, int, str], None, _Restored | None]:
    """Return what changed; None when the target was changed meanwhile."""
    trees = overlay.trees
    with ExitStack() as held:
        ours = held.enter_context(trees.frozen(target_id, readers_follow=False))
        before = trees.made_from(target_id) if source is None else trees.frozen(source, readers_follow=False)
        theirs = held.enter_context(before)
        made = dict[bytes, picked.PickedContent]()
        if picks:
            with kept_bases.made_from(trees, target_id) if source is None else nullcontext(theirs) as shown_before:
                made = picked.contents(ours, shown_before, picks)
        for path in wanted:
            if not (reading.has(ours, path) or reading.has(theirs, path)):
                raise Refusal(errno.ENOENT, "no-such-path", f"there is no {shown(path)} in either state", "name it from the root")
        outcome = MergeOutcome()
        for pair in differing(overlay, ours, theirs, wanted):
            if pair is not None and touches(wanted, pair.path):
                content, look = made.get(pair.path, (None, None))
                outcome.steps.append(Step(pair.path, pair.new, content, look))
            yield len(outcome.steps), 0, "changes"
        if not outcome.steps:
            return _Restored(None)
        restored = held.enter_context(trees.scratch(ours))
        yield from apply(restored, theirs, outcome)
        listed = yield from list_changes(overlay.parts, ours, restored, {step.path for step in outcome.steps})
        taken = overlay.branches.take_over(target_id, restored, ours.head, "restore", (), author.pid, author.command)
        return _Restored(listed) if taken else None


def differing(overlay: Overlay, ours: Tree, theirs: Tree, wanted: tuple[bytes, ...]) -> Iterator[EntryPair | None]:
    """Yield what differs, with None as tree_diff.pairs_in_steps() does.

    Over two lowers, as before and after a rebase, that is each of the *wanted* paths, and of those below, that shows something
    else, whoever changed it.
    """
    if ours.lower is theirs.lower:
        yield from tree_diff.pairs_in_steps(overlay.parts, ours, theirs, times=True)
        return
    todo = sorted(wanted, reverse=True)
    while todo:
        path = todo.pop()
        yield tree_diff.pair_at(ours, theirs, path, times=True)
        names = {name for tree in (ours, theirs) for name in _names(tree, path)}
        todo += [join(path, name) for name in sorted(names, reverse=True)]


def differing_paths(
    overlay: Overlay, ours: Tree, theirs: Tree, wanted: tuple[bytes, ...]
) -> Generator[tuple[int, int, str], None, list[bytes]]:
    """Return the paths of what differing() yields, in steps."""
    found = list[bytes]()
    for pair in differing(overlay, ours, theirs, wanted):
        found += [pair.path] if pair is not None else []
        yield len(found), 0, "comparing"
    return found


def _names(tree: Tree, path: bytes) -> Iterable[bytes]:
    inode = reading.at(tree, path)
    return tree.names(inode) if inode is not None and inode.is_dir else ()
