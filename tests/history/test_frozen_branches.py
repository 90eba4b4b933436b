"""A branch with a frozen base shows the same, whatever happens in the real directory and in other branches, until a rebase."""

import errno
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.core import directory_entries
from agentfsd.core.tree import Tree
from agentfsd.history import rebasing
from agentfsd.history.applying import Author
from agentfsd.history.commit import Rule
from agentfsd.history.merge_records import Rules
from agentfsd.history.merging import Merged, merge_branches
from agentfsd.history.rebasing import Side
from tests.history.trees import IN_BRANCH, IN_LOWER, PATHS, Look, Op, build, change, change_lower, commit_lower, of_tree, unlike
from tests.overlays import Opened
from tests.rounds import rounds, seed

MANY = rounds("histories of frozen branches", 10, 1500)
LIVE = ("main", "live")
_RULES: tuple[Rule, ...] = ("refuse", "merge", "force")


def run(steps: object) -> Merged:
    try:
        while True:
            next(steps)  # type: ignore[call-overload]
    except StopIteration as end:
        found: Merged = end.value
        return found


def rebase(opened: Opened, ref: str, side: Side = "branch") -> Merged:
    steps = rebasing.rebase(opened.overlay, ref, opened.freeze(), side, Author(), lambda *_: [])
    return run(steps)


def merge(opened: Opened, source: str, target: str) -> Merged:
    return run(merge_branches(opened.overlay, [source], target, Rules("theirs"), Author()))


def timeless(look: Look) -> Look:
    """Without times, which a rebase does not keep where it merges."""
    return {path: what[:-1] for path, what in look.items()}


