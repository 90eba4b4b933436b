"""Committing a branch into the lower: which steps that takes, what moved there meanwhile, and what the branch is afterwards.

The steps are taken by lower/writer.py, in another thread: nothing here writes to the lower.
"""

import os
import stat
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agentfsd.core import diff, origin
from agentfsd.core.attributes import all_xattrs
from agentfsd.core.diff import Pair
from agentfsd.core.inode import NO_LOWER, Inode, LowerIdentity
from agentfsd.core.inode import Attributes as Shown
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree, join
from agentfsd.history import links
from agentfsd.history.merge import Conflict, Rules, content_of, git_favor, merge_texts
from agentfsd.history.paths import touches
from agentfsd.lower.plan import ABSENT, Adjust, Attributes, Content, Identity, Put, Remove, Step
from agentfsd.metadata import origins
from agentfsd.types import Backstore, Lower

Rule = Literal["refuse", "merge", "force"]  # what becomes of paths that moved in the lower


@dataclass(slots=True)
class Plan:
    """``changed``: every path that will be different in the lower."""

    steps: list[Step] = field(default_factory=list)
    changed: list[bytes] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)


def plan(overlay: Overlay, tree: Tree, wanted: tuple[bytes, ...], rule: Rule) -> Generator[tuple[int, int, str], None, Plan]:
    """What it takes for the lower to be what *tree*, which must hold still, shows; of *wanted* paths only, if there are any."""
    pairs: dict[bytes, Pair] = {}
    for pair in diff.pairs(overlay.parts, overlay.side(None), tree, times=True):
        pairs[pair.path] = pair
        if len(pairs) % 50 == 0:
            yield len(pairs), 0, "changes"
    chosen = _with_directories(pairs, wanted) if wanted else pairs
    planner = _Planner(tree, rule)
    for done, pair in enumerate(chosen.values()):
        planner.add(pair)
        yield done, len(chosen), "comparing with the lower"
    planner.add_links()
    return planner.plan


def _with_directories(pairs: dict[bytes, Pair], wanted: tuple[bytes, ...]) -> dict[bytes, Pair]:
    """What is wanted, and the new directories that it lies in."""
    needed = {path for path in pairs if touches(wanted, path)}
    for path in list(needed):
        if pairs[path].new is not None:
            parts = path.split(b"/")
            above = (b"/".join(parts[:depth]) for depth in range(1, len(parts)))
            needed.update(name for name in above if name in pairs and _is_new(pairs[name]))
    return {path: pair for path, pair in pairs.items() if path in needed}


def _is_new(pair: Pair) -> bool:
    return pair.old is None or "type" in pair.what


