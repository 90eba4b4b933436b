"""Three-way merge of two trees. It collects what each side changed.

repositories/fitting.py joins git's histories, path_merger.py decides every other path. This module changes nothing: the result is
a list of steps for core/transplant.py.
"""

from collections.abc import Generator

from agentfsd.core import origin, tree_diff
from agentfsd.core.seen_names import SeenNames
from agentfsd.core.tree import Inode, Parts, Tree, join
from agentfsd.core.tree_diff import EntryPair
from agentfsd.history.merge_records import IGNORED, MergeDecision, MergeOutcome, PathConflict, Rules, Step
from agentfsd.history.path_merger import PathMerger
from agentfsd.history.paths import touches
from agentfsd.history.source_changes import SourceChanges
from agentfsd.history.target_changes import TargetChanges
from agentfsd.repositories import ignored_files, merge_attributes
from agentfsd.repositories.before import TreeBefore
from agentfsd.repositories.commits import Clash
from agentfsd.repositories.fitted_changes import Fitted, Sides
from agentfsd.repositories.fitting import fit
from agentfsd.repositories.gathering import Workshops
from agentfsd.repositories.git_database_paths import Finder, may_be_ref
from agentfsd.repositories.joined_history import Manner
from agentfsd.repositories.reading import at, has

_IGNORABLE = ("add/add", "content", "binary", "attributes", "modify/delete", "symlink", "special")

Steps = Generator[tuple[int, int, str], None, MergeOutcome]


def merge(
    workshops: Workshops, parts: Parts, target: TargetChanges, source: SourceChanges, rules: Rules,
    wanted: tuple[bytes, ...] = (), names: tuple[str, str] = ("ours", "theirs"),
) -> Steps:  # fmt: skip
    """Merge two trees, in steps that yield (done, total, what). The trees must not change meanwhile.

    Args:
        parts: The parts of the overlay.
        target: The tree to merge into, and what it has changed since the state from which both sides started.
        source: The tree to merge, and what it has changed since then.
        rules: How to merge.
        wanted: The only paths to merge; empty for all.
        names: The names of our branch and of theirs, for messages.

    Returns:
        The steps that turn *ours* into the merged tree, and the conflicts.
    """
    base, ours, theirs = target.base, target.ours, source.theirs
    our_changes = yield from target.read()
    their_changes = yield from source.read()
    _add_unseen(theirs, their_changes, [path for path in target.unseen if touches(wanted, path)])
    fitted = Fitted()
    if not wanted:
        their_changes |= moved_refs(theirs, our_changes)
        manner = Manner(names, rules.way, rules.favor, rules.markers or rules.leave, rules.whole_files, with_base=rules.leave)
        sides = Sides(TreeBefore(base, theirs, ours), ours, theirs)
        fitted = yield from fit(workshops, parts, sides, our_changes, their_changes, manner)
    for path in list(their_changes) if rules.way == "beside" else fitted.decided:
        our_changes.pop(path, None)
        their_changes.pop(path, None)
    part_additions(theirs, their_changes, our_changes, ours)
    part_additions(ours, our_changes, their_changes, None)
    merger = PathMerger(rules, our_changes, their_changes, names, fitted.committed)
    merger.outcome.steps += [Step(change.path, change.source, change.content, change.look) for change in fitted.fits]
    merger.add_settled(fitted.settled)
    for clash in fitted.clashes:
        merger.outcome.conflicts.append(PathConflict(*clash, excerpt=merger.excerpt(clash.path, (base, ours, theirs))))
        yield 0, 0, "reading conflicts"
    merger.outcome.said += fitted.said
    merger.outcome.unfinished += fitted.unfinished
    yield from merger.read()
    merger.file_rules = yield from merge_attributes.rules_in(workshops.place, ours, merger.both_changed())
    for done, path in enumerate(sorted(their_changes)):
        merger.decide(path)
        yield done, len(their_changes), "merging"
    yield from _keep_ignored(workshops.place, merger.outcome, (ours, theirs), fitted.clashes, names[0])
    return merger.outcome


