"""Changes are counted as `diff` lists them, and counted again only when the number may be another."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.control import change_counts
from agentfsd.control.change_counts import Budget, ChangeCount, ChangeCounts
from agentfsd.core import data, tree_changes
from agentfsd.core.content_comparison import run_to_end
from tests.overlays import Opened
from tests.repositories.agents import git, start


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path)
    yield made
    made.close()


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> ChangeCounts:
    monkeypatch.setattr(change_counts, "_SETTLED_NS", -1)
    return ChangeCounts()


def count(counts: ChangeCounts, opened: Opened, ref: str, budget: Budget | None = None) -> ChangeCount:
    return run_to_end(counts.of(opened.overlay, opened.overlay.refs.branch(ref).id, budget or Budget()))


def never(*_: object) -> None:
    raise AssertionError("it was counted again")


def test_a_file_rewritten_between_snapshots_is_one_change(opened: Opened, counts: ChangeCounts) -> None:
    (opened.base / "lower" / "file").write_text("old")
    opened.overlay.branches.create("work")
    for number in range(3):
        opened.write("file", b"new %d" % number, "work")
        opened.overlay.snapshots.create("work", f"s{number}")
    assert sum(opened.overlay.branches.stored_changes("work")) == 3
    assert count(counts, opened, "work") == (1, True, ())
    opened.unlink("file", "work")
    assert count(counts, opened, "work").changed == 1
    opened.write("file", b"old", "work")
    assert count(counts, opened, "work").changed == 0


def test_a_count_is_kept_until_it_may_differ(opened: Opened, counts: ChangeCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    lower = opened.base / "lower"
    for name in ("one", "two", "three"):
        (lower / name).write_text("old")
    opened.overlay.branches.create("work")
    inode = opened.write("one", b"new", "work")
    opened.write("two", b"new", "work")
    with monkeypatch.context() as patched:
        assert count(counts, opened, "work").changed == 2
        patched.setattr(tree_changes, "paths_in_steps", never)
        assert count(counts, opened, "work").changed == 2
        (lower / "elsewhere").write_text("x")
        assert count(counts, opened, "work").changed == 2
    data.open_(inode, os.O_WRONLY)
    data.write(inode, b"old", 0)  # in place: no row is written
    data.release(inode)
    assert count(counts, opened, "work").changed == 1
    (lower / "two").write_text("new")
    assert count(counts, opened, "work").changed == 0


def test_a_count_soon_after_a_write_is_not_kept(opened: Opened, counts: ChangeCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.write("one", b"new")
    asked = []
    real = tree_changes.paths_in_steps
    monkeypatch.setattr(tree_changes, "paths_in_steps", lambda *of: asked.append(1) or real(*of))
    monkeypatch.setattr(change_counts, "_SETTLED_NS", 10**18)  # a second write in the same tick would go unseen
    assert [count(counts, opened, "main").changed for _ in range(2)] == [1, 1]
    assert len(asked) == 2


def test_what_takes_too_long_is_not_counted(opened: Opened, counts: ChangeCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.overlay.branches.create("work")
    for ref in ("main", "work"):
        opened.write("one", b"1", ref)
        opened.overlay.snapshots.create(ref)
        opened.write("one", b"2", ref)
    budget = Budget(0)
    assert count(counts, opened, "main", budget) == (1, True, ())
    assert count(counts, opened, "work", budget) == (2, False, ())
    assert count(counts, opened, "work") == (1, True, ())
    monkeypatch.setattr(change_counts, "MOST_STORED", 1)
    opened.write("two", b"2", "work")
    assert not count(counts, opened, "work").counted


def test_a_branch_counts_what_it_changed_since_it_was_made(opened: Opened, counts: ChangeCounts) -> None:
    opened.write("of main", b"1")
    opened.overlay.branches.create("work")
    opened.write("later in main", b"1")
    opened.write("own", b"1", "work")
    assert (count(counts, opened, "main").changed, count(counts, opened, "work").changed) == (2, 1)


@pytest.mark.parametrize("bare", [False, True])
def test_git_tells_its_own_files(tmp_path: Path, counts: ChangeCounts, bare: bool) -> None:
    lower, work = tmp_path / "lower", tmp_path / "work"
    start(work, {"a": "a"})
    lower.mkdir()
    git(tmp_path, "clone", "-q", *(["--bare"] if bare else []), str(work), str(lower / "repo"))
    opened = Opened(tmp_path)
    database = lower / "repo" if bare else lower / "repo" / ".git"
    made = git(database, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "Fix parser")
    if bare:
        opened.write("repo/packed-refs", f"{made} refs/heads/main\n".encode())
    else:
        opened.write("repo/.git/refs/heads/main", f"{made}\n".encode())
        opened.write("repo/b", b"not committed")
    changed, counted, told = count(counts, opened, "main")
    assert (changed, counted) == (0 if bare else 1, True)
    uncommitted = "" if bare else ", 1 uncommitted file"
    assert [(one.path, one.sentence()) for one in told] == [
        (b"repo", f"main: 1 commit ahead ({made[:7]} Fix parser){uncommitted}")
    ]
    opened.close()
