"""Commits into the lower, in process: what they must not lose, and what the branch is afterwards."""

import os
import time
from pathlib import Path

import pytest

from agentfsd.core import directory_entries, inode_stat
from agentfsd.core.inode import LowerIdentity
from agentfsd.history import settling
from agentfsd.lower import commit_writer
from tests.history.trees import commit_lower, of_lower, of_tree, plan, unlike
from tests.overlays import Opened


@pytest.fixture
def lower(tmp_path: Path) -> Path:
    place = tmp_path / "lower"
    (place / "dir/sub").mkdir(parents=True)
    for name in ("file", "other", "dir/inside", "dir/sub/deep"):
        (place / name).write_bytes(name.encode())
    os.link(place / "other", place / "dir/link")
    for path in [place, *place.rglob("*")]:
        os.utime(path, ns=(10**18, 10**18))
    time.sleep(0.01)  # what is changed in the same tick of the clock in which it was made counts as changed by somebody
    return place


@pytest.fixture
def opened(lower: Path, tmp_path: Path):  # type: ignore[no-untyped-def]
    found = Opened(tmp_path)
    yield found
    found.close()


def rename(opened: Opened, old: str, new: str) -> None:
    tree = opened.tree()
    places = [os.path.split(path.encode()) for path in (old, new)]
    directory_entries.rename(tree, tree.walk(places[0][0]), places[0][1], tree.walk(places[1][0]), places[1][1])


def test_a_replaced_file_leaves_the_times_of_its_directory(opened: Opened, lower: Path) -> None:
    opened.write("dir/inside", b"new")
    commit_lower(opened)
    assert (lower / "dir").stat().st_mtime_ns == 10**18


@pytest.mark.parametrize("again", [False, True])
def test_a_branch_that_is_kept_shows_what_was_renamed_in_it(opened: Opened, lower: Path, again: bool) -> None:
    rename(opened, "dir", "moved")
    rename(opened, "file", "moved/file")
    opened.write("moved/inside", b"new")
    inside = opened.tree().walk(b"moved/sub/deep")
    shown = of_tree(opened.tree())
    assert commit_lower(opened, whole=False).conflicts == []
    if again:
        opened.reopen()
    else:
        assert inode_stat.attributes(inside).size == len("dir/sub/deep")
    assert unlike(shown, of_lower(lower)) == []
    assert unlike(shown, of_tree(opened.tree())) == []
    assert opened.overlay.comparison.diff(None, "main") == []
    assert opened.overlay.fsck() == []


def test_what_moved_on_during_a_commit_is_found_again(opened: Opened, lower: Path) -> None:
    rename(opened, "dir", "moved")

    def meanwhile() -> None:
        rename(opened, "moved/sub/deep", "deep")
        rename(opened, "moved", "moved again")

    assert commit_lower(opened, meanwhile=meanwhile).conflicts == []
    assert opened.read("deep") == b"dir/sub/deep"
    assert opened.read("moved again/inside") == b"dir/inside"
    opened.reopen()
    assert opened.read("deep") == b"dir/sub/deep"
    assert opened.read("moved again/inside") == b"dir/inside"


def test_names_of_one_file_stay_together_in_a_branch_that_is_kept(opened: Opened) -> None:
    opened.write("other", b"new")
    assert commit_lower(opened, whole=False).conflicts == []
    opened.write("other", b"newer")
    assert opened.read("dir/link") == b"newer"


def test_what_changed_under_one_name_is_committed_under_the_other(opened: Opened, lower: Path) -> None:
    opened.unlink("dir/link")
    opened.write("other", b"new")
    commit_lower(opened)
    assert (lower / "other").read_bytes() == b"new"


def test_what_somebody_did_to_the_root_stays(opened: Opened, lower: Path) -> None:
    opened.write("file", b"new")
    opened.mkdir("new")
    lower.chmod(0o700)
    assert commit_lower(opened).conflicts != []
    assert commit_lower(opened, rule="merge").conflicts == []
    assert lower.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("wanted", ["dir", "dir/sub/deep", "moved/sub"])
