"""Long names and paths, names of any bytes, statfs, and what is refused."""

import errno
import os
import subprocess
from pathlib import Path

from tests.posix.places import errno_of

STRANGE = [
    b"\xff\xfe",
    b"new\nline",
    b"tab\there",
    b"-rf",
    b" ",
    b"\x01\x7f",
    "ümläut".encode(),
    "日本".encode(),
    b'a:b*?"<>|\\',
    b"...",
]


def test_names_of_any_bytes(d: Path) -> None:
    where = os.fsencode(d / "void")
    for name in STRANGE:
        with open(os.path.join(where, name), "wb") as file:
            file.write(name)
    assert sorted(os.listdir(where)) == sorted(STRANGE)
    for name in STRANGE:
        with open(os.path.join(where, name), "rb") as file:
            assert file.read() == name
        os.rename(os.path.join(where, name), os.path.join(where, name + b"2"))
        os.unlink(os.path.join(where, name + b"2"))
    assert os.listdir(where) == []


def test_two_forms_of_one_letter_are_two_names(d: Path) -> None:
    (d / "\u00e9").write_text("composed")
    (d / "e\u0301").write_text("decomposed")
    assert (d / "\u00e9").read_text() == "composed"
    assert (d / "FILE").exists() is False


def test_longest_name(d: Path) -> None:
    name = "n" * 255
    (d / name).write_bytes(b"x")
    assert name in os.listdir(d)
    (d / name).rename(d / ("m" * 255))
    longer = d / (name + "n")
    for work in (longer.touch, longer.mkdir, longer.stat, lambda: (d / "file").rename(longer)):
        assert errno_of(work) == errno.ENAMETOOLONG
    assert os.pathconf(d, "PC_NAME_MAX") == 255


def test_deep_directories(d: Path) -> None:
    fd = os.open(d, os.O_RDONLY)
    for _ in range(120):
        os.mkdir("x" * 100, dir_fd=fd)
        deeper = os.open("x" * 100, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    with open("leaf", "w", opener=lambda name, flags: os.open(name, flags, 0o644, dir_fd=fd)) as leaf:
        leaf.write("deep")
    os.stat("leaf", dir_fd=fd)
    os.close(fd)
    found = subprocess.check_output(["find", ".", "-name", "leaf"], cwd=d).decode()
    assert found.count("x" * 100) == 120
    subprocess.run(["rm", "-r", "x" * 100], cwd=d, check=True)
    assert errno_of(lambda: os.stat(os.path.join(d, *["y" * 100] * 60))) == errno.ENAMETOOLONG


def test_statvfs_makes_sense(d: Path) -> None:
    found = os.statvfs(d)
    assert found.f_namemax == 255
    assert found.f_bsize >= 512
    assert 0 < found.f_bavail <= found.f_bfree <= found.f_blocks
    assert subprocess.run(["df", d], capture_output=True, check=True).stdout


def test_names_that_are_not_names(d: Path) -> None:
    assert errno_of(lambda: os.mkdir(d / "dir" / "")) == errno.EEXIST
    assert errno_of(lambda: os.mkdir(f"{d}/.")) == errno.EEXIST
    assert errno_of(lambda: os.mkdir(f"{d}/..")) == errno.EEXIST
    assert errno_of(lambda: os.open(f"{d}/void/", os.O_CREAT | os.O_WRONLY)) == errno.EISDIR
    assert errno_of(lambda: os.open(f"{d}/new/", os.O_CREAT | os.O_WRONLY)) == errno.EISDIR
    assert errno_of(lambda: os.stat(f"{d}/file/")) == errno.ENOTDIR
    assert errno_of(lambda: os.stat("")) == errno.ENOENT


def test_tools_work_on_everything_at_once(d: Path) -> None:
    script = "cp -a dir copy && diff -r dir copy && tar cf t.tar dir && tar tf t.tar && rm -r dir copy"
    subprocess.run(["sh", "-c", script], cwd=d, check=True, stdout=subprocess.DEVNULL)
    assert sorted(os.listdir(d)) == ["big", "file", "hard", "hard2", "link", "t.tar", "void"]