def _keep_ignored(
    place: str, outcome: MergeOutcome, trees: tuple[Tree, Tree], of_git: list[Clash], ours: str
) -> Generator[tuple[int, int, str], None, None]:  # fmt: skip
    """Decide conflicts of files that git ignores on both sides: each keeps its own, as in two checkouts."""
    told = {clash.path for clash in of_git}
    paths = [found.path for found in outcome.conflicts if found.path not in told and found.kind in _IGNORABLE]
    paths += [left.path for left in outcome.left if not left.by_git and left.kind in _IGNORABLE]
    ignored = (yield from ignored_files.find(place, trees, paths)) if paths else set[bytes]()
    outcome.left = [left for left in outcome.left if left.path not in ignored]
    outcome.steps = [step for step in outcome.steps if step.path not in ignored]
    outcome.conflicts = [found for found in outcome.conflicts if found.path not in ignored]
    outcome.decided += [MergeDecision(path, IGNORED, ours) for path in sorted(ignored)]


def moved_refs(theirs: Tree, our_changes: dict[bytes, EntryPair]) -> dict[bytes, EntryPair]:
    """Return what the lower has got of git's refs since our side changed them, as changes of *theirs*, which shows the lower.

    The index and the logs of these repositories are with them: our side is to follow.
    """
    found, finder = dict[bytes, EntryPair](), Finder(lambda name: has(theirs, name))
    for path, pair in our_changes.items():
        if may_be_ref(path) and (member := finder.member(path)) is not None and member.kind == "ref" and _moved(theirs, pair):
            found[path] = EntryPair(path, None, at(theirs, path), ())
    databases = {member.database for path in found if (member := finder.member(path)) is not None}
    for path, pair in our_changes.items() if found else ():
        member = finder.member(path)
        if member is not None and member.database in databases and member.kind_in_checkout in ("index", "log"):
            found |= {path: EntryPair(path, None, at(theirs, path), ())} if _moved(theirs, pair) else {}
    return found


def _moved(theirs: Tree, pair: EntryPair) -> bool:
    """Return whether *theirs* has what the lower has got at a path since our side changed it.

    It shows the lower there, or has a copy of its own: a branch in use keeps what it has committed. Our side may have removed the
    path, as git does with a ref that it packs.
    """
    if pair.within is None or (pair.new is None and pair.within.lower_path is None):
        return False
    shown, name = at(theirs, pair.path), pair.path.rpartition(b"/")[2]
    if shown is None or (shown.has_own_data and not _is_copy(shown, pair.old)):
        return False
    return pair.within.lower_path is None or origin.has_moved(pair.within.tree, pair.within, name, pair.new)


def _is_copy(one: Inode, lower: Inode | None) -> bool:
    """Return whether a file has the content that the common state shows of the lower."""
    return lower is not None and lower.is_file and not lower.has_own_data and one.is_file and tree_diff.same_content(lower, one)


def _add_unseen(theirs: Tree, changes: dict[bytes, EntryPair], unseen: list[bytes]) -> None:
    """Count *unseen* paths of theirs as additions.

    *theirs* made these files, our side never saw them, and the lower has got files with the same content since. The base shows
    the lower's, so the comparison reports no change. Without this, it would look as if our side had removed them. For git
    objects, objects that only the lower has count too, because commits of theirs may need them.
    """
    finder = Finder(lambda name: has(theirs, name))
    while unseen:
        path = unseen.pop()
        entry, member = at(theirs, path), finder.member(path)
        if entry is None or not (entry.id or (member is not None and member.kind == "object")):
            continue
        if path not in changes:
            changes[path] = EntryPair(path, None, entry, ())
        if entry.is_dir:
            unseen += [join(path, name) for name in theirs.names(entry)]


def part_additions(
    tree: Tree, changes: dict[bytes, EntryPair], others: dict[bytes, EntryPair], other: Tree | None
) -> None:  # fmt: skip
    """Treat files that *tree* made before the lower got something at the same path as additions, not changes.

    *other*: the other tree, if what it shows of the lower counts as its own addition.
    """
    seen = SeenNames(tree)
    for path, pair in list(changes.items()):
        old, new = pair.old, pair.new
        if old is None or new is None or old.id or old.lower_path is None or new.linked or new.lower_path == old.lower_path:
            continue
        name = path.rpartition(b"/")[2]
        if seen.was_removed(old.lower_path) if pair.within is None else seen.covers(pair.within, name, old.lower_path):
            continue
        changes[path] = pair._replace(old=None)
        if path in others:
            others[path] = others[path]._replace(old=None)
        elif other is not None and (shown := at(other, path)) is not None:
            others[path] = EntryPair(path, None, shown, ())
