"""Three-way merge of two trees.

A path that one side changed is taken from that side; libgit2 merges text that both sides changed.

This module decides and changes nothing: the result is a list of steps for core/transplant.py. What git cannot hold (modes,
owners, extended attributes, empty directories, special files) is merged here by the same rule.
"""

import os
import stat
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pygit2 import Oid

from agentfsd.core import inode_stat, tree_diff
from agentfsd.core.copyup import content_fd
from agentfsd.core.seen_names import SeenNames
from agentfsd.core.transplant import WantedAttributes, attributes_of
from agentfsd.core.tree import Inode, Parts, Tree, join
from agentfsd.core.tree_diff import EntryPair
from agentfsd.history import renames, text_merge
from agentfsd.history.objects import Objects
from agentfsd.history.paths import touches
from agentfsd.repositories import fitting, merge_attributes
from agentfsd.repositories.before import TreeBefore
from agentfsd.repositories.commits import Clash
from agentfsd.repositories.gathering import Workshops
from agentfsd.repositories.git_database_paths import Finder
from agentfsd.repositories.joining import Manner, Way
from agentfsd.repositories.merge_attributes import BY_LINES, FileRule
from agentfsd.repositories.reading import has

_GIT_PASSING = {b"index", b"COMMIT_EDITMSG", b"ORIG_HEAD", b"FETCH_HEAD", b"AUTO_MERGE", b"gc.log"}

Favor = Literal["", "ours", "theirs", "union"]
Steps = Generator[tuple[int, int, str], None, "MergeOutcome"]


class Step(NamedTuple):
    """A change to make at *path* of our side.

    Attributes:
        path: The path.
        source: The inode that the path becomes; None removes the path.
        content: The content to write instead of the source's; None keeps the source's.
        look: The attributes to set instead of the source's; None keeps the source's.
    """

    path: bytes
    source: Inode | None
    content: bytes | None = None
    look: WantedAttributes | None = None


@dataclass(frozen=True, slots=True)
class PathConflict:
    """A conflict at one path.

    Attributes:
        kind: content, binary, add/add, modify/delete, rename/rename, rename/delete, rename/add, type, symlink, special or
            attributes.
        message: What is wrong, in words.
        excerpt: The first differing line of ours and of theirs; both are "" if there is none.
        source: The branch that was not merged because of the conflict.
        against: The branches whose changes it conflicts with.
    """

    path: bytes
    kind: str
    message: str
    excerpt: tuple[str, str] = ("", "")
    source: str = ""
    against: tuple[str, ...] = ()


class MergeDecision(NamedTuple):
    """A path that both sides changed, and whose change was taken. ``winner`` is "" if both were kept, as text."""

    path: bytes
    kind: str
    winner: str


@dataclass(slots=True)
class MergeOutcome:
    """The result of merge().

    Attributes:
        decided: The conflicts that ``Rules.favor`` decided.
        marked: The files with conflict markers.
    """

    steps: list[Step] = field(default_factory=list)
    conflicts: list[PathConflict] = field(default_factory=list)
    decided: list[MergeDecision] = field(default_factory=list)
    marked: list[bytes] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # of histories: what was done, a sentence each


@dataclass(frozen=True, slots=True)
class Rules:
    """How to merge.

    Attributes:
        favor: The side that wins a conflict; "" for neither, union for both.
        whole_files: A file that both sides changed is a conflict, whichever lines they changed.
        markers: Write text conflicts into the files, between markers, instead of reporting them.
        way: How to join git histories.
    """

    favor: Favor = ""
    whole_files: bool = False
    markers: bool = False
    way: Way = "merge"


def git_favor(path: bytes) -> Favor:
    """Return the side that wins a conflict in a file that git writes by itself, such as the index or a log; "" for other files.

    Without this rule, two branches in which somebody ran `git status` could not be merged. Refs conflict like any other text, but
    never get markers (is_in_git).
    """
    _, found, inside = (b"/" + path).rpartition(b"/.git/")
    if not found:
        return ""
    if inside.startswith(b"logs/") or b"/logs/" in inside:
        return "union"
    return "ours" if inside.rpartition(b"/")[2] in _GIT_PASSING else ""


