"""A comparison of named paths walks to these alone, and finds there what the whole comparison finds."""

import os
import stat
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from agentfsd.core import branch_comparison, directory_entries, inode_attributes
from agentfsd.core.content_comparison import run_to_end
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.tree_diff import Walker
from agentfsd.history.paths import among
from agentfsd.types import PathChange
from tests.overlays import OWNER, Opened
from tests.rounds import rounds

PATHS = [b"a", b"d", b"d/a", b"d/b", b"d/s", b"d/s/a", b"e", b"e/a", b"e/s", b"e/s/a", b"link", b"new", b"new/a"]
_PATH = st.sampled_from(PATHS)
_BRANCH = st.sampled_from(["main", "main", "one"])
_STEP = st.one_of(
    st.tuples(st.sampled_from(["write", "unlink", "mkdir", "mode", "symlink"]), _BRANCH, _PATH, _PATH),
    st.tuples(st.sampled_from(["rename", "rename", "exchange", "link"]), _BRANCH, _PATH, _PATH),
    st.tuples(st.just("snapshot"), _BRANCH, _PATH, _PATH),
)


def _lower(root: Path) -> None:
    for directory in ("d/s", "e/s"):
        (root / directory).mkdir(parents=True)
    for path in ("a", "d/a", "d/s/a", "e/a"):
        (root / path).write_text(f"lower {path}")
    os.link(root / "d" / "a", root / "e" / "s" / "a")
    os.symlink("a", root / "link")


def _do(opened: Opened, kind: str, ref: str, one: bytes, other: bytes) -> None:
    """Do one thing if it is possible there."""
    tree = opened.tree(ref)
    places = [path.rpartition(b"/") for path in (one, other)]
    try:
        (here, name), (there, new) = ((tree.walk(parent), name) for parent, _, name in places)
        match kind:
            case "write":
                opened.write(one.decode(), b"content of " + other, ref)
            case "unlink" if tree.lookup(here, name).is_dir:
                directory_entries.rmdir(tree, here, name)
            case "unlink":
                directory_entries.unlink(tree, here, name)
            case "mkdir":
                directory_entries.make(tree, here, name, stat.S_IFDIR | 0o755, OWNER)
            case "mode":
                inode_attributes.setattr_(tree, tree.lookup(here, name), NewAttributes(mode=0o700))
            case "symlink":
                directory_entries.make(tree, here, name, stat.S_IFLNK | 0o777, OWNER, target=other)
            case "rename" | "exchange":
                directory_entries.rename(tree, here, name, there, new, 2 if kind == "exchange" else 0)
            case "link":
                directory_entries.link(tree, tree.lookup(here, name), there, new)
    except OSError:
        pass


def _built(base: Path, steps: list[tuple[str, str, bytes, bytes]]) -> tuple[Opened, list[str | None]]:
    (base / "lower").mkdir()
    _lower(base / "lower")
    opened = Opened(base)
    opened.overlay.branches.create("one", "main")
    refs: list[str | None] = [None, "main", "one"]
    for kind, ref, one, other in steps:
        if kind == "snapshot":
            refs.append(opened.overlay.snapshots.create(ref).id)
        else:
            _do(opened, kind, ref, one, other)
    return opened, refs


@pytest.mark.parametrize("many", [0, 500])
@settings(
    max_examples=rounds("comparisons of named paths", 60, 3_000), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(steps=st.lists(_STEP, min_size=1, max_size=25), wanted=st.lists(_PATH, min_size=1, max_size=3))
def test_it_finds_what_the_whole_comparison_finds(
    monkeypatch: pytest.MonkeyPatch, many: int, steps: list[tuple[str, str, bytes, bytes]], wanted: list[bytes]
) -> None:  # fmt: skip
    monkeypatch.setattr(branch_comparison, "_MANY_CHANGES", many)
    with tempfile.TemporaryDirectory(prefix="agentfsd-named-") as base:
        opened, refs = _built(Path(base), steps)
        try:
            for a in refs:
                for b in refs:
                    old, new = opened.overlay.trees.side(a), opened.overlay.trees.side(b)
                    whole = run_to_end(opened.overlay.comparison.diff_in_steps(old, new))
                    named = run_to_end(opened.overlay.comparison.diff_in_steps(old, new, wanted))
                    assert among(named, tuple(wanted)) == among(whole, tuple(wanted)), (a, b)
        finally:
            opened.close()


def _pairs_seen(monkeypatch: pytest.MonkeyPatch, opened: Opened, wanted: list[bytes]) -> tuple[int, list[PathChange]]:
    """Compare main with the lower. Return how many pairs of entries were looked at, and what was found."""
    seen = list[bytes]()
    real = Walker._pair
    with monkeypatch.context() as patched:
        patched.setattr(Walker, "_pair", lambda self, path, *rest: seen.append(path) or real(self, path, *rest))
        old, new = opened.overlay.trees.side(None), opened.tree()
        found = run_to_end(opened.overlay.comparison.diff_in_steps(old, new, wanted))
    return len(seen), found


def test_it_looks_at_nothing_else(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed, a new and a removed file among two hundred changes."""
    lower = opened.base / "lower"
    for directory in range(4):
        (lower / f"d{directory}").mkdir()
        for number in range(50):
            (lower / f"d{directory}" / f"f{number}").write_text("before")
            opened.write(f"d{directory}/f{number}", b"after")
    (lower / "d0" / "gone").write_text("before")
    opened.unlink("d0/gone")
    opened.write("d0/new", b"new")
    count, found = _pairs_seen(monkeypatch, opened, [b"d0/f7", b"d0/new", b"d0/gone"])
    assert [(change.status, change.path) for change in found] == [("M", b"d0/f7"), ("D", b"d0/gone"), ("A", b"d0/new")]
    assert count <= 4


def test_what_the_old_side_moved_away_is_moved_back(opened: Opened) -> None:
    (opened.base / "lower" / "a").write_text("before")
    (opened.base / "lower" / "d").mkdir()
    opened.write("a", b"after")
    tree = opened.tree()
    directory_entries.rename(tree, tree.root, b"a", tree.walk(b"d"), b"b", 0)
    found = run_to_end(opened.overlay.comparison.diff_in_steps(tree, opened.overlay.trees.side(None), [b"d"]))
    assert [(change.status, change.old_path, change.path) for change in found] == [("R", b"d/b", b"a")]


def test_half_of_a_move_is_known_for_one(opened: Opened) -> None:
    for name in ("one", "other"):
        (opened.base / "lower" / name).mkdir()
    (opened.base / "lower" / "one" / "file").write_text("x")
    tree = opened.tree()
    directory_entries.rename(tree, tree.walk(b"one"), b"file", tree.walk(b"other"), b"moved", 0)
    for wanted in (b"one/file", b"other/moved"):
        found = run_to_end(opened.overlay.comparison.diff_in_steps(opened.overlay.trees.side(None), tree, [wanted]))
        assert [(change.status, change.old_path, change.path) for change in found] == [("R", b"one/file", b"other/moved")]
