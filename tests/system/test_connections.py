"""Several connections that show the same branch at once: what one does, the others see with their next step."""

import errno
import itertools
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounted import AGENTFSD, Mounted, needs_fuse, needs_namespaces
from tests.system.stepper import COMMAND, PIPES, Stepper

IO_MODES = ["zero-message", "passthrough", "cached"]
PAIRS = [
    *((mode, mode) for mode in IO_MODES),  # of runs of one branch the first decides: they share one connection
    *((one, view) for one in IO_MODES for view in ("subtree", "pid")), ("subtree", "pid"),
]  # fmt: skip
LOWER_SHOWS_S = 1.0


class Places:
    """Processes that see one branch, each in a way of its own; main through the pid view where that is named."""

    def __init__(self, mounted: Mounted, branch: str) -> None:
        self.mounted, self.branch = mounted, branch
        self.started: list[subprocess.Popen[str]] = []

    @property
    def tree(self) -> Path:
        return self.mounted.subtree(self.branch)

    def command(self, view: str, *command: str) -> subprocess.Popen[str]:
        """*view*: a mode of --io, "pid", or "subtree" for an unbound process below .agentfs."""
        where = self.tree if view == "subtree" else self.mounted.path
        arguments: list[str] = []
        if view != "subtree":
            options = ["--no-namespace"] if view == "pid" else ["--io", view]
            arguments = [*AGENTFSD, "run", "-m", str(self.mounted.path), "-b", self.branch, *options, "--"]
        self.started.append(subprocess.Popen([*arguments, *command], text=True, cwd=where, **PIPES))
        return self.started[-1]

    def start(self, view: str) -> Stepper:
        return Stepper(self.command(view, *COMMAND))

    def end(self) -> None:
        for process in self.started:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                process.wait(20)
            finally:
                process.kill()
                process.wait()


def build(lower: Path) -> None:
    (lower / "sub" / "deep").mkdir(parents=True)
    (lower / "file").write_text("lower\n")
    (lower / "sub" / "inner").write_text("inner\n")
    (lower / "sub" / "deep" / "leaf").write_text("leaf\n")
    (lower / "link").symlink_to("file")


@pytest.fixture(scope="module")
def one_mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    needs_namespaces()
    with pytest.MonkeyPatch.context() as environment:
        base = tmp_path_factory.mktemp("connections")
        for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
            environment.setenv(name, str(base / name))
        mounted = Mounted(base)
        build(mounted.lower)
        mounted.mount()
        yield mounted
        try:
            assert mounted.fsck() == []
            assert "Error" not in Path(mounted.state, "daemon.log").read_text()
        finally:
            mounted.end()


_numbers = itertools.count(1)


@pytest.fixture
def places(one_mount: Mounted, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """A branch of its own for each test; whoever changes the lower puts it back."""
    for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(one_mount.path.parent / name))
    made = Places(one_mount, f"b{next(_numbers)}")
    one_mount.cli("branch create", made.branch)
    yield made
    made.end()


@pytest.fixture
def lower(one_mount: Mounted) -> Path:
    """A directory of the lower for one test alone."""
    made = one_mount.lower / f"d{next(_numbers)}"
    build(made)
    return made


def warm(see: Stepper) -> None:
    """Has the kernel cache whatever it will of what the other is about to change."""
    for _ in range(2):
        assert see("names", ".") == ["file", "link", "sub"]
        assert see("names", "sub") == ["deep", "inner"]
        assert see("stat", "file")[2] == 6
        assert see("read", "file") == "lower\n"
        assert see("read", "sub/inner") == "inner\n"
        assert not see("exists", "new")
        assert not see("exists", "sub/new")
        assert see("stat", "sub/deep/leaf")[2] == 5
        assert see("read", "link") == "lower\n"
    see("open", "file", "file", os.O_RDONLY)
    see("map", "file", False)
    assert see("peek", "file", 6, 0) == "lower\n"
    see("open", "inner", "sub/inner", os.O_RDONLY)


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


# -- content that is changed in a mapping on one side, and otherwise on the other

TEXT = "0123456789" * 900


def shrink(who: Stepper) -> str:
    who("truncate", "mapped", 100)
    return TEXT[:3] + "A" + TEXT[4:100]


def empty(who: Stepper) -> str:
    who("open", "emptied", "mapped", os.O_WRONLY | os.O_TRUNC)
    who("close", "emptied")
    return ""


def punch(who: Stepper) -> str:
    who("open", "punched", "mapped", os.O_WRONLY)
    who("fallocate", "punched", 3, 0, 4096)  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    who("close", "punched")
    return "\0" * 4096 + TEXT[4096:5000] + "B" + TEXT[5001:]


def copy_into(who: Stepper) -> str:
    who("write", "source", "s" * 4096)
    who("open", "source", "source", os.O_RDONLY)
    who("open", "target", "mapped", os.O_WRONLY)
    assert who("copy_range", "source", 0, "target", 0, 4096) == 4096
    who("close", "source")
    who("close", "target")
    return "s" * 4096 + TEXT[4096:5000] + "B" + TEXT[5001:]


def write_over(who: Stepper) -> str:
    who("open", "written", "mapped", os.O_WRONLY)
    who("pwrite", "written", "W" * 100, 100)
    who("close", "written")
    return TEXT[:3] + "A" + TEXT[4:100] + "W" * 100 + TEXT[200:5000] + "B" + TEXT[5001:]


@pytest.mark.parametrize("change", [shrink, empty, punch, copy_into, write_over])
@pytest.mark.parametrize(("one", "two"), [("zero-message", "pid"), ("pid", "zero-message"), ("zero-message", "subtree")])
def test_what_a_mapping_has_changed_comes_before_what_the_other_side_does(
    places: Places, one: str, two: str, change: Callable[[Stepper], str]
) -> None:
    mapper, other = places.start(one), places.start(two)
    mapper("write", "mapped", TEXT)
    mapper("open", "mapped", "mapped", os.O_RDWR)
    mapper("map", "mapped", True)
    assert other("read", "mapped") == TEXT
    mapper("poke", "mapped", "A", 3)
    mapper("poke", "mapped", "B", 5000)
    wanted = change(other)
    assert mapper("read", "mapped") == other("read", "mapped") == wanted
    mapper("close", "mapped")
    assert (places.tree / "mapped").read_text() == wanted


@pytest.mark.parametrize(("one", "two"), [("zero-message", "pid"), ("pid", "zero-message")])
def test_copy_has_what_a_mapping_on_the_other_side_has_changed(places: Places, one: str, two: str) -> None:
    mapper, other = places.start(one), places.start(two)
    mapper("write", "mapped", TEXT)
    mapper("open", "mapped", "mapped", os.O_RDWR)
    mapper("map", "mapped", True)
    mapper("poke", "mapped", "A", 3)
    other("write", "copy", "")
    other("open", "from", "mapped", os.O_RDONLY)
    other("open", "to", "copy", os.O_WRONLY)
    assert other("copy_range", "from", 0, "to", 0, len(TEXT)) == len(TEXT)
    assert other("read", "copy") == TEXT[:3] + "A" + TEXT[4:]


# -- the lower moves


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


# -- the whole branch moves


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
