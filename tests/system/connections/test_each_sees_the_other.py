"""Several connections that show the same branch at once: what one does, the others see with their next step."""

import errno
import os
import sys

import pytest

from tests.system.connections.connected import PAIRS, Places, warm
from tests.system.stepper import Stepper


@pytest.mark.sample(4)
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_each_sees_at_once_what_the_other_does(places: Places, one: str, two: str) -> None:
    do, see = places.start(one), places.start(two)
    warm(see)
    warm(do)
    names(do, see)
    contents(do, see)
    attributes(do, see)
    directories(do, see)
    names(see, do)
    contents(see, do)
    attributes(see, do)
    directories(see, do)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_both_append_to_one_file_and_nothing_is_lost(places: Places, one: str, two: str) -> None:
    first, second = places.start(one), places.start(two)
    first("write", "log", "")
    for who in (first, second):
        who("open", "log", "log", os.O_WRONLY | os.O_APPEND)
    for number in range(5):
        first("pwrite", "log", f"first {number}\n", 0)
        second("pwrite", "log", f"second {number}\n", 0)
    wanted = "".join(f"first {number}\nsecond {number}\n" for number in range(5))
    assert first("read", "log") == second("read", "log") == wanted


def names(do: Stepper, see: Stepper) -> None:
    do("write", "new", "made")
    assert see("read", "new") == "made"
    assert see("names", ".") == do("names", ".") == ["file", "link", "new", "sub"]
    do("rename", "new", "sub/new")
    assert not see("exists", "new")
    assert see("read", "sub/new") == "made"
    assert "new" in see("names", "sub")
    do("link", "sub/new", "new")
    assert see("stat", "sub/new")[1] == see("stat", "new")[1] == 2
    do("unlink", "sub/new")
    assert see("stat", "new")[1] == 1
    assert not see("exists", "sub/new")
    assert see("names", "sub") == ["deep", "inner"]
    do("symlink", "file", "sub/new")
    assert see("stat", "sub/new")[0] & 0o170000 == 0o120000
    do("rename", "new", "sub/new")  # replaces what the other knows
    assert see("read", "sub/new") == "made"
    see("unlink", "sub/new")
    assert not do("exists", "sub/new")
    do("write", "sub/new", "again")
    assert see("read", "sub/new") == "again"
    do("unlink", "sub/new")
    assert see.fails("stat", "sub/new") == errno.ENOENT


def contents(do: Stepper, see: Stepper) -> None:
    do("write", "file", "first content, longer than it was\n")
    assert see("read", "file") == "first content, longer than it was\n"
    assert see("stat", "file")[2] == 34
    see("open", "held", "file", os.O_RDWR)
    see("map", "held", False)
    assert see("peek", "held", 5, 0) == "first"
    do("open", "writer", "file", os.O_RDWR)
    do("pwrite", "writer", "FIRST", 0)
    assert see("pread", "held", 5, 0) == "FIRST"
    assert see("peek", "held", 5, 0) == "FIRST"
    assert see("read", "file")[:5] == "FIRST"
    do("append", "file", "more\n")
    assert see("fstat", "held")[2] == 39
    assert see("pread", "held", 5, 34) == "more\n"
    see("pwrite", "held", "seer!", 6)
    assert do("pread", "writer", 11, 0) == "FIRST seer!"
    do("truncate", "file", 5)
    assert see("fstat", "held")[2] == see("stat", "file")[2] == 5
    assert see("read", "file") == "FIRST"
    do("truncate", "file", 8)
    assert see("read", "file") == "FIRST\0\0\0"
    do("pwrite", "writer", "x" * 5000, 4000)
    assert see("pread", "held", 5000, 4000) == "x" * 5000
    do("close", "writer")
    see("close", "held")
    do("write", "file", "lower\n")
    assert see("read", "file") == "lower\n"


def attributes(do: Stepper, see: Stepper) -> None:
    old = see("stat", "sub/inner")
    do("chmod", "sub/inner", 0o751)
    assert see("stat", "sub/inner")[0] & 0o777 == 0o751
    do("utime", "sub/inner", 1_000_000_007)
    assert see("stat", "sub/inner")[4] == 1_000_000_007
    assert see.fails("getxattr", "sub/inner") == errno.ENODATA or see("getxattr", "sub/inner") == "old"
    do("setxattr", "sub/inner", "value")
    assert see("getxattr", "sub/inner") == "value"
    do("setxattr", "sub/inner", "old")
    do("chmod", "sub", 0o711)
    assert see("stat", "sub")[0] & 0o777 == 0o711
    do("chmod", "sub", 0o755)
    do("chmod", "sub/inner", old[0] & 0o777)
    assert see("stat", "sub/inner")[0] == old[0]


def directories(do: Stepper, see: Stepper) -> None:
    do("mkdir", "made")
    assert see("names", "made") == []
    do("write", "made/x", "x")
    assert see("names", "made") == ["x"]
    see("chdir", "made")
    do("rename", "made", "moved")
    assert see("names", ".") == ["x"]
    assert see("read", "../moved/x") == "x"
    see("chdir", "..")
    assert not see("exists", "made")
    do("rename", "sub", "sub2")
    assert see("read", "sub2/deep/leaf") == "leaf\n"
    assert not see("exists", "sub/deep")
    do("rename", "sub2", "sub")
    assert see("read", "sub/deep/leaf") == "leaf\n"
    do("unlink", "moved/x")
    do("rmdir", "moved")
    assert see.fails("names", "moved") == errno.ENOENT
    assert see("names", ".") == ["file", "link", "sub"]


WRITERS = """
import os, sys, time
tag, ends, n = sys.argv[1], time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < ends:
    n += 1
    name = f"both/{tag}{n % 7}"
    open(name, "w").close()
    try: os.rename(name, f"both/shared{n % 3}")
    except OSError: pass
    try: os.unlink(f"both/shared{(n + 1) % 3}")
    except FileNotFoundError: pass
    os.listdir("both")
print(n, sorted(os.listdir("both")))
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize(("one", "two"), [("zero-message", "zero-message"), ("passthrough", "cached"), ("zero-message", "pid")])
def test_two_that_hammer_one_directory_do_not_stop(places: Places, one: str, two: str) -> None:
    (places.tree / "both").mkdir()
    running = [places.command(view, sys.executable, "-c", WRITERS, tag, "1.5") for tag, view in (("x", one), ("y", two))]
    for process in running:
        rounds = int(process.communicate(timeout=60)[0].split()[0])
        assert process.returncode == 0
        assert rounds > 10
    wanted = sorted(os.listdir(places.tree / "both"))
    for view in (one, two):
        assert places.start(view)("names", "both") == wanted
