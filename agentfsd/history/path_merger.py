"""Decides a merge path by path: renames, text, attributes and kinds of files have their rules here.

A path that one side changed is taken from that side; libgit2 merges text that both sides changed. What git cannot hold (modes,
owners, extended attributes, empty directories, special files) is merged here by the same rule.

It changes nothing, and never knows how the changes were found: merge.py gives it those of both sides.
"""

import stat
import time
from collections.abc import Container, Generator, Iterable

from pygit2 import Oid

from agentfsd.core import inode_stat, tree_diff
from agentfsd.core.transplant import attributes_of
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.core.tree_diff import EntryPair
from agentfsd.core.whole_contents import content_of
from agentfsd.history import kept_bases, renames, text_merge
from agentfsd.history.git_file_rules import git_favor, is_in_git
from agentfsd.history.kept_bases import KeptBase
from agentfsd.history.merge_records import LeftOpen, MergeDecision, MergeOutcome, PathConflict, Rules, Step
from agentfsd.history.objects import Objects
from agentfsd.history.paths import shown
from agentfsd.repositories.commits import NEW_NAMES, Clash
from agentfsd.repositories.merge_attributes import BY_LINES, FileRule
from agentfsd.repositories.reading import at

_WITH_MARKERS = ("content", "add/add", "rename/add")  # kinds of conflicts between commits of which git leaves markers


