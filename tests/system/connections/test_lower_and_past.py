"""What changes in the lower, or by a restore, is seen over each connection."""

import errno
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.connections.connected import IO_MODES, Places, warm

LOWER_SHOWS_S = 1.0


def shows(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LOWER_SHOWS_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("view", [*IO_MODES, "subtree", "pid"])
def test_lower_shows_where_nothing_was_changed(places: Places, lower: Path, view: str) -> None:
    see = places.start(view)
    see("chdir", lower.name)
    warm(see)
    (lower / "file").write_text("changed in place\n")
    shows(lambda: see("read", "file") == "changed in place\n" and see("stat", "file")[2] == 17)
    shows(lambda: bool(see("peek", "file", 6, 0) == "change" and see("pread", "file", 7, 0) == "changed"))
    (lower / "sub" / "new").write_text("made\n")
    shows(lambda: "new" in see("names", "sub") and see("read", "sub/new") == "made\n")
    (lower / "replacing").write_text("another\n")
    (lower / "replacing").rename(lower / "sub" / "inner")
    shows(lambda: bool(see("read", "sub/inner") == "another\n"))
    (lower / "sub" / "new").unlink()
    shows(lambda: not see("exists", "sub/new") and see("names", "sub") == ["deep", "inner"])
    (lower / "sub" / "deep").rename(lower / "elsewhere")
    shows(lambda: not see("exists", "sub/deep") and see("read", "elsewhere/leaf") == "leaf\n")
    (lower / "elsewhere" / "leaf").chmod(0o600)
    shows(lambda: see("stat", "elsewhere/leaf")[0] & 0o777 == 0o600)
    (lower / "link").unlink()
    (lower / "link").symlink_to("sub/inner")
    shows(lambda: bool(see("read", "link") == "another\n"))
    (lower / "file").unlink()
    shows(lambda: not see("exists", "file") and "file" not in see("names", "."))


@pytest.mark.sample(2)
@pytest.mark.parametrize("view", [*IO_MODES, "subtree", "pid"])
def test_lower_does_not_show_where_the_branch_has_its_own(places: Places, lower: Path, view: str) -> None:
    see = places.start(view)
    see("chdir", lower.name)
    see("append", "file", "mine")
    see("chmod", "sub/inner", 0o600)
    see("unlink", "link")
    (lower / "file").write_text("theirs")
    (lower / "link").unlink()
    (lower / "link").write_text("theirs")
    (lower / "sub" / "inner").chmod(0o777)
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        assert see("read", "file") == "lower\nmine"
        assert see("stat", "sub/inner")[0] & 0o777 == 0o600
        assert not see("exists", "link")
        time.sleep(0.05)


@pytest.mark.sample(2)
@pytest.mark.parametrize("view", [*IO_MODES, "pid"])
def test_lower_that_keeps_moving_shows_as_it_ends(places: Places, lower: Path, view: str) -> None:
    see, choice = places.start(view), random.Random(view)
    see("chdir", lower.name)
    ends = time.monotonic() + 1.0
    while time.monotonic() < ends:
        one, two = choice.sample([lower / "a", lower / "b", lower / "sub" / "deep", lower / "sub" / "c"], 2)
        if not one.exists():
            one.mkdir()
            (one / f"f{choice.randrange(3)}").write_text(str(choice.random()))
        elif choice.random() < 0.6 and not two.exists():
            one.rename(two)
        elif choice.random() < 0.5:
            (one / f"f{choice.randrange(3)}").write_text(str(choice.random()))
        else:
            shutil.rmtree(one)
        see("tree", ".")
    wanted = content_of(lower)
    shows(lambda: bool(see("tree", ".") == wanted))
    time.sleep(0.1)
    assert see("tree", ".") == wanted


def content_of(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("view", IO_MODES)
def test_restore_shows_at_once_in_a_run(places: Places, view: str) -> None:
    mounted, see = places.mounted, places.start(view)
    see("mkdir", "work")
    for number in range(3):
        see("write", f"work/f{number}", f"old {number}")
    see("chdir", "work")
    see("open", "held", "f1", os.O_RDONLY)
    mounted.cli("snapshot create", f"s-{view}", "-b", places.branch)
    see("write", "f0", "changed")
    see("unlink", "f2")
    see("write", "later", "later")
    see("write", "../file", "changed")
    see("open", "later", "later", os.O_RDWR)
    assert see("names", ".") == ["f0", "f1", "later"]
    assert not see("exists", "f2")
    mounted.cli("restore", f"s-{view}", "-b", places.branch)
    assert see("names", ".") == ["f0", "f1", "f2"]
    assert [see("read", f"f{number}") for number in range(3)] == ["old 0", "old 1", "old 2"]
    assert see.fails("stat", "later") == errno.ENOENT
    assert see("read", "../file") == see("read", str(mounted.path / "file")) == "lower\n"
    assert see("cwd") == str(mounted.path / "work")
    assert see("pread", "held", 10, 0) == "old 1"
    assert see("pread", "later", 10, 0) == "later"
    see("write", "f3", "after")
    assert (places.tree / "work" / "f3").read_text() == "after"