class World:
    """A lower, main and `live`, and frozen branches with what each shows."""

    def __init__(self, base: Path, chance: random.Random) -> None:
        (base / "lower").mkdir()
        build(base / "lower")
        self.opened, self.chance = Opened(base), chance
        self.shown: dict[str, Look] = {}
        self.done: list[str] = []
        self.landed: dict[str, dict[bytes, tuple[int, int]]] = {}  # by branch: what a commit has brought to the lower
        self.opened.overlay.branches.create("live")

    def ops(self, names: list[str], most: int = 4) -> list[Op]:
        pick = self.chance.choice
        return [
            (pick(names), pick(PATHS), pick(PATHS), self.chance.randrange(8)) for _ in range(self.chance.randrange(1, most + 1))
        ]

    def look(self, ref: str) -> Look:
        self.opened.lower.forget()  # it notices a renamed directory within a second
        return of_tree(self.opened.tree(ref))

    def all(self) -> list[str]:
        return list(dict.fromkeys([*LIVE, *self.shown]))

    def is_whole(self, ref: str) -> bool:
        """Whether nothing that a live branch has moved has gone from the lower."""
        try:
            return bool(self.look(ref)) or True
        except OSError:
            return False

    def step(self) -> None:
        what = self.chance.choice(
            ["lower"] * 6 + ["write"] * 4 + ["freeze"] * 2 + ["branch", "commit", "commit", "merge", "rebase", "snapshot"]
            + ["reopen", "reap", "undo", "discard"]
        )  # fmt: skip
        self.done.append(what)
        getattr(self, what)()

    def lower(self) -> None:
        steps = self.ops(list(IN_LOWER))
        self.done[-1] += f" {steps}"
        change_lower(self.opened.base / "lower", steps)

    def write(self) -> None:
        ref, steps = self.chance.choice(self.all()), self.ops(list(IN_BRANCH))
        self.done[-1] += f" {ref} {steps}"
        change(self.opened, steps, ref)
        if ref in self.shown:
            self.shown[ref] = self.look(ref)

    def freeze(self) -> None:
        if len(self.shown) < 4:
            name, source = f"frozen{len(self.done)}", self.chance.choice(self.all())
            is_frozen = source in self.shown
            if not self.is_whole(source):
                return
            before = self.look(source)
            self.opened.overlay.branches.create(name, source, base="" if is_frozen else self.opened.freeze())
            self.done[-1] += f" {name} from {source}"
            self.shown[name] = self.look(name)
            assert unlike(before, self.shown[name]) == []

    def branch(self) -> None:
        """Main's state is frozen in place."""
        if self.chance.random() < 0.2 and "main" not in self.shown and self.is_whole("main"):
            before = self.look("main")
            self.opened.overlay.branches.freeze(self.opened.overlay.default_id, self.opened.freeze())
            self.shown["main"] = self.look("main")
            assert unlike(before, self.shown["main"]) == []

    def commit(self) -> None:
        ref = self.chance.choice(self.all())
        self.done[-1] += f" {ref}"
        rule = self.chance.choice(_RULES)
        if not self.is_whole(ref):
            return
        found = commit_lower(self.opened, rule=rule, ref=ref, whole=True)
        if found.conflicts:
            return
        if ref in self.shown:
            there = self.in_lower()
            gone = {path: what for path, what in self.landed.get(ref, {}).items() if path not in self.shown[ref]}
            stale = [path for path, what in gone.items() if there.get(path) == what]
            assert not stale or rule != "force", f"{stale} should have been removed"
            paths = {change.path for change in found.listed.changes} & self.shown[ref].keys()
            self.landed[ref] = {path: there[path] for path in paths if path in there}
        again = commit_lower(self.opened, rule=rule, ref=ref, whole=self.chance.random() < 0.5)
        if ref in self.shown and rule != "force" and not any(len(what[5]) > 1 for what in self.shown[ref].values()):  # type: ignore[arg-type]
            assert (again.listed.changes, again.conflicts) == ([], []), again

    def in_lower(self) -> dict[bytes, tuple[int, int]]:
        root = os.fsencode(self.opened.base / "lower")
        found = [os.path.join(above, name) for above, _, names in os.walk(root) for name in names]
        return {os.path.relpath(path, root): (os.lstat(path).st_ino, os.lstat(path).st_ctime_ns) for path in found}

    def merge(self) -> None:
        source, target = self.chance.sample(self.all(), 2)
        self.done[-1] += f" {source} into {target}"
        if not (self.is_whole(source) and self.is_whole(target)):
            return
        try:
            merge(self.opened, source, target)
        except OSError as exc:  # what one of them only gave other attributes is gone from the other's lower
            assert exc.errno == errno.ESTALE
            return
        if target in self.shown:
            self.shown[target] = self.look(target)

    def rebase(self) -> None:
        if self.shown:
            ref = self.chance.choice(list(self.shown))
            self.done[-1] += f" {ref}"
            try:
                first = rebase(self.opened, ref, self.chance.choice(["branch", "base"]))
            except OSError as exc:
                assert exc.errno == errno.ESTALE
                return
            assert first.conflicts == []
            self.shown[ref] = self.look(ref)
            rebase(self.opened, ref, "")
            first_look, self.shown[ref] = self.shown[ref], self.look(ref)
            assert unlike(timeless(first_look), timeless(self.shown[ref])) == [], "of the same state"

    def snapshot(self) -> None:
        self.opened.overlay.snapshots.create(self.chance.choice(self.all()))

    def reopen(self) -> None:
        self.opened.reopen()

    def reap(self) -> None:
        self.opened.reap()

    def undo(self) -> None:
        try:
            self.opened.overlay.undo_log.undo()
        except OSError:
            return
        overlay = self.opened.overlay
        frozen = [row.name for row in overlay.branches.all() if overlay.lowers.name(overlay.refs.branch(row.id).head)]
        self.shown, self.landed = {name: self.look(name) for name in frozen}, {}

    def discard(self) -> None:
        for name in [name for name in self.shown if name != "main"][:1]:
            self.opened.overlay.branches.discard(name, keep=self.chance.random() < 0.5)
            del self.shown[name]
            self.landed.pop(name, None)

    def check(self) -> None:
        for name, shown in self.shown.items():
            assert unlike(shown, self.look(name)) == [], name


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    (tmp_path / "lower/d").mkdir(parents=True)
    for name in ("a", "d/f"):
        (tmp_path / "lower" / name).write_text("v0\n")
    made = Opened(tmp_path)
    yield made
    made.close()


def frozen(opened: Opened, name: str = "fix", source: str | None = None) -> Tree:
    time.sleep(0.03)
    opened.overlay.branches.create(name, source, base=opened.freeze())
    return opened.tree(name)


def move(tree: Tree, old: str, new: str) -> None:
    one, two = old.encode().rpartition(b"/"), new.encode().rpartition(b"/")
    directory_entries.rename(tree, tree.walk(one[0]), one[2], tree.walk(two[0]), two[2])