class PathMerger:
    """Decides path by path. *ours* and *theirs*: what each side changed, by path. Both paths of a rename are decided together.

    Attributes:
        outcome: What was decided until now.
    """

    def __init__(
        self, rules: Rules, ours: dict[bytes, EntryPair], theirs: dict[bytes, EntryPair], names: tuple[str, str],
        committed: Container[bytes] = frozenset(),
    ) -> None:  # fmt: skip
        """Create a merger. *committed*: paths of files that git's merge of the histories has."""
        self._rules, self._ours, self._theirs, self._names = rules, ours, theirs, names
        self._committed = committed
        self._objects = Objects()
        self._blobs: dict[Inode, Oid] = {}
        self._our_moves: dict[bytes, bytes] = {}
        self._their_moves: dict[bytes, bytes] = {}
        self._old_names: dict[bytes, list[bytes]] = {}  # of paths that the other side changed, by new name
        self._decided: set[bytes] = set()
        self._kept: dict[bytes, KeptBase] = {}  # of files of theirs: what they were made from, if the lower has changed since
        self._places: dict[bytes, tuple[bytes, bytes, bytes]] = {}  # of renamed files: in the base, ours and theirs
        self.file_rules: dict[bytes, FileRule] = {}
        self.outcome = MergeOutcome()

    # -- what git has merged

    def add_settled(self, settled: Iterable[Clash]) -> None:
        """Note which conflicts between commits were decided, and which files got markers."""
        for path, kind, message in settled:
            if self._rules.favor and kind in NEW_NAMES:
                self.outcome.decided.append(MergeDecision(path, kind, ""))
            elif self._rules.favor:
                self._note_decision(path, kind)
            elif self._rules.leave:
                self.outcome.left.append(LeftOpen(path, kind, message, (path,) * 3, kind in _WITH_MARKERS, by_git=True))
            elif kind in _WITH_MARKERS:
                self.outcome.marked.append(path)

    def excerpt(self, path: bytes, trees: tuple[Tree, Tree, Tree]) -> tuple[str, str]:
        """Return the first lines of a file that clash, in ours and theirs; empty if it is no text on both sides."""
        inodes = [at(tree, path) for tree in trees]
        was, here, there = (
            content_of(inode) if inode is not None and inode.is_file and _is_text_size(inode) else None for inode in inodes
        )
        if here is None or there is None or not text_merge.is_text(was, here, there):
            return "", ""
        return text_merge.first_clash(self._objects, (was, here, there))

    # -- renames

    def read(self) -> Generator[tuple[int, int, str], None, None]:
        """Find what the lower has changed, and renames if the other side changed or removed any file that is gone."""
        for done, (path, pair) in enumerate(self._theirs.items() if not self._rules.leave else ()):
            if (kept := kept_bases.find(pair)) is not None:
                self._kept[path] = kept
            yield done, len(self._theirs), "changes"
        for changes, other, moves in ((self._ours, self._theirs, self._our_moves), (self._theirs, self._ours, self._their_moves)):
            if not any(_went(pair) and pair.path in other for pair in changes.values()):
                continue
            files = [pair for pair in changes.values() if (pair.old is None) != (pair.new is None)]
            for done, pair in enumerate(files):
                inode = pair.old or pair.new
                if inode is not None and inode.is_file and inode_stat.data_stat(inode).st_size <= text_merge.TEXT_BYTES:
                    self._blobs[inode] = self._objects.blob(content_of(inode))
                yield done, len(files), "looking for renames"
            for group in _by_work_tree(files):
                moves |= renames.find(self._objects, group, self._blobs)
            for old, new in moves.items():
                if old in self._theirs:
                    self._old_names.setdefault(new, []).append(old)

    def both_changed(self) -> list[bytes]:
        """Return the paths at which lines of both sides may be merged."""
        moved = [*self._our_moves.values(), *self._their_moves.values()]
        theirs = (path for path, pair in self._theirs.items() if path in self._ours and not _is_dir(pair.new))
        return [*dict.fromkeys([*theirs, *self._kept]), *moved]

    # -- one path

    def decide(self, path: bytes) -> None:
        """Decide about one path that the other side changed; if it is the new name of a file, together with the old one."""
        for old in self._old_names.get(path, ()):
            self._decide(old)
        self._decide(path)

    def _decide(self, path: bytes) -> None:
        if path in self._decided:
            return
        self._decided.add(path)
        theirs, ours = self._theirs[path], self._ours.get(path)
        moved_by_us, moved_by_them = self._our_moves.get(path), self._their_moves.get(path)
        if theirs.unseen:
            message = f"no directory in {self._names[1]}, which has never seen {shown(theirs.unseen)}"
            self.outcome.conflicts.append(PathConflict(path, "type", message))
        elif ours is not None and (moved_by_us or moved_by_them):
            self._decide_moved(path, ours, theirs, moved_by_us, moved_by_them)
        elif ours is None and path in self._kept and theirs.old is not None and theirs.new is not None:
            self._decide_both(path, theirs.old, theirs.old, theirs.new)
        elif ours is None:
            self._take(path, theirs)
        elif theirs.new is None or ours.new is None:
            self._decide_gone(path, ours, theirs)
        else:
            self._decide_both(path, theirs.old, ours.new, theirs.new)

    def _take(self, path: bytes, theirs: EntryPair) -> None:
        if theirs.new is not None and (above := self._not_a_directory(path)):
            self._conflict(path, "type", f"{shown(above)} is no directory in {self._names[0]}", Step(path, theirs.new))
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
        elif tree_diff.same_content(ours, theirs) or (base is not None and at not in self._kept and _unchanged(base, theirs)):
            self._merge_look(at, base, ours, theirs, source=ours)
        elif base is not None and at not in self._kept and _unchanged(base, ours):
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
        text = f"both sides changed {', '.join(clashes)}"
        if clashes and not self._rules.favor and not self._rules.leave:
            self.outcome.conflicts.append(PathConflict(path, "attributes", text))
            return
        if clashes and not self._rules.favor:
            self._leave(path, "attributes", text)
        elif clashes:
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
            assert our_inode is not None
            assert their_inode is not None
            self._decide_two_names((path, here, there), ours.old, our_inode, their_inode)
        elif our_inode is None or their_inode is None:
            self._decide_moved_or_gone(path, new, their_inode, by_them=not here)
        elif not (here and there) and new in (self._theirs if here else self._ours):
            text = f"{shown(path)} was renamed to a name that the other side added"
            self._conflict(new, "rename/add", text, Step(path, None), Step(new, self._theirs[new].new))
        else:
            self._move(path, ours.old, our_inode, their_inode, new, by_them=not here)

    def _decide_two_names(self, paths: tuple[bytes, bytes, bytes], base: Inode | None, ours: Inode, theirs: Inode) -> None:
        """Decide about a file to which each side gave a name of its own. The favoured name gets the changes of both sides."""
        path, here, there = paths
        favored = {"ours": here, "theirs": there}.get(self._rules.favor)
        if all(name in self._committed for name in (here, there) if name != favored):
            self._decide_apart(here, there)
            return
        if self._rules.favor not in ("ours", "theirs"):
            text = f"renamed to {shown(here)} in {self._names[0]} and to {shown(there)} in {self._names[1]}"
            for name, step in ((path, Step(path, None)), (here, Step(here, None)), (there, Step(there, theirs))):
                self._conflict(name, "rename/rename", text, step)
            return
        by_them = self._rules.favor == "theirs"
        self._move(path, base, ours, theirs, there if by_them else here, by_them=by_them)
        self.outcome.steps += [Step(here, None)] if by_them else []
        told = {decision.path for decision in self.outcome.decided}
        for name in (name for name in paths if name not in told):
            self._note_decision(name, "rename/rename")

    def _decide_apart(self, *names: bytes) -> None:
        """Decide about two names of one file each for itself: the merged commit has the file that looks like a second name."""
        self._decided -= set(names)
        for name in names:
            if name in self._theirs:
                self._decide(name)

    def _decide_moved_or_gone(self, path: bytes, new: bytes, theirs: Inode | None, *, by_them: bool) -> None:
        """Decide about a file that one side renamed, and the other deleted. No favoured side deletes a name that it never had."""
        favor = self._rules.favor or git_favor(new)
        if new not in self._committed and not favor:
            sides = self._names[::-1] if by_them else self._names
            text = f"renamed from {shown(path)} in {sides[0]}, deleted in {sides[1]}"
            self._conflict(new, "rename/delete", text)
            return
        self.outcome.steps += [Step(new, theirs)] if by_them else []
        if new not in self._committed:
            self.outcome.decided.append(MergeDecision(new, "rename/delete", ""))

    def _move(self, path: bytes, base: Inode | None, ours: Inode, theirs: Inode, new: bytes, *, by_them: bool) -> None:
        before = len(self.outcome.steps)
        if path in self._kept:
            self._kept[new] = self._kept[path]
        self._places[new] = (path, path if by_them else new, new if by_them or self._their_moves.get(path) == new else path)
        self._decide_both(new, base, ours, theirs)
        if by_them:
            if len(self.outcome.steps) == before:
                self.outcome.steps.append(Step(new, ours))
            self.outcome.steps.append(Step(path, None))

    # -- conflicts and text

    def _conflict(self, path: bytes, kind: str, message: str, *theirs: Step, excerpt: tuple[str, str] = ("", "")) -> None:
        """Record a conflict, or decide it by the rules. *theirs*: the steps to take if their side wins."""
        favor = self._rules.favor or git_favor(path)
        if favor not in ("ours", "theirs") and self._rules.leave:
            self._leave(path, kind, message, *theirs)
            return
        if favor not in ("ours", "theirs"):
            self.outcome.conflicts.append(PathConflict(path, kind, message, excerpt))
            return
        self._note_decision(path, kind)
        if favor == "theirs":
            self.outcome.steps += theirs

    def _leave(self, path: bytes, kind: str, message: str, *theirs: Step, marked: bool = False) -> None:
        """Leave a conflict in our side, at each path that it is about."""
        for place in dict.fromkeys((path, *(step.path for step in theirs))):
            self.outcome.left.append(LeftOpen(place, kind, message, self._places.get(place, (place,) * 3), marked))

    def _note_decision(self, path: bytes, kind: str) -> None:
        if self._rules.favor:
            winner = {"ours": self._names[0], "theirs": self._names[1]}.get(self._rules.favor, "")
            self.outcome.decided.append(MergeDecision(path, kind, winner))

    def _merge_text(self, path: bytes, base: Inode | None, ours: Inode, theirs: Inode) -> bytes | None:
        """Return the merged content; None if there is a conflict, which is then recorded, or if one side is taken whole."""
        was, here, there = (
            content_of(inode) if inode is not None and _is_text_size(inode) else None for inode in (base, ours, theirs)
        )
        if path in self._kept:
            was = self._kept[path].read()
            if was in (here, there):  # one side is as it was: the lower was only touched, say
                self._merge_look(path, base, ours, theirs, source=theirs if here == was else ours)
                return None
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
        elif self._rules.leave and not is_in_git(path, ours, theirs):
            self._leave(path, kind, message, marked=True)
            return text_merge.merge_with_markers(self._objects, sides, self._names, text_merge.BASE)
        elif self._rules.markers and not is_in_git(path, ours, theirs):
            self.outcome.marked.append(path)
            return text_merge.merge_with_markers(self._objects, sides, self._names)
        if merged is None:
            excerpt = text_merge.first_clash(self._objects, sides)
            self._conflict(path, kind, message, Step(path, theirs), excerpt=excerpt)
        else:
            self._note_decision(path, kind)
        return merged


