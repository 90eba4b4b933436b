"""Merging, planning and undo while other things happen, and what they must not lose."""

import inspect
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from agentfsd.core import directory_entries, inode_attributes, tree_diff
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.domain_errors import Refusal
from agentfsd.history.applying import Author
from agentfsd.history.merge_records import Rules
from agentfsd.history.merging import merge_branches
from tests.history.replay import run
from tests.history.trees import commit_lower
from tests.overlays import OWNER, Opened


def test_a_snapshot_may_go_while_a_diff_is_under_way(opened: Opened) -> None:
    for number in range(60):
        opened.write(f"{number:02}", b"old")
    opened.overlay.snapshots.create("main", "one")
    opened.write("last", b"new")
    with opened.overlay.trees.frozen("main") as tree:
        steps = tree_diff.pairs(opened.overlay.parts, opened.overlay.trees.side(None), tree, times=True)
        found = [next(steps)]
        opened.overlay.snapshots.delete("one")
        assert len([*found, *steps]) == 62


def test_undo_of_a_discard_whose_parent_has_moved_away(opened: Opened) -> None:
    opened.write("file", b"main")
    opened.overlay.branches.create("feature")
    opened.write("file", b"feature", "feature")
    opened.overlay.branches.discard("main", keep=False)
    opened.overlay.branches.discard("feature")
    opened.overlay.undo_log.undo()
    assert opened.read("file", "feature") == b"feature"
    assert opened.overlay.fsck() == []
    opened.overlay.branches.discard("feature", keep=False)
    opened.reap()
    assert opened.overlay.fsck() == []


def test_undo_brings_back_a_branch_that_was_made_from_another_and_left_as_it_was(opened: Opened) -> None:
    opened.write("file", b"before")
    opened.overlay.branches.create("backup")
    opened.write("file", b"after")
    opened.overlay.branches.discard("backup")
    assert opened.overlay.undo_log.undo().branch == "backup"
    assert (opened.read("file", "backup"), opened.read("file")) == (b"before", b"after")
    assert opened.overlay.fsck() == []


def test_a_target_that_goes_while_it_is_merged_into(opened: Opened) -> None:
    for name in ("ours", "theirs"):
        opened.overlay.branches.create(name)
        opened.write(name, b"new", name)
    steps = merge_branches(opened.overlay, ["theirs"], "ours", Rules(), Author())
    next(steps)
    opened.overlay.branches.discard("ours", keep=False)
    with pytest.raises(Refusal):
        list(steps)
    assert opened.overlay.fsck() == []


def test_a_snapshot_that_a_newer_undo_needs_is_kept(opened: Opened) -> None:
    opened.write("file", b"one")
    opened.overlay.snapshots.create("main", "one")
    opened.write("file", b"two")
    opened.overlay.branches.restore("main", "one")
    safety = opened.overlay.undo_log.entries()[0].snapshot
    opened.overlay.branches.restore("main", safety)
    opened.overlay.retention.undo_entries = 2
    for _ in range(3):
        opened.overlay.branches.restore("main", "one")
        opened.overlay.branches.restore("main", safety)
    opened.overlay.branches.restore("main", "one")
    assert opened.overlay.undo_log.undo().kind == "restore"
    assert opened.read("file") == b"two"


def test_merging_what_was_branched_off_before_a_commit_takes_nothing_back(opened: Opened) -> None:
    opened.write("file", b"one")
    opened.overlay.branches.create("feature")
    opened.write("new", b"new", "feature")
    commit_lower(opened)
    opened.write("file", b"two")
    commit_lower(opened)
    assert run(opened, ["feature"], "main").conflicts == []
    assert opened.read("file") == b"two"
    assert opened.read("new") == b"new"
    assert opened.overlay.fsck() == []


def test_a_branch_of_a_branch_that_was_committed_belongs_to_the_lower(opened: Opened) -> None:
    opened.write("file", b"one")
    opened.overlay.branches.create("feature")
    commit_lower(opened)
    assert opened.overlay.branches.create("next").base == ""
    assert opened.overlay.fsck() == []


def test_other_branches_find_what_a_commit_renamed(opened: Opened) -> None:
    (opened.base / "lower/file").write_bytes(b"content")
    tree = opened.tree()
    directory_entries.rename(tree, tree.root, b"file", tree.root, b"renamed")
    opened.overlay.branches.create("feature")
    time.sleep(0.01)
    assert commit_lower(opened, rule="force").conflicts == []
    assert opened.read("renamed", "feature") == b"content"
    opened.reopen()
    assert opened.read("renamed", "feature") == b"content"


@pytest.fixture
def low_stack() -> Iterator[None]:
    """Python's stack has room for 200 more calls, as it has for 1000 outside of tests."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("low_stack")
def test_trees_may_be_deeper_than_the_stack(opened: Opened) -> None:
    for name in ("ours", "theirs"):
        opened.overlay.branches.create(name)
        tree = opened.tree(name)
        node = tree.root
        for _ in range(300):
            node = directory_entries.make(tree, node, b"d", 0o040755, OWNER)
        opened.overlay.snapshots.create(name)
    directory_entries.make(tree, node, b"file", 0o100644, OWNER).release_files()
    assert len(opened.overlay.comparison.diff("ours", "theirs")) == 1
    try:
        assert len(commit_lower(opened, ref="theirs").listed.changes) == 300 + 1  # as diff lists them: the root is none
        assert opened.overlay.fsck() == []
    finally:
        subprocess.run(["rm", "-r", str(opened.base / "lower")], check=True)  # what cleans up after us has a stack, too


@pytest.mark.parametrize("how", ["write", "unlink", "chmod"])
def test_what_was_changed_before_somebody_changed_the_lower_is_known_after_a_merge(opened: Opened, how: str) -> None:
    (opened.base / "lower/file").write_bytes(b"content")
    time.sleep(0.01)
    opened.overlay.branches.create("theirs")
    if how == "write":
        opened.write("file", b"theirs", "theirs")
    elif how == "unlink":
        opened.unlink("file", "theirs")
    else:
        tree = opened.tree("theirs")
        inode_attributes.setattr_(tree, tree.walk(b"file"), NewAttributes(mode=0o600))
    opened.write("other", b"ours")
    (opened.base / "lower/file").write_bytes(b"somebody's")
    conflicts = run(opened, ["theirs"], "main").conflicts
    if how == "write":  # the merge has to do with what somebody wrote
        assert [(conflict.path, conflict.kind) for conflict in conflicts] == [(b"file", "content")]
    else:
        assert conflicts == []
        assert [conflict.path for conflict in commit_lower(opened).conflicts] == [b"file"]
    assert opened.overlay.fsck() == []
    opened.reap()
    assert opened.overlay.fsck() == []


def test_a_parent_is_known_by_more_than_its_name(opened: Opened) -> None:
    for name in ("parent", "another"):
        opened.overlay.branches.create(name)
        opened.write(name, b"new", name)
    opened.overlay.branches.create("child", "parent")
    opened.overlay.branches.rename("parent", "renamed")
    opened.overlay.branches.rename("another", "parent")
    opened.reopen()
    parent = opened.overlay.branches.parent("child")
    assert parent is not None
    assert parent.name == "renamed"
    opened.overlay.branches.discard("renamed")
    with pytest.raises(Refusal):
        opened.overlay.branches.parent("child")
    opened.overlay.undo_log.undo()
    parent = opened.overlay.branches.parent("child")
    assert parent is not None
    assert parent.name == "renamed"
