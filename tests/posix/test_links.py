"""Hard links, symlinks, unlinking what is open, removing directories."""

import errno
import os
import stat
from pathlib import Path

from tests.posix.places import errno_of, link_descriptor


def test_hard_link_is_the_same_file(d: Path) -> None:
    os.link(d / "file", d / "dir" / "second")
    one, two = (d / "file").stat(), (d / "dir" / "second").stat()
    assert (one.st_ino, one.st_dev, one.st_nlink) == (two.st_ino, two.st_dev, 2)
    (d / "dir" / "second").write_bytes(b"changed")
    assert (d / "file").read_bytes() == b"changed"
    (d / "file").chmod(0o600)
    assert (d / "dir" / "second").stat().st_mode & 0o777 == 0o600


def test_hard_links_that_were_there_stay_links(d: Path) -> None:
    (d / "hard").chmod(0o604)
    assert (d / "hard2").stat().st_mode & 0o777 == 0o604
    with (d / "hard2").open("ab") as file:
        file.write(b"more")
    assert (d / "hard").read_bytes() == b"hard\nmore"
    (d / "hard").unlink()
    assert (d / "hard2").stat().st_nlink == 1
    assert (d / "hard2").read_bytes() == b"hard\nmore"


def test_link_errors(d: Path) -> None:
    assert errno_of(lambda: os.link(d / "file", d / "hard")) == errno.EEXIST
    assert errno_of(lambda: os.link(d / "dir", d / "x")) == errno.EPERM
    assert errno_of(lambda: os.link(d / "none", d / "x")) == errno.ENOENT
    assert errno_of(lambda: os.link(d / "file", d / "none" / "x")) == errno.ENOENT
    assert errno_of(lambda: os.link(d / "file", d / "file" / "x")) == errno.ENOTDIR


def test_link_to_a_symlink_itself(d: Path) -> None:
    os.link(d / "link", d / "link2", follow_symlinks=False)
    assert os.readlink(d / "link2") == "file"
    assert (d / "link").lstat().st_nlink == 2


def test_unlinked_while_open(d: Path) -> None:
    fd = os.open(d / "big", os.O_RDWR)
    before = os.fstat(fd)
    (d / "big").unlink()
    after = os.fstat(fd)
    assert (after.st_nlink, after.st_ino, after.st_size) == (0, before.st_ino, before.st_size)
    os.pwrite(fd, b"after", 0)
    assert os.pread(fd, 8, 0) == b"after567"
    os.ftruncate(fd, 3)
    assert os.fstat(fd).st_size == 3
    os.fchmod(fd, 0o600)
    assert os.fstat(fd).st_mode & 0o777 == 0o600
    os.utime(fd, ns=(1, 2))
    assert os.fstat(fd).st_mtime_ns == 2
    os.fsync(fd)
    os.close(fd)
    assert not (d / "big").exists()


def test_name_reused_while_the_old_file_is_open(d: Path) -> None:
    old = os.open(d / "file", os.O_RDWR)
    (d / "file").unlink()
    (d / "file").write_bytes(b"new")
    os.pwrite(old, b"OLD", 0)
    assert os.pread(old, 10, 0) == b"OLDd\n"
    assert (d / "file").read_bytes() == b"new"
    assert os.fstat(old).st_ino != (d / "file").stat().st_ino
    os.close(old)


def test_unlinked_file_cannot_be_linked_back(d: Path) -> None:
    fd = os.open(d / "file", os.O_RDONLY)
    (d / "file").unlink()
    assert errno_of(lambda: link_descriptor(fd, d / "back")) == errno.ENOENT
    os.close(fd)


def test_descriptor_links_a_file_that_has_a_name(d: Path) -> None:
    fd = os.open(d / "file", os.O_RDONLY)
    link_descriptor(fd, d / "second")
    os.close(fd)
    assert (d / "second").read_bytes() == b"seed\n"