def test_what_others_changed_in_a_moved_directory_is_no_state_that_the_branch_has_seen(opened: Opened) -> None:
    fix = frozen(opened)
    time.sleep(0.01)
    (opened.base / "lower/d/f").write_text("a person's\n")
    move(fix, "d", "e")
    assert commit_lower(opened, ref="fix").conflicts == []
    assert (opened.base / "lower/e/f").read_text() == "a person's\n"
    assert opened.read("e/f", "fix") == b"v0\n"
    again = commit_lower(opened, ref="fix")
    assert [conflict.kind for conflict in again.conflicts] == ["drift"]
    assert (opened.base / "lower/e/f").read_text() == "a person's\n"


def test_main_frozen_in_place_removes_nothing_that_it_never_saw(opened: Opened) -> None:
    opened.mkdir("new")
    opened.write("new/mine", b"mine")
    (opened.base / "lower/new").mkdir()
    (opened.base / "lower/new/theirs").write_text("theirs")
    time.sleep(0.03)
    opened.overlay.branches.freeze(opened.overlay.default_id, opened.freeze())
    rebase(opened, "main", "")
    commit_lower(opened, rule="force")
    assert (opened.base / "lower/new/theirs").read_text() == "theirs"


def test_a_rebase_keeps_what_was_taken_back_after_a_commit(opened: Opened) -> None:
    frozen(opened)
    opened.write("new", b"new", "fix")
    opened.write("a", b"v1\n", "fix")
    opened.unlink("d/f", "fix")
    assert commit_lower(opened, ref="fix").conflicts == []
    opened.unlink("new", "fix")
    opened.write("a", b"v0\n", "fix")
    opened.write("d/f", b"v0\n", "fix")
    assert rebase(opened, "fix", "").conflicts == []
    assert (opened.read("a", "fix"), opened.read("d/f", "fix")) == (b"v0\n", b"v0\n")
    assert opened.tree("fix").names(opened.tree("fix").root) == [b"a", b"d"]
    (opened.base / "lower/a").write_text("a person's\n")
    assert commit_lower(opened, ref="fix").conflicts != []


def test_a_branch_takes_back_nothing_of_what_it_was_made_from(opened: Opened) -> None:
    move(opened.tree(), "a", "b")
    frozen(opened)
    time.sleep(0.01)
    (opened.base / "lower/a").write_text("a person's\n")
    merge(opened, "fix", "main")
    assert opened.read("b") == b"a person's\n"


def test_a_rebase_is_undone_with_the_base_that_the_branch_was_made_from(opened: Opened) -> None:
    frozen(opened)
    opened.write("a", b"mine\n", "fix")
    old = opened.overlay.refs.branch("fix").base_layer
    rebase(opened, "fix", "")
    assert opened.overlay.refs.branch("fix").base_layer != old
    opened.overlay.undo_log.undo()
    assert opened.overlay.refs.branch("fix").base_layer == old
    assert opened.read("a", "fix") == b"mine\n"


def test_what_two_branches_have_in_common_outlives_a_rebase(opened: Opened) -> None:
    frozen(opened)
    opened.write("a", b"common\n", "fix")
    opened.overlay.branches.create("other", "fix")
    common = opened.overlay.layers.common([opened.tree("fix").head], opened.tree("other").head)
    rebase(opened, "fix", "")
    opened.overlay.undo_log.forget_all()
    opened.reap()
    assert opened.overlay.layers.common([opened.tree("fix").head], opened.tree("other").head) == common != 0


def test_a_base_that_cannot_be_read_keeps_nobody_else_from_committing(opened: Opened) -> None:
    frozen(opened)
    opened.write("a", b"mine\n", "fix")
    move(opened.tree(), "a", "b")
    opened.reopen()
    shutil.rmtree(opened.base / "bases" / opened.overlay.lowers.name(opened.overlay.refs.branch("fix").head))
    assert commit_lower(opened).conflicts == []
    with pytest.raises(OSError, match="frozen base"):
        opened.tree("fix")


@pytest.mark.parametrize("number", range(MANY))
def test_a_frozen_branch_stays_as_it_is(tmp_path: Path, number: int) -> None:
    world = World(tmp_path, random.Random(seed() * 100_000 + number))
    try:
        for _ in range(25):
            world.step()
            world.check()
        world.opened.reopen()
        assert world.opened.overlay.fsck() == []
    except BaseException as exc:
        exc.add_note("after " + "; ".join(world.done))
        raise
    finally:
        world.opened.close()