def _is_text_size(inode: Inode) -> bool:
    return inode_stat.data_stat(inode).st_size <= text_merge.TEXT_BYTES


def _unchanged(base: Inode, side: Inode) -> bool:
    return stat.S_IFMT(base.mode) == stat.S_IFMT(side.mode) and tree_diff.same_content(base, side)


def _by_work_tree(files: Iterable[EntryPair]) -> Iterable[list[EntryPair]]:
    """Group files by the work tree of git that holds them: a file does not move from one repository, or checkout, to another."""
    known: dict[tuple[Tree, bytes], bytes] = {}
    groups: dict[bytes, list[EntryPair]] = {}
    for pair in files:
        inode = pair.new or pair.old
        assert inode is not None
        groups.setdefault(_work_tree(inode.tree, pair.path.rpartition(b"/")[0], known), []).append(pair)
    return groups.values()


def _work_tree(tree: Tree, directory: bytes, known: dict[tuple[Tree, bytes], bytes]) -> bytes:
    """Return the nearest directory with a ``.git`` in it, from *directory* up; b"" if only the root may have one."""
    if directory and (tree, directory) not in known:
        has_git = at(tree, join(directory, b".git")) is not None
        known[tree, directory] = directory if has_git else _work_tree(tree, directory.rpartition(b"/")[0], known)
    return known[tree, directory] if directory else b""


def _went(pair: EntryPair) -> bool:
    return pair.new is None and pair.old is not None and pair.old.is_file


def _is_dir(inode: Inode | None) -> bool:
    return inode is not None and inode.is_dir
