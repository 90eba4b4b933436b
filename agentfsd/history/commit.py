"""Plans the commit of a branch into the lower: the steps it takes, and conflicts with what changed in the lower meanwhile.

lower/commit_writer.py executes the steps in another thread. Nothing here writes to the lower. lower_drift.py tells what changed
there, lower_as_read.py what was there before it was read, partial_commit.py which paths go along with those that were named.
"""

import stat
from collections.abc import Callable, Container, Generator, Iterable
from dataclasses import dataclass, field
from typing import Literal

from agentfsd.core import hard_links, inode_stat, origin, tree_diff
from agentfsd.core.inode import NO_LOWER
from agentfsd.core.inode import Attributes as Shown
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.overlay import Overlay
from agentfsd.core.transplant import attributes_of
from agentfsd.core.tree import Inode, Tree
from agentfsd.core.tree_diff import EntryPair
from agentfsd.core.whole_contents import content_of
from agentfsd.history.commit_contents import BytesContent, LowerContent, ObjectContent
from agentfsd.history.git_file_rules import git_favor
from agentfsd.history.listed_changes import ListedChanges, list_changes, parted
from agentfsd.history.lower_as_read import LowerAsRead, as_told
from agentfsd.history.lower_drift import LowerDrift
from agentfsd.history.merge_records import PathConflict
from agentfsd.history.partial_commit import is_new, with_directories
from agentfsd.history.paths import directories_above, shown, touches
from agentfsd.history.settling import Same, rights_of
from agentfsd.history.text_merge import merge_texts
from agentfsd.lower.commit_plan import ABSENT, Adjust, ContentSource, FileAttributes, Identity, Put, Remove, Step
from agentfsd.repositories import ignored_files
from agentfsd.repositories.before import OriginBefore
from agentfsd.repositories.fitted_changes import Fitted, Sides
from agentfsd.repositories.fitting import fit
from agentfsd.repositories.gathering import Workshops, workplace
from agentfsd.repositories.git_database_paths import Finder, rank_of
from agentfsd.repositories.joined_history import REAL_DIRECTORY, Manner
from agentfsd.repositories.merge_attributes import BY_LINES, FileRule, rules_in
from agentfsd.repositories.reading import at
from agentfsd.types import PathChange

_IGNORABLE = ("drift", "add/add", "content", "binary", "attributes")  # conflicts that do not matter for a file that git ignores

Rule = Literal["refuse", "merge", "force"]  # what to do with a path that has changed in the lower since the branch changed it

LOWER_MANNERS: dict[Rule, Callable[[str, bool], Manner]] = {  # arguments: branch name, whether only git branches are committed
    "refuse": lambda name, beside: Manner((REAL_DIRECTORY, name), "beside" if beside else "merge", only_forward=not beside),
    "merge": lambda name, beside: Manner((REAL_DIRECTORY, name), "beside" if beside else "merge"),
    "force": lambda name, beside: Manner((REAL_DIRECTORY, name), "beside" if beside else "merge", "theirs"),
}


@dataclass(slots=True)
class Plan:
    """The plan of a commit.

    Attributes:
        steps: What to do in the lower.
        changed: Every path that the steps are about.
        listed: What will be different in the lower, as `diff` lists it.
        same: The argument for settle().
        said: Messages about git histories.
        ignored: Paths that git ignores, and that the lower keeps as it has them, though the branch has them, too.
        conditions: What paths that no step changes must still lead to just before the first step.
    """

    steps: list[Step] = field(default_factory=list)
    changed: list[bytes] = field(default_factory=list)
    same: list[Same] = field(default_factory=list)
    conflicts: list[PathConflict] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    ignored: list[bytes] = field(default_factory=list)
    listed: ListedChanges = field(default_factory=lambda: ListedChanges([], []))
    conditions: dict[bytes, Identity] = field(default_factory=dict)


