"""What somebody changes in the lower is lost in no merge and commit: it is in the result, or the commit is refused as drift."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfsd.core import directory_entries, inode_attributes
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.history.applying import Author
from agentfsd.history.merge_records import Rules
from agentfsd.history.merging import merge_branches
from tests.history.replay import run
from tests.history.trees import commit_lower
from tests.overlays import OWNER, Opened

COUNT = 20


def text(**words: str) -> bytes:
    """The numbers, a line each, some of them as words: five="x"."""
    return "".join(f"{words.get(f'l{number}', number)}\n" for number in range(1, COUNT + 1)).encode()


class World:
    """A lower with `text`, `dir/text` and `link`, and a branch that was made from it."""

    def __init__(self, base: Path) -> None:
        self.lower = base / "lower"
        (self.lower / "dir").mkdir(parents=True)
        for name in ("text", "dir/text"):
            (self.lower / name).write_bytes(text())
            (self.lower / name).chmod(0o644)
        (self.lower / "link").symlink_to("one")
        time.sleep(0.01)
        self.opened = Opened(base)
        self.branch("fix")

    def branch(self, name: str, source: str | None = None) -> None:
        self.opened.overlay.branches.create(name, *[source] * (source is not None))

    def write(self, who: str, name: str = "text", **words: str) -> None:
        if who == "person":
            self.later(lambda: (self.lower / name).write_bytes(text(**words)))
        else:
            self.opened.write(name, text(**words), who)

    def chmod(self, who: str, mode: int, name: str = "text") -> None:
        if who == "person":
            self.later(lambda: (self.lower / name).chmod(mode))
        else:
            tree = self.opened.tree(who)
            inode_attributes.setattr_(tree, tree.walk(name.encode()), NewAttributes(mode=mode))

    @staticmethod
    def later(work: Callable[[], object]) -> None:
        time.sleep(0.01)
        work()
        time.sleep(0.01)

    def busy(self) -> None:
        """Main changes something else, so that no merge is a fast-forward."""
        self.opened.write("unrelated", str(time.time_ns()).encode())

    def merge(self, source: str = "fix", target: str = "main") -> None:
        assert run(self.opened, [source], target).conflicts == []

    def commit(self) -> list[bytes]:
        """The paths that are refused as drift."""
        return [conflict.path for conflict in commit_lower(self.opened).conflicts]

    def read(self, name: str = "text") -> bytes:
        return (self.lower / name).read_bytes()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    assert made.opened.overlay.fsck() == []
    made.opened.close()


def test_a_source_that_was_merged_with_the_target_but_not_made_from_it(world: World) -> None:
    world.write("fix", l5="fix")
    world.write("person", l15="person")
    world.write("main", l15="person", l9="main")
    world.merge("main", "fix")
    world.busy()
    world.merge()
    assert world.commit() == [b"text"]
    assert world.read() == text(l15="person")


def test_a_branch_that_took_over_another_one_which_was_committed(world: World) -> None:
    world.branch("other")
    world.write("fix", l5="fix")
    world.write("other", l10="other")
    world.busy()
    world.merge()
    assert world.commit() == []
    world.merge("fix", "other")
    world.write("other", l10="other")
    world.merge("other")
    assert world.commit() == [b"text"]
    assert world.read() == text(l5="fix")


@pytest.mark.parametrize("busy", [False, True])
def test_a_mode_that_a_person_set_stays(world: World, busy: bool) -> None:
    world.write("fix", l5="fix")
    world.chmod("person", 0o755)
    if busy:
        world.busy()
    world.merge()
    assert world.commit() == [b"text"]
    assert (world.lower / "text").stat().st_mode & 0o777 == 0o755


def test_modes_of_a_file_whose_content_is_the_lowers(world: World) -> None:
    world.chmod("main", 0o600)
    world.branch("later", "main")
    world.chmod("later", 0o640)
    world.chmod("person", 0o755)
    world.busy()
    world.merge("later")
    assert world.commit() == [b"text"]
    assert (world.lower / "text").stat().st_mode & 0o777 == 0o755


def test_a_symlink_of_which_the_base_has_nothing_but_times(world: World) -> None:
    tree = world.opened.tree()
    look = NewAttributes(uid=os.geteuid(), mtime_ns=10**18)
    inode_attributes.setattr_(tree, tree.walk(b"link"), look, privileged=True)
    world.branch("later", "main")
    world.opened.unlink("link", "later")
    later = world.opened.tree("later")
    directory_entries.make(later, later.root, b"link", 0o120777, OWNER, target=b"two")

    def point_elsewhere() -> None:
        (world.lower / "link").unlink()
        (world.lower / "link").symlink_to("three")

    world.later(point_elsewhere)
    world.busy()
    world.merge("later")
    assert world.commit() == [b"link"]
    assert (world.lower / "link").readlink() == Path("three")


def test_two_names_of_a_file_stay_together(world: World) -> None:
    world.write("fix", l5="fix")
    fix = world.opened.tree("fix")
    directory_entries.link(fix, fix.walk(b"text"), fix.root, b"second")
    world.write("person", l15="person")
    world.merge()
    main = world.opened.tree()
    assert main.walk(b"text") is main.walk(b"second")
    assert world.commit() == [b"text"]
    assert world.read() == text(l15="person")


@pytest.mark.parametrize("renamed", [False, True])
def test_a_directory_that_the_branch_has_removed_or_renamed(world: World, renamed: bool) -> None:
    fix = world.opened.tree("fix")
    if renamed:
        directory_entries.rename(fix, fix.root, b"dir", fix.root, b"elsewhere")
    else:
        world.opened.unlink("dir/text", "fix")
        directory_entries.rmdir(fix, fix.root, b"dir")
    world.write("person", "dir/text", l15="person")
    world.busy()
    world.merge()
    if drift := world.commit():
        assert (drift, world.read("dir/text")) == ([b"dir/text"], text(l15="person"))
    else:
        assert renamed and world.read("elsewhere/text") == text(l15="person")


def test_a_renamed_directory_has_records_of_other_files(world: World) -> None:
    """Nobody changes the lower: main's `dir/text` is not merged with lines of a directory that is gone."""
    fix = world.opened.tree("fix")
    world.opened.mkdir("more", "fix")
    world.write("fix", "more/text", l5="fix")
    world.opened.unlink("dir/text", "fix")
    directory_entries.rmdir(fix, fix.root, b"dir")
    directory_entries.rename(fix, fix.root, b"more", fix.root, b"dir")
    world.busy()
    world.merge()
    assert world.commit() == []
    assert world.read("dir/text") == text(l5="fix")