def is_in_git(path: bytes, ours: Inode, theirs: Inode) -> bool:
    """Return whether a path is in a git database, also of a bare repository, or is a file named ``.git``, which points to one."""
    if b"/.git/" in b"/" + path + b"/":
        return True
    finder = Finder(lambda name: has(ours.tree, name) or has(theirs.tree, name))
    return finder.member(path) is not None


def merge(
    workshops: Workshops, parts: Parts, base: Tree, ours: Tree, theirs: Tree, rules: Rules, wanted: tuple[bytes, ...] = (),
    names: tuple[str, str] = ("ours", "theirs"),
) -> Steps:  # fmt: skip
    """Merge two trees, in steps that yield (done, total, what). The trees must not change meanwhile.

    Args:
        parts: The parts of the overlay.
        base: The state from which both sides started.
        ours: The tree to merge into.
        theirs: The tree to merge.
        rules: How to merge.
        wanted: The only paths of *theirs* to merge; empty for all.
        names: The names of our branch and of theirs, for messages.

    Returns:
        The steps that turn *ours* into the merged tree, and the conflicts.
    """
    our_changes: dict[bytes, EntryPair] = {}
    their_changes: dict[bytes, EntryPair] = {}
    unseen: list[bytes] = []
    for side, changes in ((ours, our_changes), (theirs, their_changes)):
        for pair in tree_diff.pairs_in_steps(parts, base, side, unseen=unseen if changes is our_changes else None):
            if (
                pair is not None
                and (changes is our_changes or touches(wanted, pair.path))
                and not tree_diff.only_lower_moved(pair)
            ):
                changes[pair.path] = pair
            if pair is None or len(changes) % 50 == 0:
                yield len(changes), 0, "changes"
    _add_unseen(theirs, their_changes, [path for path in unseen if touches(wanted, path)])
    fitted = fitting.Fitted()
    if not wanted:
        manner = Manner(names, rules.way, rules.favor, rules.markers, rules.whole_files)
        sides = fitting.Sides(TreeBefore(base, theirs), ours, theirs)
        fitted = yield from fitting.fit(workshops, parts, sides, our_changes, their_changes, manner)
    for path in list(their_changes) if rules.way == "beside" else fitted.decided:
        our_changes.pop(path, None)
        their_changes.pop(path, None)
    _part_additions(theirs, their_changes, our_changes, ours)
    _part_additions(ours, our_changes, their_changes, None)
    merger = _Merger(rules, our_changes, their_changes, names)
    merger.outcome.steps += [Step(*fields) for fields in fitted.fits]
    merger.add_settled(fitted.settled)
    for clash in fitted.clashes:
        merger.outcome.conflicts.append(PathConflict(*clash, excerpt=merger.excerpt(clash.path, (base, ours, theirs))))
        yield 0, 0, "reading conflicts"
    merger.outcome.said += fitted.said
    yield from merger.read()
    merger.file_rules = yield from merge_attributes.rules_in(workshops.place, ours, merger.both_changed())
    for done, path in enumerate(sorted(their_changes)):
        merger.decide(path)
        yield done, len(their_changes), "merging"
    return merger.outcome


def _add_unseen(theirs: Tree, changes: dict[bytes, EntryPair], unseen: list[bytes]) -> None:
    """Count *unseen* paths of theirs as additions.

    *theirs* made these files, our side never saw them, and the lower has got files with the same content since. The base shows
    the lower's, so the comparison reports no change. Without this, it would look as if our side had removed them. For git
    objects, objects that only the lower has count too, because commits of theirs may need them.
    """
    finder = Finder(lambda name: has(theirs, name))
    while unseen:
        path = unseen.pop()
        entry, member = _find(theirs, path), finder.member(path)
        if entry is None or not (entry.id or (member is not None and member.kind == "object")):
            continue
        if path not in changes:
            changes[path] = EntryPair(path, None, entry, ())
        if entry.is_dir:
            unseen += [join(path, name) for name in theirs.names(entry)]


