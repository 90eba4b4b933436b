"""Which paths several branches have changed, what a merge would say of them, and what is told when that changes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.core import directory_entries
from agentfsd.core.content_comparison import run_to_end
from agentfsd.history.overlaps import News, Overlaps
from tests.overlays import Opened
from tests.repositories.agents import start

TEXT = b"one\ntwo\nthree\nfour\nfive\nsix\nseven\n"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path)
    lower = made.base / "lower"
    (lower / "text").write_bytes(TEXT)
    (lower / "other").write_text("other")
    (lower / "directory").mkdir()
    (lower / "directory/inner").write_text("inner")
    for name in ("a", "b", "c"):
        made.overlay.branches.create(name)
    yield made
    made.close()


@pytest.fixture
def overlaps(opened: Opened) -> Overlaps:
    made = Overlaps(opened.overlay)
    run_to_end(made.update())
    return made


def name(opened: Opened, branch_id: str) -> str:
    return opened.overlay.refs.branch(branch_id).name


def found(opened: Opened, overlaps: Overlaps) -> dict[str, tuple[str, str]]:
    """By path: the branches, and the kind of conflict."""
    return {
        path.decode(): ("".join(name(opened, each) for each in one.branches), one.kind) for path, one in overlaps.found.items()
    }


def update(opened: Opened, overlaps: Overlaps) -> list[str]:
    """What is told, as kind, branch, path and the others."""
    assert overlaps.is_behind
    return [said(opened, one) for one in run_to_end(overlaps.update())]


def said(opened: Opened, one: News) -> str:
    others = "".join(name(opened, each) for each in one.others)
    return f"{one.kind} {name(opened, one.branch)} {one.path.decode()} {others}"


def test_changes_that_can_be_merged_overlap_without_a_conflict(opened: Opened, overlaps: Overlaps) -> None:
    opened.write("text", TEXT.replace(b"one", b"1"), "a")
    opened.write("other", b"only here", "a")
    assert update(opened, overlaps) == []
    opened.write("text", TEXT.replace(b"seven", b"7"), "b")
    assert update(opened, overlaps) == ["overlap b text a"]
    assert found(opened, overlaps) == {"text": ("ab", "")}


def test_changes_of_the_same_lines_conflict(opened: Opened, overlaps: Overlaps) -> None:
    opened.write("text", TEXT.replace(b"one", b"1"), "a")
    opened.write("text", TEXT.replace(b"one", b"uno"), "b")
    assert update(opened, overlaps) in (["conflict a text b"], ["conflict b text a"])
    assert found(opened, overlaps) == {"text": ("ab", "content")}
    opened.write("text", TEXT.replace(b"three", b"3"), "c")
    assert update(opened, overlaps) == ["overlap c text ab"]
    counted = {name(opened, branch_id): counts for branch_id, counts in overlaps.counts().items()}
    assert counted == {"a": (1, 1), "b": (1, 1), "c": (1, 0)}


def test_the_same_change_twice_is_no_conflict(opened: Opened, overlaps: Overlaps) -> None:
    for branch in ("a", "b"):
        opened.write("text", b"same", branch)
    update(opened, overlaps)
    assert found(opened, overlaps) == {"text": ("ab", "")}


def test_a_removal_conflicts_with_a_change(opened: Opened, overlaps: Overlaps) -> None:
    opened.unlink("text", "a")
    opened.write("text", b"changed", "b")
    update(opened, overlaps)
    assert found(opened, overlaps) == {"text": ("ab", "modify/delete")}


@pytest.mark.parametrize("first", ["removal", "change"])
def test_a_removed_directory_conflicts_with_what_others_change_below_it(opened: Opened, overlaps: Overlaps, first: str) -> None:
    def remove() -> None:
        opened.unlink("directory/inner", "a")
        directory_entries.rmdir(opened.tree("a"), opened.tree("a").root, b"directory")

    def change() -> None:
        opened.write("directory/inner", b"changed", "b")

    for step in (remove, change) if first == "removal" else (change, remove):
        step()
        run_to_end(overlaps.update())
    assert found(opened, overlaps)["directory"] == ("ab", "modify/delete")


def test_directories_that_both_have_made_overlap_only_in_what_is_in_them(opened: Opened, overlaps: Overlaps) -> None:
    for branch in ("a", "b"):
        opened.mkdir("new", branch)
        opened.write(f"new/{branch}", b"", branch)
        opened.write("new/both", branch.encode(), branch)
    update(opened, overlaps)
    assert found(opened, overlaps) == {"new/both": ("ab", "add/add")}


def test_what_is_taken_back_overlaps_no_more(opened: Opened, overlaps: Overlaps) -> None:
    for branch in ("a", "b"):
        opened.write("text", branch.encode(), branch)
        opened.write("new", branch.encode(), branch)
    update(opened, overlaps)
    assert found(opened, overlaps) == {"text": ("ab", "content"), "new": ("ab", "add/add")}
    opened.unlink("new", "b")
    update(opened, overlaps)
    assert found(opened, overlaps) == {"text": ("ab", "content")}
    opened.overlay.branches.discard("b")
    update(opened, overlaps)
    assert overlaps.found == {}
    opened.overlay.undo_log.undo()
    assert update(opened, overlaps)
    assert found(opened, overlaps) == {"text": ("ab", "content")}


def test_snapshots_change_nothing_and_hide_nothing(opened: Opened, overlaps: Overlaps) -> None:
    opened.write("text", b"a", "a")
    opened.overlay.snapshots.create("a")
    opened.overlay.snapshots.create("a")
    opened.write("text", b"b", "b")
    opened.overlay.snapshots.create("b")
    update(opened, overlaps)
    assert found(opened, overlaps) == {"text": ("ab", "content")}


def test_a_write_in_place_is_seen_at_the_next_look(opened: Opened, overlaps: Overlaps) -> None:
    opened.write("text", TEXT.replace(b"one", b"1"), "a")
    opened.write("text", TEXT.replace(b"seven", b"7"), "b")
    update(opened, overlaps)
    assert run_to_end(overlaps.look_again()) == []
    opened.write("text", TEXT.replace(b"one", b"uno!"), "b")
    news = [said(opened, one) for one in run_to_end(overlaps.look_again())]
    assert news in (["conflict a text b"], ["conflict b text a"])


def test_a_branch_shares_nothing_with_the_one_it_was_made_from_until_both_change(opened: Opened, overlaps: Overlaps) -> None:
    opened.write("text", TEXT.replace(b"one", b"1"), "a")
    opened.overlay.branches.create("child", "a")
    opened.write("text", TEXT.replace(b"one", b"1").replace(b"two", b"2"), "child")
    update(opened, overlaps)
    assert overlaps.found == {}
    opened.write("text", TEXT.replace(b"one", b"1").replace(b"two", b"II"), "a")
    run_to_end(overlaps.update())
    assert [one.kind for one in overlaps.found.values()] == ["content"]


def test_a_new_daemon_knows_what_the_last_one_knew(opened: Opened, overlaps: Overlaps) -> None:
    opened.write("text", b"a", "a")
    opened.overlay.snapshots.create("a")
    opened.write("text", b"b", "b")
    opened.unlink("other", "a")
    opened.write("other", b"b", "b")
    update(opened, overlaps)
    known = found(opened, overlaps)
    opened.reopen()
    again = Overlaps(opened.overlay)
    run_to_end(again.update())
    assert found(opened, again) == known == {"text": ("ab", "content"), "other": ("ab", "modify/delete")}
    assert not again.is_behind


def test_files_of_git_and_files_that_it_ignores_are_left_out(tmp_path: Path) -> None:
    made = Opened(tmp_path)
    try:
        lower = made.base / "lower"
        start(lower, {".gitignore": "built\n"})
        for branch in ("a", "b"):
            made.overlay.branches.create(branch)
        overlaps = Overlaps(made.overlay)
        for branch in ("a", "b"):
            for path in ("built", ".git/HEAD", ".git/new", "source"):
                made.write(path, branch.encode(), branch)
        run_to_end(overlaps.update())
        assert list(overlaps.found) == [b"source"]
    finally:
        made.close()