def test_half_of_a_rename_loses_nothing(opened: Opened, lower: Path, wanted: str) -> None:
    rename(opened, "dir", "moved")
    shown = of_tree(opened.tree())
    assert commit_lower(opened, (wanted.encode(),)).conflicts == []
    assert unlike(shown, of_tree(opened.tree())) == []
    assert commit_lower(opened).conflicts == []
    assert unlike(shown, of_lower(lower)) == []


def test_a_merged_commit_is_not_taken_back_by_the_next_one(opened: Opened, lower: Path) -> None:
    (lower / "file").write_bytes(b"".join(b"%d\n" % number for number in range(9)))
    time.sleep(0.01)
    opened.write("file", (lower / "file").read_bytes().replace(b"1", b"one"))
    (lower / "file").write_bytes((lower / "file").read_bytes().replace(b"7", b"seven"))
    both = (lower / "file").read_bytes().replace(b"1", b"one")
    assert commit_lower(opened, rule="merge", whole=False).conflicts == []
    assert (lower / "file").read_bytes() == both
    opened.write("new", b"new")
    commit_lower(opened, whole=False)
    assert (lower / "file").read_bytes() == both
    assert commit_lower(opened, rule="merge", whole=False).conflicts == []
    assert (lower / "file").read_bytes() == both


def test_a_merged_file_keeps_the_mode_that_somebody_gave_it(opened: Opened, lower: Path) -> None:
    (lower / "file").write_bytes(b"".join(b"%d\n" % number for number in range(9)))
    time.sleep(0.01)
    opened.write("file", (lower / "file").read_bytes().replace(b"1", b"one"))
    (lower / "file").chmod(0o600)
    assert [conflict.kind for conflict in commit_lower(opened, rule="merge").conflicts] == ["attributes"]
    assert (lower / "file").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("whole", [False, True])
def test_a_daemon_that_dies_before_the_branch_has_followed_finishes_that_too(opened: Opened, whole: bool) -> None:
    rename(opened, "dir", "moved")
    rename(opened, "file", "other-file")
    rename(opened, "other", "file")
    shown, journal = of_tree(opened.tree()), opened.base / "commit"
    journal.mkdir()
    with opened.overlay.trees.frozen("main") as tree:
        seen, found = tree.head, plan(opened, tree, (), "refuse")
        commit_writer.stage(opened.lower, str(journal), found.steps, note={}).apply(clean=False)
    for killed in (True, False):
        opened.reopen()
        assert commit_writer.resume(opened.lower, str(journal), clean=False)
        steps = settling.settle(opened.overlay, opened.overlay.default_id, seen, found.same, whole=whole, once="1")
        if killed:
            next(steps, None)
        else:
            list(steps)
    assert commit_writer.resume(opened.lower, str(journal))
    settling.settle_root(opened.overlay, opened.overlay.default_id)
    assert unlike(of_tree(opened.tree()), shown) == []
    assert unlike(of_lower(opened.base / "lower"), shown) == []
    assert opened.overlay.comparison.diff(None, "main") == []
    assert commit_lower(opened).steps == []
    assert opened.overlay.fsck() == []


def test_what_an_undone_commit_put_back_is_not_called_changed(opened: Opened, lower: Path) -> None:
    tree, hidden = opened.tree(), lower / "dir" / "sub"
    opened.unlink("dir/sub/deep")
    directory_entries.rmdir(tree, tree.walk(b"dir"), b"sub")
    opened.write("dir/sub", b"now a file")

    def identity() -> LowerIdentity:
        found = hidden.stat()
        return LowerIdentity(found.st_ino, 0, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    before = identity()
    time.sleep(0.01)
    hidden.rename(lower / "aside")
    (lower / "aside").rename(hidden)
    assert [conflict.path for conflict in plan(opened, tree).conflicts] == [b"dir/sub"]
    opened.overlay.lower_changes.touched({before: identity()})
    assert commit_lower(opened).conflicts == []
    assert hidden.read_bytes() == b"now a file"