def test_our_rename_takes_along_what_a_person_wrote(world: World) -> None:
    world.write("fix", l5="fix")
    world.write("person", l15="person")
    main = world.opened.tree()
    directory_entries.rename(main, main.root, b"text", main.root, b"moved")
    world.merge()
    assert world.commit() == []
    assert world.read("moved") == text(l5="fix", l15="person")


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("removed", [False, True])
def test_what_is_written_while_the_merge_is_under_way(world: World, again: bool, removed: bool) -> None:
    world.opened.write("aaa", b"first in order", "fix")
    world.write("fix", l5="fix")
    before: dict[str, str] = {}
    if again or removed:  # from the second time on, the base holds the file itself
        world.busy()
        world.merge()
        assert world.commit() == []
        before = {"l5": "fix"}
        world.opened.write("aaa", b"again", "fix")
    else:
        world.write("person", l15="person")
        before = {"l15": "person"}
    if removed:
        world.opened.unlink("text", "fix")
    elif again:
        world.write("fix", l5="fix", l9="fix")
    world.busy()
    steps, is_late = merge_branches(world.opened.overlay, ["fix"], "main", Rules(), Author()), False
    for _, _, what in steps:
        if what == "applying" and not is_late:
            is_late = True
            world.write("person", l18="late", **before)
    assert is_late
    assert world.commit() == [b"text"]
    assert world.read() == text(l18="late", **before)


def test_a_file_that_was_only_touched_is_no_conflict(world: World) -> None:
    (world.lower / "binary").write_bytes(b"\0old")
    world.branch("later")
    world.opened.write("binary", b"\0new", "later")
    world.later(lambda: os.utime(world.lower / "binary"))
    world.merge("later")
    assert world.commit() == [b"binary"]
    assert commit_lower(world.opened, rule="force").conflicts == []
    assert (world.lower / "binary").read_bytes() == b"\0new"


@pytest.mark.parametrize("busy", [False, True])
def test_a_line_that_a_person_takes_back_does_not_come_back_unasked(world: World, busy: bool) -> None:
    world.write("fix", l5="fix")
    world.merge()
    assert world.commit() == []
    world.write("fix", l5="fix", l9="fix")
    if busy:
        world.busy()
    world.merge("main", "fix")
    world.write("person")
    world.merge()
    assert world.commit() in ([b"text"], [])
    assert world.read() in (text(), text(l9="fix"))


def test_a_second_name_that_a_person_gives_a_file_stays(world: World) -> None:
    for words in ({"l5": "fix"}, {"l5": "fix", "l9": "fix"}):
        world.write("fix", **words)
        if len(words) == 2:
            world.later(lambda: os.link(world.lower / "text", world.lower / "second"))
        world.merge()
        drift = world.commit()
    assert drift == [b"text"]
    assert (world.lower / "text").samefile(world.lower / "second")
