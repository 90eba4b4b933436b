"""Settle, finish or take back a merge that left conflicts in its target. The branch changes in one transaction or not at all."""

import errno
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, NamedTuple

from agentfsd.core import inode_stat, tree_diff
from agentfsd.core.left_conflicts import LeftConflict, LeftSource
from agentfsd.core.overlay import Overlay
from agentfsd.core.transplant import attributes_of
from agentfsd.core.tree import Inode, Tree
from agentfsd.core.unfinished_merges import UnfinishedMerge
from agentfsd.core.whole_contents import content_of
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.history import seen_version, text_merge
from agentfsd.history.applying import Author, apply, until_taken
from agentfsd.history.merge_records import MergeOutcome, Step
from agentfsd.history.objects import Objects
from agentfsd.history.paths import directories_above, is_below, shown
from agentfsd.metadata.transaction import Transaction
from agentfsd.repositories import decided_in_index, reading
from agentfsd.repositories.gathering import workplace

How = Literal["ours", "theirs", "edited", "marked"]
Steps = Generator[tuple[int, int, str], None, "MergeState"]

_SEARCHED_BYTES = 4 * text_merge.TEXT_BYTES  # more than a merge of texts with markers has: a larger file is not read for them


class EditedFile(NamedTuple):
    """The new content of a file; None: it stays. ``seen``: the version that the person saw, see seen_version."""

    content: bytes | None
    seen: str


class ConflictState(NamedTuple):
    """A conflict and what became of it.

    Attributes:
        conflict: As it was left.
        source: The source that has the other change.
        how: ours, theirs, edited or marked; "" while it is undecided.
    """

    conflict: LeftConflict
    source: LeftSource
    how: str