def plan(
    overlay: Overlay, tree: Tree, wanted: tuple[bytes, ...], rule: Rule, *, name: str = "the branch", as_branches: bool = False
) -> Generator[tuple[int, int, str], None, Plan]:  # fmt: skip
    """Plan the steps that make the lower equal to *tree*, in steps that yield (done, total, what).

    Args:
        overlay: The overlay.
        tree: The branch's tree. It must not change meanwhile.
        wanted: The only paths to commit; empty for all.
        rule: What to do with paths that have changed in the lower since the branch changed them.
        name: The branch's name, for messages.
        as_branches: Commit nothing but the git branches, each under a new name next to those of the lower.
    """
    pairs: dict[bytes, EntryPair] = {}
    unseen: list[bytes] = []
    as_read = LowerAsRead(tree)
    for pair in tree_diff.pairs_in_steps(overlay.parts, overlay.trees.side(None), tree, times=True, unseen=unseen):
        if pair is not None:
            pairs[pair.path] = pair
            as_read.note_pair(pair)
        if pair is None or len(pairs) % 50 == 0:
            yield len(pairs), 0, "changes"
    chosen = with_directories(pairs, wanted) if wanted else pairs
    planner = _Planner(tree, rule, pairs.values(), as_read)
    changed = {pair.new for pair in pairs.values() if pair.new is not None and not pair.new.is_dir}
    as_read.note_links(inode for inode in changed if inode.id and inode.nlink > 1)
    if not wanted:
        manner = LOWER_MANNERS[rule](name, as_branches)
        for _ in as_read.note_databases(pairs, planner.finder):
            yield 0, 0, "reading refs"
        moved = {path: pair for path, pair in pairs.items() if planner.drift.has_moved(pair)}
        sides = Sides(OriginBefore(overlay.trees.side(None), tree, planner.drift.origin_of), overlay.trees.side(None), tree)
        with Workshops(overlay.parts) as workshops:
            fitted = yield from fit(workshops, overlay.parts, sides, moved, pairs, manner, always=True)
        planner.add_fits(fitted)
        planner.plan.conditions = as_read.conditions(change.path for change in fitted.fits)
        chosen = {} if as_branches else {path: pair for path, pair in pairs.items() if path not in fitted.decided}
    if rule == "merge":
        parted_paths = [path for path, pair in chosen.items() if _both_files(pair) and planner.drift.has_moved(pair)]
        planner.file_rules = yield from rules_in(workplace(overlay.parts), overlay.trees.side(None), parted_paths)
    for done, pair in enumerate(chosen.values()):
        planner.add(pair)
        yield done, len(chosen), "comparing with the lower"
    if rule == "refuse":
        planner.refuse_to_empty(path for path in unseen if touches(wanted, path))
    yield from _keep_ignored(overlay, tree, planner.plan)
    planner.add_links()
    planner.add_directories(pairs)
    planner.plan.listed = yield from _listed(overlay, tree, planner.plan, pairs)
    return planner.plan


def _keep_ignored(overlay: Overlay, tree: Tree, plan: Plan) -> Generator[tuple[int, int, str], None, None]:
    """Leave alone what git ignores on both sides, and somebody has changed or made in the lower, too."""
    paths = [conflict.path for conflict in plan.conflicts if conflict.kind in _IGNORABLE]
    if paths:
        ignored = yield from ignored_files.find(workplace(overlay.parts), (overlay.trees.side(None), tree), paths)
        plan.ignored = sorted(ignored)
        plan.conflicts = [conflict for conflict in plan.conflicts if conflict.path not in ignored]


def _listed(
    overlay: Overlay, tree: Tree, plan: Plan, pairs: dict[bytes, EntryPair]
) -> Generator[tuple[int, int, str], None, ListedChanges]:
    """List what a plan changes. What git's merge made of a path is listed though the branch may not differ there."""
    lower, only_times = overlay.trees.side(None), {"times"}
    touched = {path for path in plan.changed if path not in pairs or set(pairs[path].what) != only_times}
    found = yield from list_changes(overlay.parts, lower, tree, touched)
    known = {path for change in (*found.changes, *found.internals) for path in (change.path, change.old_path)}
    made = [step for step in plan.steps if step.path in touched - known - pairs.keys() and not isinstance(step, Adjust)]
    others = parted([_as_change(step, lower) for step in made], lower, tree)
    changes = sorted((*found.changes, *others.changes), key=lambda change: change.path)
    return ListedChanges(changes, [*found.internals, *others.internals])