class _Planner:
    def __init__(self, tree: Tree, rule: Rule) -> None:
        self._tree, self._rule = tree, rule
        self._displaced: set[bytes] = set()  # directories of the lower that go with all they hold
        self._puts: dict[bytes, Put] = {}
        self._linked: list[Inode] = []
        self._reached: dict[bytes, tuple[Inode | None, int | None]] = {}
        self._origins = origins.find_all(tree.store, tree.chain)
        self.plan = Plan()

    def add(self, pair: Pair) -> None:
        """Call in the order of diff.pairs: a directory before what it holds."""
        path = pair.path
        if self._rule == "force" or not self._moved(pair):
            self._step(pair, None)
        elif self._may_stay(pair):
            return
        elif self._rule == "merge" and _both_files(pair):
            self._merge(pair)
        else:
            there = "deleted" if pair.old is None else "changed"
            self.plan.conflicts.append(Conflict(path, "drift", f"{there} in the real directory since the branch changed it"))

    def _may_stay(self, pair: Pair) -> bool:
        """Attributes of a directory, and times: the lower's own are as good, and nobody means to overwrite them."""
        if pair.old is None or pair.new is None or {"content", "type"} & set(pair.what):
            return False
        return set(pair.what) == {"times"} or (self._rule == "merge" and pair.new.is_dir)

    # -- what moved

    def _moved(self, pair: Pair) -> bool:
        """Whether the lower has something else at that path than when the branch changed it."""
        if not pair.path:
            return False
        parent, _, name = pair.path.rpartition(b"/")
        node, since_ns = self._reach(parent)
        if node is None:
            return since_ns is None or _changed_since(self._tree.lower, pair.path, since_ns)
        row = self._origins.get((node.id, name))
        now = _in_lower(pair)
        if pair.old is not None and pair.old.is_dir and pair.new is not None and pair.new.is_dir:
            return self._directory_moved(pair.new, now)
        before = origin.identity_of(row) if row is not None else _own_identity(pair)
        if pair.old is not None and pair.old.is_dir and row is not None:
            return now[:2] != before[:2] or _changed_below(self._tree.lower, pair.path, row.since_ns)
        return now != before

    def _reach(self, path: bytes) -> tuple[Inode | None, int | None]:
        """The branch's directory at *path*; where it has none (any more), None and when that was noted."""
        if path not in self._reached:
            node: Inode | None = self._tree.root
            since_ns = None
            for part in path.split(b"/") if path else ():
                assert node is not None
                row = self._origins.get((node.id, part))
                node = self._tree.find(node, part)
                if node is None or not node.is_dir:
                    node, since_ns = None, row.since_ns if row is not None else None
                    break
            self._reached = {path: (node, since_ns)}  # the next one is most often in the same directory
        return self._reached[path]

    @staticmethod
    def _directory_moved(inode: Inode, now: LowerIdentity) -> bool:
        """Its change time moves with what it holds, too: in doubt its attributes have moved."""
        return now[:2] != inode.lower[:2] or now.ctime_ns > max(inode.btime_ns, inode.lower.ctime_ns)

    def _merge(self, pair: Pair) -> None:
        assert pair.new is not None
        favor = git_favor(pair.path)
        if favor == "ours":
            return
        base = self._base(pair)
        if base is None:
            message = "changed on both sides, and what it was before is not kept"
            self.plan.conflicts.append(Conflict(pair.path, "drift", message))
            return
        assert pair.old is not None
        merged = merge_texts(base, content_of(pair.old), content_of(pair.new), Rules(favor))
        if merged is None:
            message = "changed in the real directory and in the branch, on the same lines or not as text"
            self.plan.conflicts.append(Conflict(pair.path, "content", message))
        else:
            self._step(pair, merged)

    def _base(self, pair: Pair) -> bytes | None:
        """What the file was when the branch first changed it."""
        if pair.within is None or not pair.within.id:
            return None
        row = self._origins.get((pair.within.id, pair.path.rpartition(b"/")[2]))
        if row is None or not (row.base or row.lower_size == 0):
            return None
        if not row.base:
            return b""
        with open(ObjectContent(self._tree.backstore, row.base, row.lower_size).open(), "rb") as file:
            file.seek(0)
            return file.read()

    # -- steps

    def _step(self, pair: Pair, content: bytes | None) -> None:
        path = pair.path
        if set(pair.what) != {"times"} or (pair.new is not None and pair.new.is_file):
            self.plan.changed.append(path)  # that a directory's time follows what changed inside is no news
        if pair.new is None and self._displaced and not self._displaced.isdisjoint(_directories(path)):
            return
        expected = None if self._rule == "force" else _identity(_in_lower(pair))
        if pair.old is not None and pair.old.is_dir and (pair.new is None or not pair.new.is_dir):
            self._displaced.add(path)
        if pair.new is None:
            self.plan.steps.append(Remove(path, expected))
        elif _is_new(pair) or "content" in pair.what:
            self._put(path, pair.new, expected, content, pair.shown)
        else:
            attributes = _as_told(pair.new, self._tree.attributes(pair.new))
            self.plan.steps.append(Adjust(path, attributes, expected if not pair.new.is_dir else None))

    def _put(
        self, path: bytes, inode: Inode, expected: Identity | None, content: bytes | None, shown: Shown | None = None
    ) -> None:  # fmt: skip
        attributes = shown or self._tree.attributes(inode)
        link = inode.id if not inode.is_dir and attributes.nlink > 1 else 0
        source: Content | None = None
        if inode.is_file:
            source = BytesContent(content) if content is not None else self._source(inode, attributes.size)
        target = self._tree.readlink(inode) if stat.S_ISLNK(inode.mode) else b""
        put = Put(path, _as_told(inode, attributes), source, target, attributes.rdev, link, expected)
        self._puts[path] = put
        self.plan.steps.append(put)
        if link and inode not in self._linked:
            self._linked.append(inode)

    def _source(self, inode: Inode, size: int) -> Content:
        if inode.content:
            return ObjectContent(self._tree.backstore, inode.content, size)
        assert inode.lower_path is not None
        return LowerContent(self._tree.lower, inode.lower_path, size)

    def add_links(self) -> None:
        """A file with several names is made anew under all of them, or they would part."""
        adjusted = {step.path: step for step in self.plan.steps if isinstance(step, Adjust)}
        for inode in self._linked:
            for path in links.names(self._tree, inode):
                if path in self._puts:
                    continue
                if path in adjusted:
                    self.plan.steps.remove(adjusted[path])
                else:
                    self.plan.changed.append(path)
                expected = None if self._rule == "force" else _identity(origin.now_in_lower(self._tree, path))
                self._put(path, inode, expected, None)
        self.plan.steps.sort(key=lambda step: step.path)