@dataclass(frozen=True, slots=True)
class MergeState:
    """What is known of the unfinished merge of a branch.

    Attributes:
        merge: The merge; None if the branch is in none.
        conflicts: All its conflicts, in the order of their paths.
        under_way: The git databases in which git has a merge to finish.
        resolved: The paths that were just decided.
    """

    merge: UnfinishedMerge | None
    conflicts: list[ConflictState]
    under_way: list[bytes]
    resolved: tuple[bytes, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the sources."""
        return [source.name for source in self.merge.record.sources] if self.merge is not None else []

    @property
    def undecided(self) -> list[ConflictState]:
        """The conflicts that are still to be decided."""
        return [state for state in self.conflicts if not state.how]


def state_of(tree: Tree, merge: UnfinishedMerge | None) -> MergeState:
    """Tell what is decided in *tree*, the state of a branch."""
    if merge is None:
        return MergeState(None, [], [])
    record, states, unmerged = merge.record, list[ConflictState](), dict[bytes, set[bytes]]()
    for conflict in sorted(record.conflicts, key=lambda one: one.path):
        source, database = record.sources[conflict.source], conflict.database
        if database is not None and database not in unmerged:
            unmerged[database] = decided_in_index.unmerged(tree, database)
        in_index = database is not None and _in_work_tree(conflict) in unmerged[database]
        states.append(ConflictState(conflict, source, _decision(tree, merge, conflict, source, in_index=in_index)))
    databases = dict.fromkeys(database for source in record.sources for database, _ in source.commits)
    return MergeState(merge, states, [database for database in databases if decided_in_index.is_merging(tree, database)])


def state_of_branch(overlay: Overlay, ref: str) -> MergeState:
    """Tell what is decided in a branch, or was in a snapshot."""
    merge = overlay.unfinished.of(overlay.refs.find(ref))
    return state_of(overlay.trees.of(ref), merge) if merge is not None else MergeState(None, [], [])


def _in_work_tree(conflict: LeftConflict) -> bytes:
    return conflict.path[len(conflict.work_tree) + 1 if conflict.work_tree else 0 :]


def _decision(
    tree: Tree, merge: UnfinishedMerge, conflict: LeftConflict, source: LeftSource, *, in_index: bool
) -> str:  # fmt: skip
    """Return how a conflict was decided. Without a word of anybody, a text is when its markers are gone, and a path that git
    knows as a conflict when git's index has it no longer as one.
    """
    how = merge.decisions.get(conflict.path, "")
    if how == "marked":
        return how
    if conflict.marked:
        if _has_markers(reading.at(tree, conflict.path), (merge.record.target, source.name)):
            return ""
        return how or "edited"
    return how or ("edited" if conflict.database is not None and not in_index else "")


def _has_markers(inode: Inode | None, names: tuple[str, str]) -> bool:
    """Return whether a file has conflict markers, also if it is no text any more, or may have: it is too large to tell."""
    if inode is None or not inode.is_file:
        return False
    return _size(inode) > _SEARCHED_BYTES or text_merge.has_markers(content_of(inode), names)


def _size(inode: Inode) -> int:
    return inode_stat.attributes(inode).size


def _text(inode: Inode | None) -> bytes | None:
    if inode is None or not inode.is_file or _size(inode) > text_merge.TEXT_BYTES:
        return None
    content = content_of(inode)
    return content if text_merge.is_text(content) else None


def no_merge(name: str) -> Refusal:
    """Return the refusal for a branch that is in no merge."""
    return Refusal(
        errno.ENOENT, "no-unfinished-merge", f"branch {name!r} has no unfinished merge",
        "`agentfsd merge --conflicts` leaves conflicts in a branch",
    )  # fmt: skip


def _found(overlay: Overlay, tree: Tree, name: str) -> UnfinishedMerge:
    merge = overlay.unfinished.find(tree.head)
    if merge is None:
        raise no_merge(name)
    return merge


# -- decide


def resolve(
    overlay: Overlay, target: str, wanted: Sequence[bytes], how: How, author: Author, edited: EditedFile | None = None
) -> Steps:  # fmt: skip
    """Decide conflicts, all of them or none.

    Args:
        overlay: The overlay.
        target: The branch.
        wanted: The paths, or directories with conflicts below them.
        how: ours, theirs: take that side, in a text for the lines that clash, else as a whole; of a conflict of attributes only
            these. edited: the file is the decision, and has no markers. marked: it is, whatever is in it.
        author: The process that asks.
        edited: What the only path gets, or only what a person saw of it.

    Raises:
        Refusal: ``no-unfinished-merge``; ``conflict-changed`` if the file is not what was edited any more; ``no-such-conflict``
            for a path without a conflict; ``markers`` for a file that has conflict markers; ``not-a-directory`` if a path of
            theirs needs a directory where the branch has a file.
    """
    branch = overlay.refs.branch(target)
    return (yield from until_taken(
        lambda: _resolve_attempt(overlay, branch.id, wanted, how, author, edited), branch.name, "settled"
    ))  # fmt: skip


def _resolve_attempt(
    overlay: Overlay, branch_id: str, wanted: Sequence[bytes], how: How, author: Author, edited: EditedFile | None
) -> Generator[tuple[int, int, str], None, MergeState | None]:
    name = overlay.refs.branch(branch_id).name
    with ExitStack() as held:
        now = held.enter_context(overlay.trees.frozen(branch_id, readers_follow=False))
        merge = _found(overlay, now, name)
        chosen = _chosen(merge, wanted, name)
        made = held.enter_context(overlay.trees.scratch(now))
        if edited is not None:
            yield from apply(made, now, MergeOutcome(_edited_steps(now, chosen, edited)))
        for number, source in enumerate(merge.record.sources):
            own = [conflict for conflict in chosen if conflict.source == number]
            if own and how in ("ours", "theirs"):
                yield from _take_side(overlay, (now, made), source, own, how)
            elif own and how == "edited":
                _check_edited(made, own, (merge.record.target, source.name))
        for database, work_tree in dict.fromkeys((one.database, one.work_tree) for one in chosen):
            if database is not None:
                paths = [one.path for one in chosen if one.database == database]
                yield from decided_in_index.stage(workplace(overlay.parts), made, database, work_tree, paths)

        def decide(tx: Transaction) -> None:
            for conflict in chosen:
                overlay.unfinished.decide(merge, conflict.path, made.head, how)

        taken = overlay.branches.take_over(
            branch_id, made, now.head, "resolve", (), author.pid, author.command, decide
        )  # fmt: skip
        if not taken:
            return None
        tree = overlay.trees.of_branch(branch_id)
        found = state_of(tree, overlay.unfinished.find(tree.head))
        return MergeState(found.merge, found.conflicts, found.under_way, tuple(one.path for one in chosen))


def _edited_steps(now: Tree, chosen: Sequence[LeftConflict], edited: EditedFile) -> list[Step]:
    if len(chosen) != 1:
        raise invalid("only one path can be as it was seen", "name one path")
    path, inode = chosen[0].path, reading.at(now, chosen[0].path)
    if not seen_version.is_still(inode, edited.seen):
        raise Refusal(errno.ESTALE, "conflict-changed", f"{shown(path)} was changed since it was read", "look at it again")
    if edited.content is None:
        return []
    if inode is None or not inode.is_file:
        raise invalid(f"{shown(path)} is no file that can be edited", "take one side, or mark it as it is")
    return [Step(path, inode, edited.content)]


def _chosen(merge: UnfinishedMerge, wanted: Sequence[bytes], name: str) -> list[LeftConflict]:
    chosen = dict[bytes, LeftConflict]()
    for want in wanted:
        found = [conflict for conflict in merge.record.conflicts if is_below(conflict.path, want)]
        if not found:
            raise Refusal(
                errno.ENOENT, "no-such-conflict", f"{shown(want)} is no conflict of {name}",
                f"`agentfsd conflicts {name}` lists them",
            )  # fmt: skip
        chosen |= {conflict.path: conflict for conflict in found}
    return [chosen[path] for path in sorted(chosen)]


def _check_edited(tree: Tree, conflicts: Sequence[LeftConflict], names: tuple[str, str]) -> None:
    for conflict in conflicts:
        if conflict.marked and _has_markers(reading.at(tree, conflict.path), names):
            raise Refusal(
                errno.EINVAL, "markers", f"{shown(conflict.path)} still has conflict markers",
                "remove them, or say --mark if the lines belong into the file",
            )  # fmt: skip


def _take_side(
    overlay: Overlay, trees: tuple[Tree, Tree], source: LeftSource, conflicts: Sequence[LeftConflict], how: How
) -> Generator[tuple[int, int, str], None, None]:
    """Bring one side of conflicts into the second of *trees*, a scratch tree above the first."""
    now, made = trees
    with ExitStack() as held:
        layers = (source.base, source.ours, source.theirs)
        versions = tuple(held.enter_context(overlay.trees.kept(layer)) for layer in layers)
        steps = list[Step]()
        for conflict in conflicts:
            step = _step(now, versions, conflict, how)
            _check_above(now, step, {one.path for one in steps})
            steps.append(step)
            yield len(steps), len(conflicts), "settling"
        yield from apply(made, versions[1] if how == "ours" else versions[2], MergeOutcome(_needed(now, steps)))


def _needed(now: Tree, steps: Sequence[Step]) -> list[Step]:
    """Leave out the steps that remove what is not there, or is not when a file has taken the place of a directory above it."""
    files = {step.path for step in steps if step.source is not None and not step.source.is_dir}
    return [
        step
        for step in steps
        if step.source is not None or (reading.has(now, step.path) and files.isdisjoint(directories_above(step.path)))
    ]


def _step(now: Tree, versions: tuple[Tree, ...], conflict: LeftConflict, how: How) -> Step:
    at = (conflict.base, conflict.ours, conflict.theirs)
    inodes = [reading.at(tree, path) for tree, path in zip(versions, at, strict=True)]
    chosen, here = inodes[1 if how == "ours" else 2], reading.at(now, conflict.path)
    if conflict.kind == "attributes" and here is not None and chosen is not None:
        side = attributes_of(chosen)
        look = attributes_of(here)._replace(mode=side.mode, uid=side.uid, gid=side.gid, xattrs=side.xattrs)
        return Step(conflict.path, here, None, look)
    texts = [_text(inode) if conflict.marked else None for inode in inodes]
    if conflict.marked and texts[1] is not None and texts[2] is not None and (inodes[0] is None or texts[0] is not None):
        content = text_merge.merge_lines(Objects(), (texts[0], texts[1], texts[2]), "ours" if how == "ours" else "theirs")
        like = here if here is not None and here.is_file else chosen
        if content is not None and like is not None:
            return Step(conflict.path, like, content)
    return Step(conflict.path, chosen)


def _check_above(tree: Tree, step: Step, coming: set[bytes]) -> None:
    if step.source is None:
        return
    for directory in directories_above(step.path):
        inode = reading.at(tree, directory)
        if inode is not None and not inode.is_dir and directory not in coming:
            raise Refusal(
                errno.ENOTDIR, "not-a-directory", f"{shown(directory)} is no directory, and {shown(step.path)} needs one",
                "move or remove it in the branch first, or take --ours",
            )  # fmt: skip


# -- finish and take back


def finish(overlay: Overlay, target: str, author: Author) -> Steps:
    """Finish the merge: its sources count as merged from now on. Nothing happens while conflicts are undecided, or git has a
    merge to finish. The files of the branch stay as they are.

    Raises:
        Refusal: ``no-unfinished-merge``.
    """
    branch = overlay.refs.branch(target)
    return (yield from until_taken(lambda: _finish_attempt(overlay, branch.id, author), branch.name, "settled"))


def _finish_attempt(
    overlay: Overlay, branch_id: str, author: Author
) -> Generator[tuple[int, int, str], None, MergeState | None]:  # fmt: skip
    with ExitStack() as held:
        now = held.enter_context(overlay.trees.frozen(branch_id, readers_follow=False))
        merge = _found(overlay, now, overlay.refs.branch(branch_id).name)
        found = state_of(now, merge)
        yield 0, 0, "looking at conflicts"
        if found.undecided or found.under_way:
            return found
        made = held.enter_context(overlay.trees.scratch(now))
        merged = [(source.id, source.layer) for source in merge.record.sources if _counts(now, source)]
        taken = overlay.branches.take_over(
            branch_id, made, now.head, "merge --continue", merged, author.pid, author.command,
            lambda tx: overlay.unfinished.finish(merge, made.head),
        )  # fmt: skip
        return found if taken else None


def _counts(tree: Tree, source: LeftSource) -> bool:
    """Return whether a source counts as merged: git has committed its part, and has not taken it back."""
    return source.whole and all(decided_in_index.has_merged(tree, database, commit) for database, commit in source.commits)


def abort(overlay: Overlay, target: str, author: Author, *, force: bool) -> Generator[tuple[int, int, str], None, list[bytes]]:
    """Put the branch back to its state before the merge. `agentfsd undo` brings back what was there now.

    Args:
        overlay: The overlay.
        target: The branch.
        author: The process that asks.
        force: Also if other files than the conflicting ones were changed since.

    Returns:
        The paths that were changed since, and that keep the merge from being taken back; none if it was.

    Raises:
        Refusal: ``no-unfinished-merge``.
    """
    branch = overlay.refs.branch(target)
    return (yield from until_taken(lambda: _abort_attempt(overlay, branch.id, author, force=force), branch.name, "put back"))


def _abort_attempt(
    overlay: Overlay, branch_id: str, author: Author, *, force: bool
) -> Generator[tuple[int, int, str], None, list[bytes] | None]:  # fmt: skip
    with ExitStack() as held:
        now = held.enter_context(overlay.trees.frozen(branch_id, readers_follow=False))
        merge = _found(overlay, now, overlay.refs.branch(branch_id).name)
        changed = [] if force else (yield from _changed_since(overlay, merge, now, held))
        if changed:
            return changed
        before = held.enter_context(overlay.trees.kept(merge.before))
        taken = overlay.branches.take_over(branch_id, before, now.head, "merge --abort", (), author.pid, author.command)
        return [] if taken else None


def _changed_since(
    overlay: Overlay, merge: UnfinishedMerge, now: Tree, held: ExitStack
) -> Generator[tuple[int, int, str], None, list[bytes]]:
    """Return the paths that were changed since the merge, without the conflicts and what git and resolve() write for them."""
    after = held.enter_context(overlay.trees.kept(merge.layer))
    known = {conflict.path for conflict in merge.record.conflicts}
    databases = [database for source in merge.record.sources for database, _ in source.commits]
    found = []
    for pair in tree_diff.pairs_in_steps(overlay.parts, after, now):
        if pair is not None and pair.path not in known and not _is_bookkeeping(pair.path, databases):
            both_directories = pair.old is not None and pair.old.is_dir and pair.new is not None and pair.new.is_dir
            found += [] if both_directories or tree_diff.only_lower_moved(pair) else [pair.path]
        yield len(found), 0, "changes"
    return found


def _is_bookkeeping(path: bytes, databases: Sequence[bytes]) -> bool:
    return any(path == database + b"/index" or is_below(path, database + b"/objects") for database in databases)