def _part_additions(
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
        if seen.was_removed(old.lower_path):
            continue
        changes[path] = pair._replace(old=None)
        if path in others:
            others[path] = others[path]._replace(old=None)
        elif other is not None and (shown := _find(other, path)) is not None:
            others[path] = EntryPair(path, None, shown, ())


def _find(tree: Tree, path: bytes) -> Inode | None:
    try:
        return tree.walk(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


class _Merger:
    """Decides path by path. *ours* and *theirs*: what each side changed, by path. Both paths of a rename are decided together."""

    def __init__(
        self, rules: Rules, ours: dict[bytes, EntryPair], theirs: dict[bytes, EntryPair], names: tuple[str, str]
    ) -> None:  # fmt: skip
        self._rules, self._ours, self._theirs, self._names = rules, ours, theirs, names
        self._objects = Objects()
        self._blobs: dict[Inode, Oid] = {}
        self._our_moves: dict[bytes, bytes] = {}
        self._their_moves: dict[bytes, bytes] = {}
        self._decided: set[bytes] = set()
        self.file_rules: dict[bytes, FileRule] = {}
        self.outcome = MergeOutcome()

    # -- what git has merged

    def add_settled(self, settled: Iterable[Clash]) -> None:
        """Note which conflicts between commits were decided, and which files got markers."""
        for path, kind, _ in settled:
            if self._rules.favor:
                self._note_decision(path, kind)
            elif kind in ("content", "add/add"):
                self.outcome.marked.append(path)

    def excerpt(self, path: bytes, trees: tuple[Tree, Tree, Tree]) -> tuple[str, str]:
        """Return the first lines of a file that clash, in ours and theirs; empty if it is no text on both sides."""
        inodes = [_find(tree, path) for tree in trees]
        was, here, there = (
            content_of(inode) if inode is not None and inode.is_file and _is_text_size(inode) else None for inode in inodes
        )
        if here is None or there is None or not text_merge.is_text(was, here, there):
            return "", ""
        return text_merge.first_clash(self._objects, (was, here, there))

    # -- renames

    def read(self) -> Generator[tuple[int, int, str], None, None]:
        """Find renames, if the other side changed or removed any file that is gone."""
        for changes, other, moves in ((self._ours, self._theirs, self._our_moves), (self._theirs, self._ours, self._their_moves)):
            if not any(_went(pair) and pair.path in other for pair in changes.values()):
                continue
            files = [pair for pair in changes.values() if (pair.old is None) != (pair.new is None)]
            for done, pair in enumerate(files):
                inode = pair.old or pair.new
                if inode is not None and inode.is_file and inode_stat.data_stat(inode).st_size <= text_merge.TEXT_BYTES:
                    self._blobs[inode] = self._objects.blob(content_of(inode))
                yield done, len(files), "looking for renames"
            moves |= renames.find(self._objects, files, self._blobs)

    def both_changed(self) -> list[bytes]:
        """Return the paths at which lines of both sides may be merged."""
        moved = [*self._our_moves.values(), *self._their_moves.values()]
        return [*(path for path, pair in self._theirs.items() if path in self._ours and not _is_dir(pair.new)), *moved]

    # -- one path

    def decide(self, path: bytes) -> None:
        """Decide about one path that the other side changed."""
        if path in self._decided:
            return
        theirs, ours = self._theirs[path], self._ours.get(path)
        moved_by_us, moved_by_them = self._our_moves.get(path), self._their_moves.get(path)
        if theirs.unseen:
            message = f"no directory in {self._names[1]}, which has never seen {_shown(theirs.unseen)}"
            self.outcome.conflicts.append(PathConflict(path, "type", message))
        elif ours is not None and (moved_by_us or moved_by_them):
            self._decide_moved(path, ours, theirs, moved_by_us, moved_by_them)
        elif ours is None:
            self._take(path, theirs)
        elif theirs.new is None or ours.new is None:
            self._decide_gone(path, ours, theirs)
        else:
            self._decide_both(path, theirs.old, ours.new, theirs.new)

    def _take(self, path: bytes, theirs: EntryPair) -> None:
        if theirs.new is not None and (above := self._not_a_directory(path)):
            self._conflict(path, "type", f"{_shown(above)} is no directory in {self._names[0]}", Step(path, theirs.new))
        elif _is_dir(theirs.old) and theirs.new is not None and not theirs.new.is_dir and self._was_filled(path):
            self._conflict(
                path,
                "type",
                f"no directory in {self._names[1]}, and {self._names[0]} put something into it",
                Step(path, theirs.new),
            )
        else:
            self.outcome.steps.append(Step(path, theirs.new))

    def _not_a_directory(self, path: bytes) -> bytes:
        """Return the path that our side made a file and that *path* of the other side needs as a directory; b"" for none."""
        parts = path.split(b"/")
        for depth in range(1, len(parts)):
            ours = self._ours.get(b"/".join(parts[:depth]))
            if ours is not None and ours.new is not None and not ours.new.is_dir:
                return ours.path
        return b""

    def _was_filled(self, path: bytes) -> bool:
        return any(pair.path.startswith(path + b"/") and pair.new is not None for pair in self._ours.values())

    def _decide_gone(self, path: bytes, ours: EntryPair, theirs: EntryPair) -> None:
        if theirs.new is None and ours.new is None:
            return
        if ours.new is None and _is_dir(theirs.new) and _is_dir(theirs.old):
            return  # what they put into it, or changed in it, is decided by itself
        if theirs.new is None and _is_dir(ours.new) and _is_dir(ours.old):
            self._take(path, theirs)  # goes if it is empty then
            return
        sides = self._names if ours.new is None else self._names[::-1]
        self._conflict(path, "modify/delete", f"deleted in {sides[0]}, changed in {sides[1]}", Step(path, theirs.new))

    def _decide_both(self, at: bytes, base: Inode | None, ours: Inode, theirs: Inode) -> None:
        """Decide about a file that both sides have and at least one has changed. The result goes to *at*."""
        if stat.S_IFMT(ours.mode) != stat.S_IFMT(theirs.mode):
            self._conflict(at, "type", "another kind of file on each side", Step(at, theirs))
        elif tree_diff.same_content(ours, theirs) or (base is not None and _unchanged(base, theirs)):
            self._merge_look(at, base, ours, theirs, source=ours)
        elif base is not None and _unchanged(base, ours):
            self._merge_look(at, base, ours, theirs, source=theirs)
        elif ours.is_file:
            content = self._merge_text(at, base, ours, theirs)
            if content is not None:
                self._merge_look(at, base, ours, theirs, source=ours, content=content)
        else:
            kind = "symlink" if stat.S_ISLNK(ours.mode) else "special"
            self._conflict(at, kind, "points elsewhere on each side", Step(at, theirs))

    def _merge_look(
        self, path: bytes, base: Inode | None, ours: Inode, theirs: Inode, *, source: Inode, content: bytes | None = None
    ) -> None:  # fmt: skip
        """Merge each attribute three-way. If both sides made the same change, ours is kept."""
        our_attributes, their_attributes = attributes_of(ours), attributes_of(theirs)
        old = attributes_of(base) if base is not None else their_attributes
        chosen, clashes = {}, []
        for name in ("mode", "uid", "gid", "xattrs"):
            was, here, there = getattr(old, name), getattr(our_attributes, name), getattr(their_attributes, name)
            chosen[name] = there if here == was else here
            if here not in (was, there) and there != was:
                clashes.append(name)
                chosen[name] = there if self._rules.favor == "theirs" else here
        if clashes and not self._rules.favor:
            self.outcome.conflicts.append(PathConflict(path, "attributes", f"both sides changed {', '.join(clashes)}"))
            return
        if clashes:
            self._note_decision(path, "attributes")
        if source is not ours or content is not None or chosen != {name: getattr(our_attributes, name) for name in chosen}:
            times = attributes_of(source) if content is None else our_attributes._replace(mtime_ns=time.time_ns())
            self.outcome.steps.append(Step(path, source, content, times._replace(**chosen)))

    # -- renames on one side or both

    def _decide_moved(self, path: bytes, ours: EntryPair, theirs: EntryPair, here: bytes | None, there: bytes | None) -> None:
        new = here or there
        assert new is not None
        our_inode, their_inode = self._ours[here].new if here else ours.new, self._theirs[there].new if there else theirs.new
        self._decided |= {here or new, there or new}
        if here and there and here != there:
            text = f"renamed to {_shown(here)} in {self._names[0]} and to {_shown(there)} in {self._names[1]}"
            for name, step in ((path, Step(path, None)), (here, Step(here, None)), (there, Step(there, their_inode))):
                self._conflict(name, "rename/rename", text, step)
        elif our_inode is None or their_inode is None:
            sides = self._names if here else self._names[::-1]
            text = f"renamed from {_shown(path)} in {sides[0]}, deleted in {sides[1]}"
            self._conflict(new, "rename/delete", text, Step(new, their_inode))
        elif not (here and there) and new in (self._theirs if here else self._ours):
            text = f"{_shown(path)} was renamed to a name that the other side added"
            self._conflict(new, "rename/add", text, Step(path, None), Step(new, self._theirs[new].new))
        else:
            self._move(path, ours.old, our_inode, their_inode, new, by_them=not here)

    def _move(self, path: bytes, base: Inode | None, ours: Inode, theirs: Inode, new: bytes, *, by_them: bool) -> None:
        before = len(self.outcome.steps)
        self._decide_both(new, base, ours, theirs)
        if by_them:
            if len(self.outcome.steps) == before:
                self.outcome.steps.append(Step(new, ours))
            self.outcome.steps.append(Step(path, None))

    # -- conflicts and text

    def _conflict(self, path: bytes, kind: str, message: str, *theirs: Step, excerpt: tuple[str, str] = ("", "")) -> None:
        """Record a conflict, or decide it by the rules. *theirs*: the steps to take if their side wins."""
        favor = self._rules.favor or git_favor(path)
        if favor not in ("ours", "theirs"):
            self.outcome.conflicts.append(PathConflict(path, kind, message, excerpt))
            return
        self._note_decision(path, kind)
        if favor == "theirs":
            self.outcome.steps += theirs

    def _note_decision(self, path: bytes, kind: str) -> None:
        if self._rules.favor:
            winner = {"ours": self._names[0], "theirs": self._names[1]}.get(self._rules.favor, "")
            self.outcome.decided.append(MergeDecision(path, kind, winner))

    def _merge_text(self, path: bytes, base: Inode | None, ours: Inode, theirs: Inode) -> bytes | None:
        """Return the merged content; None if there is a conflict, which is then recorded, or if one side is taken whole."""
        was, here, there = (
            content_of(inode) if inode is not None and _is_text_size(inode) else None for inode in (base, ours, theirs)
        )
        binary = here is None or there is None or not text_merge.is_text(was, here, there)
        if binary or self._rules.whole_files:
            self._conflict(path, "binary" if binary else "content", "changed on both sides", Step(path, theirs))
            return None
        rule = self.file_rules.get(path, BY_LINES)
        if rule.way == "whole":
            self._conflict(path, rule.kind, rule.message, Step(path, theirs))
            return None
        sides, favor = (was, here, there), self._rules.favor or git_favor(path)
        merged = text_merge.merge_lines(self._objects, sides, "union" if rule.way == "union" else "")
        if merged is not None:
            return merged
        kind, message = (
            ("content", "both sides changed the same lines") if base is not None else ("add/add", "added on both sides")
        )
        if favor:
            merged = text_merge.merge_lines(self._objects, sides, favor)
        elif self._rules.markers and not is_in_git(path, ours, theirs):
            self.outcome.marked.append(path)
            return text_merge.merge_with_markers(self._objects, sides, self._names)
        if merged is None:
            excerpt = text_merge.first_clash(self._objects, sides)
            self._conflict(path, kind, message, Step(path, theirs), excerpt=excerpt)
        else:
            self._note_decision(path, kind)
        return merged


def content_of(inode: Inode) -> bytes:
    """Return the whole content of a file."""
    fd = content_fd(inode)
    with open(fd, "rb", buffering=0) as file:
        os.lseek(fd, 0, os.SEEK_SET)
        return file.readall() or b""


def _is_text_size(inode: Inode) -> bool:
    return inode_stat.data_stat(inode).st_size <= text_merge.TEXT_BYTES


def _unchanged(base: Inode, side: Inode) -> bool:
    return stat.S_IFMT(base.mode) == stat.S_IFMT(side.mode) and tree_diff.same_content(base, side)


def _went(pair: EntryPair) -> bool:
    return pair.new is None and pair.old is not None and pair.old.is_file


def _is_dir(inode: Inode | None) -> bool:
    return inode is not None and inode.is_dir


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
