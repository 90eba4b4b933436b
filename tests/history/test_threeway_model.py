"""Two branches and a lower that somebody changes meanwhile, against a plain three-way comparison of dictionaries."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from agentfsd.core import directory_entries
from agentfsd.core.tree import Tree, join
from agentfsd.history.commit import Rule
from agentfsd.lower import host_lower
from tests.history.replay import run
from tests.history.test_commit_model import overlay
from tests.history.trees import commit_lower, remove
from tests.overlays import OWNER, Opened
from tests.rounds import rounds

MANY = rounds("random three-way histories", 0, 300)  # 0: a few, always the same ones
EXAMPLES = settings(
    max_examples=MANY or 12, derandomize=not MANY, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
FILES = (b"a", b"dir/a", b"dir/n", b"dir/sub/b", b"dir/sub/n", b"new", b"made/x", b"made/y", b"made/deep/z", b"dir")
PLACES = (*FILES, b"dir/sub", b"made", b"made/deep")
WHO = ("one", "two", "lower")
Step = tuple[str, str, bytes]
STEPS = st.lists(
    st.tuples(st.sampled_from(WHO), st.sampled_from(["write", "remove", "snapshot"]), st.sampled_from(PLACES)), max_size=10
)


@pytest.fixture(autouse=True, scope="module")
def at_once() -> Iterator[None]:
    """A directory of the lower that was replaced is noticed at once, not within a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_lower, "CACHE_S", 0.001)
        yield


Files = dict[bytes, bytes]
RULES: tuple[Rule, ...] = ("refuse", "force")


@dataclass
class Side:
    """One branch as a plain model: what it changed, and what it has seen there before. None: no file."""

    changed: dict[bytes, tuple[bytes | None, bytes | None]] = field(default_factory=dict)  # (before, now)
    made: set[bytes] = field(default_factory=set)  # directories that it made or removed: it sees nothing of the lower there
    cut: bool = False  # whether it removed a directory with what that held

    def shows(self, lower: Files) -> Files:
        found = {path: data for path, data in lower.items() if path not in self.changed and not self._is_hidden(path)}
        return found | {path: now for path, (_, now) in self.changed.items() if now is not None}

    def _is_hidden(self, path: bytes) -> bool:
        """Below a directory that it made, or a file that it has; or a directory where it has a file."""
        return any(above in self.made or self.changed.get(above, (None, None))[1] is not None for above in parents(path))

    def put(self, path: bytes, data: bytes | None, lower: Files) -> None:
        before = self.changed[path][0] if path in self.changed else self.shows(lower).get(path)
        if data is None and before is None and path not in lower:
            self.changed.pop(path, None)  # it made the file itself, and nobody else has one there
        else:
            self.changed[path] = before, data


def parents(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]


def committed(side: Side, lower: Files, rule: str) -> Files | None:
    """What the lower is to hold; None for a conflict."""
    result = dict(lower)
    for path, (before, now) in side.changed.items():
        there = lower.get(path)
        if rule == "refuse" and there not in (before, now):
            return None
        if now is None:
            result.pop(path, None)
        else:
            result[path] = now
    for path, (_, now) in side.changed.items():
        if now is None:
            continue
        for above in parents(path):
            if above in result and side.changed.get(above, (None, None))[1] is None:
                if rule == "refuse":
                    return None
                del result[above]  # a file of the lower, where the branch has a directory
    clash = any(above in result for path in result for above in parents(path))
    return None if clash else result


def of_lower(opened: Opened) -> Files:
    root = os.fsencode(opened.base / "lower")
    found = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = file.read()
    return found


def of_branch(opened: Opened, ref: str) -> Files:
    tree, found = opened.tree(ref), {}

    def collect(path: bytes) -> None:
        node = tree.walk(path)
        for name in tree.names(node):
            below = join(path, name)
            if tree.walk(below).is_dir:
                collect(below)
            else:
                found[below] = opened.read(os.fsdecode(below), ref)

    collect(b"")
    return found