def _as_change(step: Step, lower: Tree) -> PathChange:
    if isinstance(step, Remove):
        return PathChange("D", step.path, 0, -1)
    return PathChange("A" if at(lower, step.path) is None else "M", step.path, -1, 0)


class _Planner:
    def __init__(self, tree: Tree, rule: Rule, pairs: Iterable[EntryPair], as_read: LowerAsRead) -> None:
        self._tree, self._rule, self._as_read = tree, rule, as_read
        self.file_rules: dict[bytes, FileRule] = {}
        self._displaced: set[bytes] = set()  # directories of the lower that are removed with everything in them
        self._puts: dict[bytes, Put] = {}
        self._links: dict[Inode, int] = {}  # files with hard links: their numbers in the plan
        self.drift = LowerDrift(tree, pairs)
        self.finder = Finder(lambda path: at(tree, path) is not None or origin.now_in_lower(tree, path) != NO_LOWER)
        self.plan = Plan()

    def add(self, pair: EntryPair) -> None:
        """Plan one pair. Call it in the order of tree_diff.pairs(): a directory before its content."""
        path = pair.path
        if "content" in pair.what and tree_diff.only_lower_moved(pair):
            return
        if pair.unseen:
            message = f"a directory in the real directory, with {shown(pair.unseen)} that the branch has never seen"
            self.plan.conflicts.append(PathConflict(path, "type", message))
        elif self._rule == "force" or not self.drift.has_moved(pair):
            self._step(pair, None)
        elif self._may_stay(pair):
            return
        elif self._rule == "merge" and _both_files(pair):
            self._merge(pair)
        else:
            there = "deleted" if pair.old is None else "added" if self.drift.is_added_there(pair) else "changed"
            self.plan.conflicts.append(PathConflict(path, "drift", f"{there} in the real directory since the branch changed it"))

    def _may_stay(self, pair: EntryPair) -> bool:
        """Tell whether the lower may keep its times or its directory's attributes, which no user means to overwrite."""
        if pair.old is None or pair.new is None or {"content", "type"} & set(pair.what):
            return False
        if set(pair.what) == {"times"} or not pair.new.is_dir:
            return set(pair.what) == {"times"}
        return self._rule == "merge" or self.drift.is_added_there(pair)

    def refuse_to_empty(self, unseen: Iterable[bytes]) -> None:
        """Add a conflict for each directory that the branch removed and that now has one of the *unseen* paths in the lower.

        Such a directory cannot be removed as a whole.
        """
        refused = set()
        for path in unseen:
            gone = next((above for above in directories_above(path) if at(self._tree, above) is None), b"")
            if gone and gone not in refused:
                refused.add(gone)
                message = f"{shown(path)} was added in the real directory since the branch removed this directory"
                self.plan.conflicts.append(PathConflict(gone, "drift", message))

    def _merge(self, pair: EntryPair) -> None:
        assert pair.old is not None and pair.new is not None
        favor = git_favor(pair.path)
        if favor == "ours":
            return
        if rights_of(pair.old) != rights_of(pair.new):
            message = "changed in the real directory since the branch changed it, and mode, owner or attributes differ"
            self.plan.conflicts.append(PathConflict(pair.path, "attributes", message))
            return
        base = self._base(pair)
        if base is None and self.drift.is_added_there(pair):
            self.plan.conflicts.append(PathConflict(pair.path, "add/add", "added in the real directory and in the branch"))
            return
        if base is None:
            message = "changed on both sides, and what it was before is not kept"
            self.plan.conflicts.append(PathConflict(pair.path, "drift", message))
            return
        rule = self.file_rules.get(pair.path, BY_LINES)
        if rule.way == "whole":
            self.plan.conflicts.append(PathConflict(pair.path, rule.kind, rule.message))
            return
        favor = "union" if rule.way == "union" else favor
        merged = merge_texts(base, content_of(pair.old), content_of(pair.new), favor)
        if merged is None:
            message = "changed in the real directory and in the branch, on the same lines or not as text"
            self.plan.conflicts.append(PathConflict(pair.path, "content", message))
        else:
            self._step(pair, merged)

    def _base(self, pair: EntryPair) -> bytes | None:
        """Return the content that the file had when the branch first changed it; None if it was not kept."""
        row = self.drift.origin_of(pair.path)
        if row is None or not (row.base or row.lower_size == 0):
            return None
        if not row.base:
            return b""
        with open(ObjectContent(self._tree.backstore, row.base, row.lower_size).open(), "rb") as file:
            file.seek(0)
            return file.read()

    # -- steps

    def add_fits(self, fitted: Fitted) -> None:
        """Add the steps, conflicts and messages for git repositories. Each path that is removed has a step of its own."""
        self.plan.conflicts += [PathConflict(*clash) for clash in fitted.clashes]
        self.plan.said += fitted.said
        needed = {above for change in fitted.fits if change.source is not None for above in directories_above(change.path)}
        for change in sorted(fitted.fits, key=lambda change: change.path):
            if change.found is not None:
                self._as_read.note_file(change.path, change.found)
            expected = self._expected(change.path)
            if change.source is None:
                if expected != ABSENT and change.path not in needed:
                    self._note(change.path, None)
                    self.plan.steps.append(Remove(change.path, expected, self._rank(change.path, gone=True)))
                continue
            self._make_directories(change.path)
            if change.content is None:
                self._note(change.path, change.source)
                self._put(change.path, change.source, expected, None)
            else:
                self._note(change.path, None, same=False)
                look = change.look or attributes_of(change.source)
                attributes = FileAttributes(look.mode, look.uid, look.gid, look.atime_ns, look.mtime_ns, look.xattrs)
                rank = self._rank(change.path, gone=False)
                self._puts[change.path] = Put(change.path, attributes, BytesContent(change.content), expected=expected, rank=rank)
                self.plan.steps.append(self._puts[change.path])

    def _expected(self, path: bytes) -> Identity:
        return as_told(self._as_read.identity(path))

    def _rank(self, path: bytes, *, gone: bool) -> int:
        return rank_of(self.finder.member(path), gone=gone)

    def _make_directories(self, path: bytes) -> None:
        """Plan the directories above *path* that the lower lacks, or has a file in the place of.

        Each gets the attributes that it has in the branch, or those of the directory above it if the branch has none there.
        """
        like: Inode = self._tree.root
        for directory in directories_above(path):
            inode = at(self._tree, directory)
            like = inode if inode is not None and inode.is_dir else like
            if directory not in self._puts and not self._is_lower_directory(directory):
                self._note(directory, inode, same=inode is not None)  # a branch that does not have it has not removed it
                self._put(directory, like, self._expected(directory), None)

    def _is_lower_directory(self, path: bytes) -> bool:
        try:
            return stat.S_ISDIR(self._tree.lower.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _note(self, path: bytes, inode: Inode | None, *, same: bool = True) -> None:
        self.plan.changed.append(path)
        if same:
            self.plan.same.append(Same(path, inode.id, inode.lower_path) if inode is not None else Same(path))

    def _step(self, pair: EntryPair, content: bytes | None) -> None:
        path = pair.path
        self._note(path, pair.new, same=content is None)
        if pair.new is None and self._displaced and not self._displaced.isdisjoint(directories_above(path)):
            return
        displaced = pair.old is not None and pair.old.is_dir and (pair.new is None or not pair.new.is_dir)
        if displaced:
            self._displaced.add(path)  # even with force, the writer must find no new name in it
        expected = self._expected(path) if displaced or self._rule != "force" else None
        if pair.new is None:
            self.plan.steps.append(Remove(path, expected, self._rank(path, gone=True)))
        elif is_new(pair) or "content" in pair.what:
            self._put(path, pair.new, expected, content, pair.shown)
        else:
            attributes = _as_told(pair.new, inode_stat.attributes(pair.new))
            self.plan.steps.append(Adjust(path, attributes, expected if not pair.new.is_dir else None))

    def _put(
        self, path: bytes, inode: Inode, expected: Identity | None, content: bytes | None, shown: Shown | None = None
    ) -> None:  # fmt: skip
        attributes = shown or inode_stat.attributes(inode)
        link = self._links.setdefault(inode, len(self._links) + 1) if not inode.is_dir and attributes.nlink > 1 else 0
        source: ContentSource | None = None
        if inode.is_file:
            source = BytesContent(content) if content is not None else self._source(inode, attributes.size)
        target = self._tree.readlink(inode) if stat.S_ISLNK(inode.mode) else b""
        member = self.finder.member(path)
        is_object = member is not None and member.kind == "object"
        rank = rank_of(member, gone=False)
        put = Put(path, _as_told(inode, attributes), source, target, attributes.rdev, link, expected, rank, stays=is_object)
        self._puts[path] = put
        self.plan.steps.append(put)

    def _source(self, inode: Inode, size: int) -> ContentSource:
        if inode.content:
            return ObjectContent(self._tree.backstore, inode.content, size)
        assert inode.lower_path is not None
        return LowerContent(self._tree.lower, inode.lower_path, size)

    def add_links(self) -> None:
        """Plan each file with hard links under all its names. Replacing only some names would separate them from the others."""
        adjusted = {step.path: step for step in self.plan.steps if isinstance(step, Adjust)}
        for inode, paths in hard_links.names(self._tree, self._links).items():
            for path in sorted(paths):
                if path in self._puts:
                    continue
                if path in adjusted:
                    self.plan.steps.remove(adjusted[path])
                else:
                    self._note(path, inode)
                expected = None if self._rule == "force" else self._expected(path)
                self._put(path, inode, expected, None)
        self.plan.steps.sort(key=lambda step: step.path)
        self._note_other_names()

    def _note_other_names(self) -> None:
        """Note another name for each file with hard links that the branch reads under a name that is removed or replaced."""
        gone = {step.path for step in self.plan.steps if not isinstance(step, Adjust)}
        linked = (self._tree.stored(number) for number in self._tree.store.linked_inodes())
        left = [inode for inode in linked if inode is not None and inode.nlink and inode.lower_path in gone]
        for inode, paths in hard_links.names(self._tree, [inode for inode in left if inode not in self._links]).items():
            self.plan.same += [Same(path, inode.id, inode.lower_path) for path in sorted(paths)[:1]]

    def add_directories(self, differing: Container[bytes]) -> None:
        """Restore the times of each directory in which names are replaced and which is the same on both sides.

        A directory that the branch and the lower have both created is merged with the lower's after the commit.
        """
        stepped = {step.path for step in self.plan.steps}
        above = {path.rpartition(b"/")[0] for path in stepped if path}
        for path in sorted(above - stepped):
            node = at(self._tree, path) if path not in differing else None
            if node is not None and node.is_dir:
                self.plan.steps.append(Adjust(path, _as_told(node, inode_stat.attributes(node))))
                self.plan.same.append(Same(path, node.id, node.lower_path))
        known = {one.path for one in self.plan.same}
        for directory in sorted({directory for path in stepped for directory in directories_above(path)} - known):
            node = at(self._tree, directory)
            if node is not None and node.is_dir and node.lower_path is None:
                self.plan.same.append(Same(directory, node.id, attributes=False))
        self.plan.steps.sort(key=lambda step: step.path)


def _as_told(inode: Inode, shown: Shown) -> FileAttributes:
    """Return the attributes as the commit writer takes them."""
    xattrs = dict(all_xattrs(inode.tree, inode))
    return FileAttributes(shown.mode, shown.uid, shown.gid, shown.atime_ns, shown.mtime_ns, xattrs)


def _both_files(pair: EntryPair) -> bool:
    return pair.old is not None and pair.new is not None and pair.old.is_file and pair.new.is_file
