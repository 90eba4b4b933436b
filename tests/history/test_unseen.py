"""What the lower got while a branch made something at the same place: nobody deleted it."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.core import directory_entries
from agentfsd.history.applying import Author
from agentfsd.history.merge_records import Rules
from agentfsd.history.restoring import restore_paths
from tests.history import trees
from tests.history.replay import run
from tests.history.trees import commit_lower
from tests.overlays import OWNER, Opened


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    lower = tmp_path / "lower"
    (lower / "old" / "sub").mkdir(parents=True)
    (lower / "old" / "x").write_bytes(b"x\n")
    (lower / "old" / "sub" / "y").write_bytes(b"y\n")
    (lower / "file").write_bytes(b"file\n")
    found = Opened(tmp_path)
    yield found
    assert found.overlay.fsck() == []
    found.close()


def mkdir(opened: Opened, path: str, ref: str) -> None:
    tree = opened.tree(ref)
    parent, _, name = path.encode().rpartition(b"/")
    directory_entries.make(tree, tree.walk(parent), name, 0o040755, OWNER)


def remove(opened: Opened, path: str, ref: str) -> None:
    trees.remove(opened.tree(ref), path.encode())


def rename(opened: Opened, old: str, new: str, ref: str) -> None:
    tree = opened.tree(ref)
    directory_entries.rename(tree, tree.root, old.encode(), tree.root, new.encode())


def shown(opened: Opened, ref: str | None) -> list[tuple[str, str]]:
    return [(change.status, change.path.decode()) for change in opened.overlay.comparison.diff(None, ref)]


def files(opened: Opened) -> dict[str, bytes]:
    root = opened.base / "lower"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def names(opened: Opened, path: str, ref: str) -> set[bytes]:
    tree = opened.tree(ref)
    return set(tree.names(tree.walk(path.encode())))


def there(opened: Opened, path: str, content: bytes) -> None:
    """Somebody writes in the lower."""
    time.sleep(0.005)
    place = opened.base / "lower" / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    time.sleep(0.005)


@pytest.mark.parametrize("rule", ["refuse", "merge", "force"])
@pytest.mark.parametrize("whole", [True, False])
def test_two_branches_that_make_one_directory_fill_it_together(opened: Opened, rule: str, whole: bool) -> None:
    for name in ("a", "b"):
        opened.overlay.branches.create(name)
        mkdir(opened, "docs", name)
        opened.write(f"docs/{name}.md", name.encode(), name)
    assert commit_lower(opened, ref="a", whole=whole).conflicts == []
    assert shown(opened, "b") == [("A", "docs/b.md")]
    found = commit_lower(opened, rule=rule, ref="b", whole=whole)  # type: ignore[arg-type]
    assert found.conflicts == []
    assert {"docs/a.md", "docs/b.md"} <= files(opened).keys()
    assert shown(opened, "b") == shown(opened, "a") == []


def test_a_branch_shows_what_it_made_before_and_after_a_commit(opened: Opened) -> None:
    opened.overlay.branches.create("b")
    mkdir(opened, "docs", "b")
    opened.write("docs/b", b"b", "b")
    there(opened, "docs/theirs", b"theirs")
    assert names(opened, "docs", "b") == {b"b"}
    commit_lower(opened, ref="b", whole=False)
    assert names(opened, "docs", "b") == {b"b"}
    assert shown(opened, "b") == []
    there(opened, "docs/later", b"later")
    assert names(opened, "docs", "b") == {b"b", b"later"}


def test_what_a_branch_committed_and_then_removed_is_removed(opened: Opened) -> None:
    opened.overlay.branches.create("b")
    mkdir(opened, "docs", "b")
    mkdir(opened, "docs/sub", "b")
    there(opened, "docs/sub/theirs", b"theirs")
    for name in ("docs/one", "docs/sub/two", "docs/sub/three"):
        opened.write(name, b"content", "b")
    assert commit_lower(opened, ref="b", whole=False).conflicts == []
    remove(opened, "docs/sub/two", "b")
    assert shown(opened, "b") == [("D", "docs/sub/two")]
    assert commit_lower(opened, ref="b", whole=False).conflicts == []
    remove(opened, "docs", "b")
    assert shown(opened, "b") == [("D", "docs/one"), ("D", "docs/sub/three")]
    assert commit_lower(opened, ref="b", whole=False, rule="merge").conflicts == []
    assert sorted(files(opened)) == ["docs/sub/theirs", "file", "old/sub/y", "old/x"]


@pytest.mark.parametrize("rule", ["refuse", "merge", "force"])
@pytest.mark.parametrize("again", [False, True])
def test_what_came_into_a_directory_after_a_branch_removed_it_stays(opened: Opened, rule: str, again: bool) -> None:
    opened.overlay.branches.create("b")
    remove(opened, "old", "b")
    if again:
        mkdir(opened, "old", "b")
    there(opened, "old/new", b"new")
    there(opened, "old/sub/new", b"new")
    assert shown(opened, "b") == [("D", "old/sub/y"), ("D", "old/x")]
    found = commit_lower(opened, rule=rule, ref="b").conflicts  # type: ignore[arg-type]
    if rule == "refuse":  # the directory, or the one in it, cannot go as a whole
        assert [conflict.path for conflict in found] == [b"old/sub" if again else b"old"]
        return
    assert found == []
    assert files(opened) == {"file": b"file\n", "old/new": b"new", "old/sub/new": b"new"}


def test_a_file_that_changed_after_a_branch_removed_its_directory_is_in_the_way(opened: Opened) -> None:
    opened.overlay.branches.create("b")
    remove(opened, "old", "b")
    there(opened, "old/sub/y", b"changed")
    assert [found.path for found in commit_lower(opened, ref="b").conflicts] == [b"old/sub/y"]
    assert commit_lower(opened, rule="force", ref="b").conflicts == []
    assert files(opened) == {"file": b"file\n"}


@pytest.mark.parametrize("rule", ["refuse", "merge", "force"])
@pytest.mark.parametrize("removed", [False, True])
def test_a_file_takes_no_directory_away_that_holds_what_was_never_seen(opened: Opened, rule: str, removed: bool) -> None:
    opened.overlay.branches.create("b")
    place = "old" if removed else "docs"
    if removed:
        remove(opened, "old", "b")
    opened.write(place, b"a file", "b")
    there(opened, f"{place}/new", b"new")
    found = commit_lower(opened, rule=rule, ref="b")  # type: ignore[arg-type]
    assert [(conflict.path, conflict.kind) for conflict in found.conflicts] == [(place.encode(), "type")]
    assert files(opened)[f"{place}/new"] == b"new"


@pytest.mark.parametrize("atomically", [False, True])
def test_a_file_that_both_made_is_a_conflict_of_that_path_alone(opened: Opened, atomically: bool) -> None:
    opened.overlay.branches.create("b")
    opened.write("both", b"b", "b")
    opened.write("other", b"other", "b")
    there(opened, "both", b"theirs")
    if atomically:  # as editors replace a file
        opened.write("both~", b"b again", "b")
        rename(opened, "both~", "both", "b")
    for rule, kind in (("refuse", "drift"), ("merge", "add/add")):
        found = commit_lower(opened, rule=rule, ref="b")  # type: ignore[arg-type]
        assert [(conflict.path, conflict.kind) for conflict in found.conflicts] == [(b"both", kind)]
    assert commit_lower(opened, rule="force", ref="b").conflicts == []
    assert files(opened)["both"].startswith(b"b")


@pytest.mark.parametrize("snapshot", [False, True])
def test_who_removes_its_own_file_removes_nobody_elses(opened: Opened, snapshot: bool) -> None:
    opened.overlay.branches.create("b")
    opened.write("mine", b"b", "b")
    mkdir(opened, "dir", "b")
    if snapshot:
        opened.overlay.snapshots.create("b")
    there(opened, "mine", b"theirs")
    there(opened, "dir/theirs", b"theirs")
    remove(opened, "mine", "b")
    remove(opened, "dir", "b")
    assert shown(opened, "b") == []
    assert commit_lower(opened, rule="force", ref="b").conflicts == []
    assert files(opened)["mine"] == files(opened)["dir/theirs"] == b"theirs"


def test_a_directory_that_was_renamed_takes_along_what_came_into_it(opened: Opened) -> None:
    opened.overlay.branches.create("b")
    rename(opened, "old", "moved", "b")
    mkdir(opened, "old", "b")
    opened.write("old/x", b"another", "b")
    there(opened, "old/new", b"new")
    found = commit_lower(opened, ref="b")
    assert found.conflicts == []
    assert files(opened) == {
        "file": b"file\n", "moved/new": b"new", "moved/sub/y": b"y\n", "moved/x": b"x\n", "old/x": b"another",
    }  # fmt: skip


def test_from_a_branch_that_renamed_a_directory_back_to_the_lower_is_a_rename(opened: Opened) -> None:
    opened.overlay.branches.create("b")
    rename(opened, "old", "moved", "b")
    found = opened.overlay.comparison.diff("b", None)
    assert [(change.status, change.old_path, change.path) for change in found] == [("R", b"moved", b"old")]


def test_a_merge_unites_a_directory_with_what_the_lower_got_there(opened: Opened) -> None:
    for name in ("a", "b"):
        opened.overlay.branches.create(name, "main")
        mkdir(opened, "docs", name)
        opened.write(f"docs/{name}", name.encode(), name)
    there(opened, "docs/theirs", b"theirs")
    assert not run(opened, ["a", "b"], "main").conflicts
    assert names(opened, "docs", "main") == {b"a", b"b", b"theirs"}
    assert shown(opened, "main") == [("A", "docs/a"), ("A", "docs/b")]
    assert commit_lower(opened).conflicts == []
    assert sorted(files(opened)) == ["docs/a", "docs/b", "docs/theirs", "file", "old/sub/y", "old/x"]


@pytest.mark.parametrize("favor", ["", "ours", "theirs"])
def test_a_merge_of_a_file_never_takes_away_what_it_has_not_seen(opened: Opened, favor: str) -> None:
    opened.overlay.branches.create("b", "main")
    opened.write("docs", b"a file", "b")
    there(opened, "docs/theirs", b"theirs")
    found = run(opened, ["b"], "main", Rules(favor))  # type: ignore[arg-type]
    assert [(conflict.path, conflict.kind) for conflict in found.conflicts] == [(b"docs", "type")]
    assert names(opened, "docs", "main") == {b"theirs"}


def test_a_file_that_a_branch_and_the_lower_made_is_added_by_both_sides_of_a_merge(opened: Opened) -> None:
    opened.overlay.branches.create("b", "main")
    opened.write("both", b"b\n", "b")
    opened.write("other", b"b\n", "b")
    opened.write("more", b"main\n")
    there(opened, "both", b"theirs\n")
    found = run(opened, ["b"], "main")
    assert [(conflict.path, conflict.kind) for conflict in found.conflicts] == [(b"both", "add/add")]
    assert not run(opened, ["b"], "main", Rules("theirs")).conflicts
    assert opened.read("both") == b"b\n"


def test_a_restored_path_removes_nothing_that_the_snapshot_never_saw(opened: Opened) -> None:
    mkdir(opened, "docs", "main")
    opened.write("docs/mine", b"mine")
    snapshot = opened.overlay.snapshots.create("main")
    assert commit_lower(opened).conflicts == []
    there(opened, "docs/theirs", b"theirs")
    opened.write("docs/mine", b"more")
    list(restore_paths(opened.overlay, "main", snapshot.id, (b"docs",), Author()))
    assert opened.read("docs/mine") == b"mine"
    assert commit_lower(opened, rule="force").conflicts == []
    assert files(opened)["docs/theirs"] == b"theirs"


def test_what_a_branch_removed_before_removals_were_recorded_is_told_by_its_age(opened: Opened) -> None:
    opened.overlay.branches.create("b")
    remove(opened, "old", "b")
    opened.store.db.execute("DELETE FROM inode WHERE nlink = 0")  # as earlier versions left it
    opened.store.db.execute("DELETE FROM origin WHERE name != ?", (b"old",))
    opened.reopen()
    there(opened, "old/new", b"new")
    assert shown(opened, "b") == [("D", "old/sub"), ("D", "old/sub/y"), ("D", "old/x")]
    assert commit_lower(opened, ref="b", rule="merge").conflicts == []
    assert files(opened) == {"file": b"file\n", "old/new": b"new"}


def test_a_socket_or_link_in_the_place_of_a_directory(opened: Opened) -> None:
    opened.overlay.branches.create("b")
    tree = opened.tree("b")
    directory_entries.make(tree, tree.root, b"pipe", 0o010600, OWNER)
    directory_entries.make(tree, tree.root, b"link", 0o120777, OWNER, target=b"file")
    there(opened, "pipe/new", b"new")
    there(opened, "link/new", b"new")
    found = commit_lower(opened, rule="force", ref="b")
    assert {conflict.path for conflict in found.conflicts} == {b"pipe", b"link"}
    assert not os.path.islink(opened.base / "lower" / "link")