class World:
    """Does each step in an overlay and in the model."""

    def __init__(self, opened: Opened) -> None:
        self.opened, self.sides, self.count = opened, {name: Side() for name in WHO[:2]}, 0
        self.cut = False  # whether a directory of the lower was removed with what it held
        root = opened.base / "lower"
        (root / "dir" / "link").unlink()  # the model knows files with one name each
        for link in ("dir/sub/deep/link", "sub/a"):
            (root / link).unlink()
        for name in self.sides:
            opened.overlay.branches.create(name)

    def step(self, who: str, what: str, path: bytes) -> None:
        self.count += 1
        data = b"%s %d\n" % (who.encode(), self.count)
        if who == "lower":
            time.sleep(0.004)
            self._in_lower(what, path, data)
            time.sleep(0.004)
        elif what == "snapshot":
            self.opened.overlay.snapshots.create(who)
        else:
            self._in_branch(who, what, path, data)

    def _in_lower(self, what: str, path: bytes, data: bytes) -> None:
        place = os.path.join(os.fsencode(self.opened.base / "lower"), path)
        if what == "remove" and os.path.lexists(place):
            if os.path.isdir(place):
                self.cut = True
                _remove_tree(place)
            else:
                os.unlink(place)
        elif what == "write" and path in FILES and not os.path.isdir(place):
            try:
                os.makedirs(os.path.dirname(place), exist_ok=True)
            except OSError:
                return
            with open(place, "wb") as file:
                file.write(data)

    def _in_branch(self, who: str, what: str, path: bytes, data: bytes) -> None:
        tree, side, lower = self.opened.tree(who), self.sides[who], of_lower(self.opened)
        if what == "remove" and _exists(tree, path):
            for one in [name for name in side.shows(lower) if name == path or name.startswith(path + b"/")]:
                side.put(one, None, lower)
            if tree.walk(path).is_dir:
                side.cut = True
                side.made |= _directories(tree, path)
            remove(tree, path)
        elif what == "write" and path in FILES and not self._is_directory(tree, path):
            if any(_exists(tree, above) and not tree.walk(above).is_dir for above in parents(path)):
                return
            for above in parents(path):
                if not _exists(tree, above):
                    parent, _, name = above.rpartition(b"/")
                    directory_entries.make(tree, tree.walk(parent), name, 0o040755, OWNER)
                    side.made.add(above)
            side.put(path, data, lower)
            self.opened.write(os.fsdecode(path), data, who)

    @staticmethod
    def _is_directory(tree: Tree, path: bytes) -> bool:
        return _exists(tree, path) and tree.walk(path).is_dir


def _exists(tree: Tree, path: bytes) -> bool:
    try:
        tree.walk(path)
    except OSError:
        return False
    return True


def _directories(tree: Tree, path: bytes) -> set[bytes]:
    found = {path}
    for name in tree.names(tree.walk(path)):
        if tree.walk(join(path, name)).is_dir:
            found |= _directories(tree, join(path, name))
    return found


def _remove_tree(path: bytes) -> None:
    for directory, subdirectories, names in os.walk(path, topdown=False):
        for name in names:
            os.unlink(os.path.join(directory, name))
        for name in subdirectories:
            os.rmdir(os.path.join(directory, name))
    os.rmdir(path)


def check_commit(world: World, who: str, rule: Rule, *, whole: bool) -> bool:
    """Whether it was committed."""
    opened, side, before = world.opened, world.sides[who], of_lower(world.opened)
    wanted = committed(side, before, rule)
    found = commit_lower(opened, rule=rule, ref=who, whole=whole)
    after = of_lower(opened)
    if found.conflicts:  # a directory that was removed on one side, and got something on the other, could not go as a whole
        assert wanted is None or (rule == "refuse" and (side.cut or world.cut)), found.conflicts
        assert after == before
        return False
    assert wanted is not None, "a conflict was not found"
    assert after == wanted
    assert not [change.path for change in opened.overlay.comparison.diff(None, who) if change.status != "m"]
    world.cut |= side.cut
    return True


@EXAMPLES
@given(STEPS, st.sampled_from(RULES))
def test_a_branch_in_use_shows_the_same_after_a_commit(steps: list[Step], rule: Rule) -> None:
    with overlay() as opened:
        world = World(opened)
        for step in steps:
            world.step(*step)
        for who, side in world.sides.items():
            shown = of_branch(opened, who)
            assert shown == side.shows(of_lower(opened))
            if not check_commit(world, who, rule, whole=False):
                return
            assert of_branch(opened, who) == shown
        assert opened.overlay.fsck() == []


@EXAMPLES
@given(STEPS, STEPS, st.sampled_from(RULES))
def test_a_commit_is_what_a_plain_comparison_makes_of_it(first: list[Step], second: list[Step], rule: Rule) -> None:
    with overlay() as opened:
        world = World(opened)
        for steps in (first, second):
            for step in steps:
                world.step(*step)
            for who in world.sides:
                if not check_commit(world, who, rule, whole=True):
                    return
                world.sides[who] = Side()
        assert opened.overlay.fsck() == []


@EXAMPLES
@given(STEPS, STEPS)
def test_a_merge_removes_nothing_that_neither_branch_removed(steps: list[Step], more: list[Step]) -> None:
    with overlay() as opened:
        world = World(opened)
        for step in steps:
            world.step(*step)
        sides, lower = world.sides, of_lower(opened)
        before, theirs = of_branch(opened, "one"), sides["two"]
        found = run(opened, ["two"], "one")
        after = of_branch(opened, "one")
        if found.conflicts:
            assert after == before
            return
        removed = {path for side in sides.values() for path, (_, now) in side.changed.items() if now is None}
        assert before.keys() - after.keys() <= removed
        for path, (seen, now) in theirs.changed.items():
            if path not in sides["one"].changed and (seen is not None or lower.get(path) is None):
                assert after.get(path) == now, path
        for step in [step for step in more if step[0] == "lower"]:
            world.step(*step)
        there = of_lower(opened)
        if not commit_lower(opened, rule="force", ref="one").conflicts:
            covered = {above for path in after for above in parents(path)}  # a file of the lower where the branch has a directory
            assert there.keys() - of_lower(opened).keys() <= removed | covered
        assert opened.overlay.fsck() == []
