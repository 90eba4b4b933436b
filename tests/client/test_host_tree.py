"""The library for the host's directory trees: going down, removing, extended attributes, system calls."""

import errno
import os
from pathlib import Path

import pytest

from agentfs_host import syscalls, xattrs
from agentfs_host.beneath import Beneath
from agentfs_host.descent import Descent, opened
from agentfs_host.syscalls import EXCHANGE, NOREPLACE, RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, OpenHow
from agentfs_host.tree_removal import remove_tree

ROOT = Path(__file__).parents[2]
SOURCES = [
    *(ROOT / "client").rglob("*.py"),
    *(ROOT / "agentfsd").rglob("*.py"),
]
BEYOND_PATH_MAX = 1200  # directories with names of three characters and a slash each


def test_two_modules_call_the_c_library() -> None:
    assert len(SOURCES) > 350
    # pyfuse3_entries.py calls nothing: it reads a field of an object
    calling = [path.name for path in SOURCES if "import ctypes" in path.read_text()]
    assert sorted(calling) == [
        "process_syscalls.py",
        "pyfuse3_entries.py",
        "syscalls.py",
    ]


def deep(root: Path) -> bytes:
    """Makes a chain of directories that no single path reaches, with a file at its end."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(BEYOND_PATH_MAX):
        os.mkdir("abc", dir_fd=fd)
        below = os.open("abc", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    return b"/".join([b"abc"] * BEYOND_PATH_MAX)


def test_descent_and_removal_reach_beyond_path_max(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    path = deep(root)
    before = len(os.listdir("/proc/self/fd"))
    with opened(str(root)) as descent:
        assert os.listdir(descent.fd(path)) == ["file"]
        assert len(os.listdir("/proc/self/fd")) < before + 300
        assert os.listdir(descent.fd(path.rpartition(b"/")[0])) == ["abc"]
    assert len(os.listdir("/proc/self/fd")) == before
    remove_tree(str(root))
    remove_tree(str(root))
    assert os.listdir(tmp_path) == []


def test_descent_opens_anew_what_was_replaced(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with opened(str(tmp_path)) as descent:
        descent.fd(b"one")
        os.rmdir("one", dir_fd=descent.fd(b""))
        os.mkdir("one", dir_fd=descent.fd(b""))
        os.mkdir("inner", dir_fd=descent.fd(b"one"))
    assert (tmp_path / "one" / "inner").is_dir()


def test_descent_follows_no_symlink(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    fd = os.open(tmp_path / "root", os.O_RDONLY)
    with Descent(fd) as descent, pytest.raises(OSError, match=os.strerror(errno.ENOTDIR)):
        descent.fd(b"link")
    os.close(fd)


def test_removal_does_not_follow_symlinks_and_needs_no_modes(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("kept")
    inner = tmp_path / "root" / "inner"
    inner.mkdir(parents=True)
    (inner / "link").symlink_to(tmp_path / "outside")
    (inner / "file").write_text("goes")
    inner.chmod(0)
    remove_tree(str(tmp_path / "root"))
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]


def test_removal_changes_no_mode_behind_a_symlink_that_replaces_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir(0o755)
    (tmp_path / "tree").symlink_to("elsewhere")
    is_directory = (tmp_path / "elsewhere").stat()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", lambda *_, **__: (_ for _ in ()).throw(IsADirectoryError))
        patched.setattr(os, "stat", lambda *_, **__: is_directory)
        with pytest.raises(NotADirectoryError):
            remove_tree(str(tmp_path / "tree"))
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o755


def test_rename_flags(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    fd = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(FileExistsError):
        syscalls.rename(fd, b"one", fd, b"two", NOREPLACE)
    syscalls.rename(fd, b"one", fd, b"two", EXCHANGE)
    assert ((tmp_path / "one").read_text(), (tmp_path / "two").read_text()) == ("2", "1")
    syscalls.rename(fd, b"one", fd, b"two")
    os.close(fd)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("two", "2")]


@pytest.mark.parametrize(("path", "expected"), [(b"../outside", errno.EXDEV), (b"link", errno.ELOOP), (b"nothing", errno.ENOENT)])
def test_openat2_says_why_it_opens_nothing(tmp_path: Path, path: bytes, expected: int) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").write_text("secret")
    (root / "link").symlink_to("../outside")
    fd = os.open(root, os.O_PATH)
    how = OpenHow(os.O_RDONLY, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)
    with pytest.raises(OSError) as caught:
        syscalls.openat2(fd, path, how)
    os.close(fd)
    assert caught.value.errno in (expected, errno.ENOSYS, errno.EPERM)


def test_beneath_moves_only_to_free_names(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "one").write_text("1")
    (tmp_path / "dir" / "two").write_text("2")
    beneath = Beneath(str(tmp_path))
    with pytest.raises(FileExistsError):
        beneath.move("one", "dir/two")
    beneath.move("one", "dir/one")
    beneath.close()
    assert sorted(path.name for path in (tmp_path / "dir").iterdir()) == ["one", "two"]


def test_xattrs_are_read_and_copied(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for path in (one, two):
        path.touch()
    try:
        os.setxattr(one, "user.kept", b"value")
    except OSError as exc:
        pytest.skip(f"no extended attributes here: {exc.strerror}")
    os.setxattr(two, "user.goes", b"")
    (tmp_path / "link").symlink_to("one")
    with open(one) as source, open(two) as target:
        xattrs.copy_permitted(source.fileno(), target.fileno())
        assert xattrs.read_all(target.fileno(), follow=False) == {b"user.kept": b"value"}
    assert xattrs.names(os.fsencode(tmp_path / "link"), follow=True) == [b"user.kept"]
    assert xattrs.read_all(os.fsencode(tmp_path / "link"), follow=False) == {}
