"""Several branches merged at once: what merges is taken, the rest is told by branch; what was decided and marked is said."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.core import directory_entries
from agentfsd.history.applying import Author
from agentfsd.history.merge_records import Rules
from agentfsd.history.merging import Merged, merge_branches
from tests.overlays import OWNER, Opened

LINES = b"".join(b"line %d\n" % number for number in range(20))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    (tmp_path / "lower").mkdir()
    (tmp_path / "lower" / "text").write_bytes(LINES)
    found = Opened(tmp_path)
    for name, line in (("a", b"line 3"), ("b", b"line 9"), ("clash", b"line 3"), ("c", b"line 15")):
        found.overlay.branches.create(name, "main")
        found.write("text", LINES.replace(line + b"\n", b"by %s\n" % name.encode()), name)
        found.write(f"of-{name}", b"whole", name)
    yield found
    found.close()


def merge(opened: Opened, rules: Rules | None = None, *, dry_run: bool = False, leave: bool = True) -> Merged:
    steps = merge_branches(
        opened.overlay, ["a", "b", "clash", "c"], "main", rules or Rules(), Author(), dry_run=dry_run, leave_conflicting=leave
    )  # fmt: skip
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Merged = end.value
        return result


def test_what_merges_is_taken_and_the_rest_is_told_by_branch(opened: Opened) -> None:
    found = merge(opened)
    assert (found.merged, found.left) == (["a", "b", "c"], ["clash"])
    (conflict,) = found.conflicts
    assert (conflict.path, conflict.source, conflict.against) == (b"text", "clash", ("a", "b"))
    assert conflict.excerpt == ("by a", "by clash")
    assert [opened.read(f"of-{name}") for name in "abc"] == [b"whole"] * 3
    assert opened.tree().find(opened.tree().root, b"of-clash") is None
    again = merge(opened, Rules("theirs"))
    assert (again.merged, again.left) == (["clash"], [])
    assert [(source, *decision) for source, decision in again.decided] == [("clash", b"text", "content", "clash")]
    assert b"by clash\n" in opened.read("text")
    assert b"by b\n" in opened.read("text")


def test_a_dry_run_names_each_path_once_and_whose_it_is(opened: Opened) -> None:
    found = merge(opened, dry_run=True)
    listed = [change.path for change in found.listed.changes]
    assert listed == [b"of-a", b"of-b", b"of-c", b"text"]
    assert found.sources[b"text"] == ["a", "b", "c"]
    assert found.sources[b"of-b"] == ["b"]
    assert opened.read("text") == LINES


def test_all_or_nothing_takes_none(opened: Opened) -> None:
    found = merge(opened, leave=False)
    assert (found.merged, found.left) == ([], ["a", "b", "c", "clash"])
    assert opened.read("text") == LINES


def test_markers_have_the_names_of_the_branches(opened: Opened) -> None:
    found = merge(opened, Rules(markers=True))
    assert found.marked == [("clash", b"text")]
    assert b"<<<<<<< main\nby a\n=======\nby clash\n>>>>>>> clash\n" in opened.read("text")


def test_a_repository_never_gets_markers(opened: Opened) -> None:
    for name in ("one", "two"):
        opened.overlay.branches.create(name)
        for directory in ("sub", "sub/.git", "sub/.git/refs"):
            _mkdir(opened, directory, name)
        opened.write("sub/.git/refs/main", b"%s\n" % name.encode(), name)
    steps = merge_branches(opened.overlay, ["one"], "two", Rules(markers=True), Author())
    try:
        while True:
            next(steps)
    except StopIteration as end:
        assert end.value.conflicts != []
    assert opened.read("sub/.git/refs/main", "two") == b"two\n"


def _mkdir(opened: Opened, path: str, ref: str) -> None:
    tree = opened.tree(ref)
    parent, _, name = path.encode().rpartition(b"/")
    directory_entries.make(tree, tree.walk(parent), name, 0o040755, OWNER)


def test_lines_that_look_like_markers_stay_as_they_are(opened: Opened) -> None:
    odd = LINES.replace(b"line 18\n", b"<<<<<<< file\n")
    for name in ("a", "clash"):
        opened.write("text", odd.replace(b"line 3\n", b"by %s\n" % name.encode()), name)
    merge(opened, Rules(markers=True))
    assert b"<<<<<<< file\n" in opened.read("text")
