"""rename(2) and renameat2(2)."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.posix.places import NOBODY, call, errno_of, in_child, needs_root_for

AT_FDCWD = -100
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4


def renameat2(old: Path, new: Path, flags: int) -> None:
    call("renameat2", AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags)


def tree(where: Path) -> set[str]:
    return {str(path.relative_to(where)) for path in where.rglob("*")}


def test_file_over_file(d: Path) -> None:
    moved = (d / "file").stat().st_ino
    (d / "file").rename(d / "big")
    assert (d / "big").read_bytes() == b"seed\n"
    assert (d / "big").stat().st_ino == moved
    assert not (d / "file").exists()


def test_over_an_open_file_leaves_its_readers_the_old_one(d: Path) -> None:
    old = os.open(d / "hard", os.O_RDWR)
    (d / "file").rename(d / "hard")
    assert os.read(old, 10) == b"hard\n"
    os.pwrite(old, b"HARD", 0)
    assert os.fstat(old).st_nlink == 1
    assert (d / "hard2").read_bytes() == b"HARD\n"
    assert (d / "hard").read_bytes() == b"seed\n"
    os.close(old)


def test_an_open_file_keeps_working_under_its_new_name(d: Path) -> None:
    fd = os.open(d / "file", os.O_RDWR | os.O_APPEND)
    (d / "file").rename(d / "dir" / "moved")
    os.write(fd, b"more\n")
    os.close(fd)
    assert (d / "dir" / "moved").read_bytes() == b"seed\nmore\n"


def test_directory_with_open_children(d: Path) -> None:
    child, directory = os.open(d / "dir" / "inner", os.O_RDWR), os.open(d / "dir" / "deep", os.O_RDONLY)
    (d / "dir").rename(d / "moved")
    os.write(child, b"INNER")
    with open("leaf", opener=lambda name, flags: os.open(name, flags, dir_fd=directory)) as leaf:
        assert leaf.read() == "leaf\n"
    assert (d / "moved" / "inner").read_bytes() == b"INNER\n"
    assert tree(d / "moved") == {"inner", "deep", "deep/leaf"}
    assert not (d / "dir").exists()
    os.close(child)
    os.close(directory)


def test_a_process_that_stands_in_a_moved_directory_stays_there(d: Path) -> None:
    program = (
        "import os,sys\n"
        "print('in', flush=True); sys.stdin.readline()\n"
        "print(os.path.basename(os.getcwd())); print(open('leaf').read())\n"
    )
    inside = subprocess.Popen(
        [sys.executable, "-c", program], cwd=d / "dir" / "deep", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert inside.stdout is not None
    assert inside.stdout.readline() == "in\n"
    (d / "dir" / "deep").rename(d / "elsewhere")
    assert inside.communicate("go\n")[0] == "elsewhere\nleaf\n\n"


def test_directory_over_an_empty_one(d: Path) -> None:
    number = (d / "dir").stat().st_ino
    (d / "dir").rename(d / "void")
    assert (d / "void").stat().st_ino == number
    assert tree(d / "void") == {"inner", "deep", "deep/leaf"}


def test_link_counts_of_parents_follow(d: Path) -> None:
    before = (d / "void").stat().st_nlink
    (d / "dir" / "deep").rename(d / "void" / "deep")
    assert (d / "void").stat().st_nlink == before + 1
    assert (d / "dir").stat().st_nlink == 2
    (d / "void" / "deep" / "leaf").unlink()
    (d / "void" / "deep").rmdir()
    assert (d / "void").stat().st_nlink == before


def test_wrong_targets(d: Path) -> None:
    assert errno_of(lambda: (d / "void").rename(d / "dir")) == errno.ENOTEMPTY
    assert errno_of(lambda: (d / "file").rename(d / "void")) == errno.EISDIR
    assert errno_of(lambda: (d / "void").rename(d / "file")) == errno.ENOTDIR
    assert errno_of(lambda: (d / "dir").rename(d / "dir" / "deep" / "x")) == errno.EINVAL
    assert errno_of(lambda: (d / "none").rename(d / "x")) == errno.ENOENT
    assert errno_of(lambda: (d / "file").rename(d / "none" / "x")) == errno.ENOENT
    assert errno_of(lambda: os.rename(d / "file", str(d / "x") + "/")) == errno.ENOTDIR
    assert tree(d) == {"big", "dir", "dir/deep", "dir/deep/leaf", "dir/inner", "file", "hard", "hard2", "link", "void"}


def test_two_names_of_one_file_both_stay(d: Path) -> None:
    (d / "hard").rename(d / "hard2")
    assert (d / "hard").exists()
    assert (d / "hard2").exists()
    assert (d / "hard").stat().st_nlink == 2


def test_onto_itself(d: Path) -> None:
    (d / "file").rename(d / "file")
    (d / "dir").rename(d / "dir")
    assert (d / "file").read_bytes() == b"seed\n"


def test_noreplace(d: Path) -> None:
    assert errno_of(lambda: renameat2(d / "file", d / "hard", NOREPLACE)) == errno.EEXIST
    renameat2(d / "file", d / "new", NOREPLACE)
    assert (d / "new").read_bytes() == b"seed\n"
    renameat2(d / "dir", d / "newdir", NOREPLACE)
    assert (d / "newdir" / "inner").exists()


def test_exchange_of_files_directories_and_both(d: Path) -> None:
    numbers = {name: (d / name).stat().st_ino for name in ("file", "hard", "dir", "void")}
    renameat2(d / "file", d / "hard", EXCHANGE)
    assert ((d / "file").read_bytes(), (d / "hard").read_bytes()) == (b"hard\n", b"seed\n")
    assert ((d / "file").stat().st_ino, (d / "hard").stat().st_ino) == (numbers["hard"], numbers["file"])
    renameat2(d / "dir", d / "void", EXCHANGE)
    assert tree(d / "void") == {"inner", "deep", "deep/leaf"}
    assert tree(d / "dir") == set()
    renameat2(d / "void", d / "file", EXCHANGE)
    assert (d / "file" / "inner").read_bytes() == b"inner\n"
    assert (d / "void").read_bytes() == b"hard\n"
    assert (d / "hard2").stat().st_nlink == 2


def test_exchange_across_directories(d: Path) -> None:
    renameat2(d / "dir" / "deep", d / "void", EXCHANGE)
    assert tree(d / "void") == {"leaf"}
    renameat2(d / "file", d / "dir" / "inner", EXCHANGE)
    assert (d / "file").read_bytes() == b"inner\n"
    assert errno_of(lambda: renameat2(d / "dir", d / "dir" / "deep", EXCHANGE)) == errno.EINVAL
    assert errno_of(lambda: renameat2(d / "file", d / "none", EXCHANGE)) == errno.ENOENT


def test_contradictory_flags(d: Path) -> None:
    assert errno_of(lambda: renameat2(d / "file", d / "hard", NOREPLACE | EXCHANGE)) == errno.EINVAL
    assert errno_of(lambda: renameat2(d / "file", d / "hard", 1 << 10)) == errno.EINVAL


def test_in_a_sticky_directory_only_the_owner_may(d: Path) -> None:
    needs_root_for("another user")
    (d / "void").chmod(0o1777)
    (d / "void" / "roots").touch()

    def as_another_user() -> None:
        Path("theirs").touch()
        assert errno_of(lambda: Path("roots").rename("x")) == errno.EPERM
        assert errno_of(lambda: Path("theirs").rename("roots")) == errno.EPERM
        assert errno_of(lambda: Path("roots").unlink()) == errno.EPERM
        Path("theirs").rename("x")
        Path("x").unlink()

    in_child(as_another_user, where=d / "void", user=NOBODY)


def test_times_of_both_directories_and_the_file_move(d: Path) -> None:
    for name in ("dir", "void"):
        os.utime(d / name, ns=(0, 0))
    before = (d / "dir" / "inner").stat()
    (d / "dir" / "inner").rename(d / "void" / "inner")
    after = (d / "void" / "inner").stat()
    assert (d / "dir").stat().st_mtime > 0
    assert (d / "void").stat().st_mtime > 0
    assert after.st_mtime_ns == before.st_mtime_ns
    assert after.st_ctime_ns > before.st_ctime_ns


def test_special_files_and_symlinks_move(d: Path) -> None:
    os.mkfifo(d / "pipe")
    (d / "pipe").rename(d / "void" / "pipe")
    assert stat.S_ISFIFO((d / "void" / "pipe").stat().st_mode)
    (d / "link").rename(d / "dir" / "link")
    assert os.readlink(d / "dir" / "link") == "file"


def test_a_chain_of_renames_ends_where_it_should(d: Path) -> None:
    for number in range(50):
        (d / ("file" if number == 0 else f"n{number - 1}")).rename(d / f"n{number}")
    assert (d / "n49").read_bytes() == b"seed\n"
    assert sorted(path.name for path in d.iterdir() if path.name.startswith("n")) == ["n49"]


@pytest.mark.sample(3)
def test_replacing_atomically_never_shows_a_gap(d: Path) -> None:
    program = "print('on', flush=True)\nfor _ in range(3000): assert open('file').read() in ('seed\\n','new\\n')"
    reader = subprocess.Popen([sys.executable, "-c", program], cwd=d, stdout=subprocess.PIPE)
    assert reader.stdout is not None
    reader.stdout.readline()
    for _ in range(300):
        (d / "temporary").write_bytes(b"new\n")
        (d / "temporary").rename(d / "file")
    assert reader.wait() == 0
    reader.stdout.close()