def test_remove_errors(d: Path) -> None:
    assert errno_of(lambda: (d / "dir").rmdir()) == errno.ENOTEMPTY
    assert errno_of(lambda: (d / "file").rmdir()) == errno.ENOTDIR
    assert errno_of(lambda: (d / "dir").unlink()) == errno.EISDIR
    assert errno_of(lambda: (d / "none").unlink()) == errno.ENOENT
    assert errno_of(lambda: (d / "none").rmdir()) == errno.ENOENT
    assert errno_of(lambda: os.rmdir(f"{d}/void/.")) == errno.EINVAL
    assert errno_of(lambda: os.rmdir(f"{d}/void/..")) == errno.ENOTEMPTY


def test_removed_directory_that_is_still_held(d: Path) -> None:
    fd = os.open(d / "void", os.O_RDONLY | os.O_DIRECTORY)
    (d / "void").rmdir()
    assert os.listdir(fd) == []
    assert errno_of(lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=fd)) == errno.ENOENT
    assert errno_of(lambda: os.mkdir("new", dir_fd=fd)) == errno.ENOENT
    assert os.fstat(fd).st_nlink == 0
    os.close(fd)


def test_directory_made_again_starts_empty(d: Path) -> None:
    for path in sorted((d / "dir").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (d / "dir").rmdir()
    (d / "dir").mkdir()
    assert list((d / "dir").iterdir()) == []
    (d / "dir" / "inner").write_bytes(b"new")
    assert (d / "dir" / "inner").read_bytes() == b"new"
    assert not (d / "dir" / "deep").exists()


def test_file_replaced_by_a_directory_and_back(d: Path) -> None:
    (d / "file").unlink()
    (d / "file").mkdir()
    (d / "file" / "in").touch()
    assert [path.name for path in (d / "file").iterdir()] == ["in"]
    (d / "file" / "in").unlink()
    (d / "file").rmdir()
    (d / "file").write_bytes(b"again")
    assert (d / "file").read_bytes() == b"again"


def test_symlinks(d: Path) -> None:
    (d / "absolute").symlink_to("/nowhere/at/all")
    assert os.readlink(d / "absolute") == "/nowhere/at/all"
    assert (d / "absolute").lstat().st_size == len("/nowhere/at/all")
    assert stat.S_IMODE((d / "absolute").lstat().st_mode) == 0o777
    assert (d / "link").read_bytes() == b"seed\n"
    (d / "link").unlink()
    (d / "link").symlink_to("dir")
    assert (d / "link" / "inner").read_bytes() == b"inner\n"
    (d / "loop").symlink_to("loop")
    assert errno_of((d / "loop").stat) == errno.ELOOP
    assert errno_of(lambda: os.readlink(d / "file")) == errno.EINVAL


def test_symlink_target_lengths(d: Path) -> None:
    for length in (1, 255, 4000, 4095):
        (d / f"l{length}").symlink_to("x" * length)
        assert os.readlink(d / f"l{length}") == "x" * length
    assert errno_of(lambda: (d / "too-long").symlink_to("x" * 4096)) == errno.ENAMETOOLONG


def test_symlink_times_and_owner_are_its_own(d: Path) -> None:
    os.utime(d / "link", ns=(10**18, 10**18), follow_symlinks=False)
    assert (d / "link").lstat().st_mtime_ns == 10**18
    assert (d / "file").stat().st_mtime_ns != 10**18
    if os.geteuid() == 0:
        os.lchown(d / "link", 1, 2)
        assert ((d / "link").lstat().st_uid, (d / "link").lstat().st_gid) == (1, 2)
        assert (d / "file").stat().st_uid == 0


def test_many_links(d: Path) -> None:
    for number in range(200):
        os.link(d / "file", d / "void" / f"l{number}")
    assert (d / "file").stat().st_nlink == 201
    for number in range(200):
        (d / "void" / f"l{number}").unlink()
    assert (d / "file").stat().st_nlink == 1


def test_inode_numbers_are_stable_and_distinct(d: Path) -> None:
    numbers = {path: path.lstat().st_ino for path in d.rglob("*")}
    assert len(set(numbers.values())) == len(numbers) - 1  # hard and hard2
    (d / "file").write_bytes(b"changed")
    (d / "dir").chmod(0o700)
    (d / "dir" / "new").touch()
    for path, number in numbers.items():
        assert path.lstat().st_ino == number
    assert (d / "dir" / "new").stat().st_ino not in numbers.values()