def _as_told(inode: Inode, found: Shown) -> Attributes:
    """For the writer."""
    return Attributes(found.mode, found.uid, found.gid, found.atime_ns, found.mtime_ns, dict(all_xattrs(inode.tree, inode)))


def _in_lower(pair: Pair) -> LowerIdentity:
    """What the lower had at that path when the two were compared, a moment ago."""
    return pair.old.lower if pair.old is not None else NO_LOWER


def _identity(found: LowerIdentity) -> Identity:
    """For the writer."""
    return ABSENT if found == NO_LOWER else Identity(found.ino, found.size, found.mtime_ns, found.ctime_ns)


def _own_identity(pair: Pair) -> LowerIdentity:
    """As it was when only its attributes were changed; NO_LOWER for what the branch made where the lower had nothing."""
    if pair.new is not None and pair.new.id and pair.new.lower_path == pair.path:
        return pair.new.lower
    return NO_LOWER


def _both_files(pair: Pair) -> bool:
    return pair.old is not None and pair.new is not None and pair.old.is_file and pair.new.is_file


def _directories(path: bytes) -> Iterable[bytes]:
    parts = path.split(b"/")
    return (b"/".join(parts[:depth]) for depth in range(1, len(parts)))


def _changed_since(lower: Lower, path: bytes, since_ns: int) -> bool:
    try:
        return lower.stat(path).st_ctime_ns > since_ns
    except (FileNotFoundError, NotADirectoryError):
        return True


def _changed_below(lower: Lower, path: bytes, since_ns: int) -> bool:
    """Whether anything in a directory of the lower, or it itself, changed after that."""
    if _changed_since(lower, path, since_ns):
        return True
    for entry in lower.readdir(path):
        below = join(path, entry.name)
        if _changed_since(lower, below, since_ns):
            return True
        if stat.S_ISDIR(lower.stat(below).st_mode) and _changed_below(lower, below, since_ns):
            return True
    return False


# -- where contents come from, for the thread that writes


class ObjectContent(NamedTuple):
    backstore: Backstore
    number: int
    size: int

    def open(self) -> int:
        found = self.backstore.open(self.number)
        try:
            return os.dup(found.fileno())
        finally:
            found.close()


class LowerContent(NamedTuple):
    lower: Lower
    path: bytes
    size: int

    def open(self) -> int:
        return self.lower.open(self.path)


class BytesContent:
    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def open(self) -> int:
        fd = os.memfd_create("merged")
        os.write(fd, self._data)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd


# -- afterwards


def settle(overlay: Overlay, branch_id: str, seen: int, paths: list[bytes], *, whole: bool) -> None:
    """After the lower has it all: the branch, whose state *seen* was committed, lets go of it where nobody holds it open.

    *whole*: nothing was left out, and no process is in the branch. Otherwise the branch keeps its own, and knows the lower anew.
    """
    if not overlay.has_tree(branch_id):
        return
    if whole and overlay.is_still(branch_id, seen) and not any(inode.opens for inode in overlay.branch_tree(branch_id).loaded()):
        overlay.become_bare(branch_id)
        return
    tree = overlay.branch_tree(branch_id)
    with overlay.store.transaction() as tx:
        for path in paths:
            parent, _, name = path.rpartition(b"/")
            try:
                directory = tree.walk(parent)
            except OSError:
                continue
            if path and directory.id and directory.is_dir:
                origin.renew(tx, directory, name, path)
