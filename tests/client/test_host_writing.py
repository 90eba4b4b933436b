"""What HostFilesystem does to files that are there: attributes, links, other writers, a full disk, no descriptors left."""

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.host_files import _Beside
from agentfs_files.filesystem.filesystem_errors import PathEscapeError
from tests.client.host_places import NOBODY, as_nobody, free_descriptors, open_descriptors, small_disk
from tests.mounted import needs_root

MIB = 1 << 20


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[HostFilesystem]:
    made = HostFilesystem(tmp_path)
    yield made
    made.close()


def acl(*entries: tuple[int, int, int]) -> bytes:
    """As system.posix_acl_access holds it: tag, permissions, id."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NO_ID = 0xFFFFFFFF
FOR_NOBODY = acl((1, 6, NO_ID), (2, 4, NOBODY), (4, 0, NO_ID), (16, 4, NO_ID), (32, 0, NO_ID))


def test_replaced_file_keeps_its_attributes(fs: HostFilesystem, tmp_path: Path) -> None:
    needs_root()
    path = tmp_path / "run.sh"
    path.write_text("old")
    os.chown(path, NOBODY, 12)
    path.chmod(0o4751)
    os.setxattr(path, "user.colour", b"blue")
    os.setxattr(path, "system.posix_acl_access", FOR_NOBODY)
    before = path.stat()
    fs.write("run.sh", "new")
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, NOBODY, 12)
    assert os.getxattr(path, "user.colour") == b"blue"
    assert os.getxattr(path, "system.posix_acl_access") == FOR_NOBODY
    assert after.st_ino != before.st_ino


def test_replaced_file_takes_nothing_from_its_directory(fs: HostFilesystem, tmp_path: Path) -> None:
    needs_root()
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    os.setxattr(tmp_path, "system.posix_acl_default", FOR_NOBODY)
    os.chown(tmp_path, 0, 12)
    tmp_path.chmod(0o2755)
    fs.write("file", "new")
    assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_gid) == (0o640, 0)
    assert os.listxattr(path) == []
    fs.write("born", "here")
    assert (os.listxattr(tmp_path / "born"), (tmp_path / "born").stat().st_gid) == (["system.posix_acl_access"], 12)


def test_new_file_has_the_mode_of_the_umask(fs: HostFilesystem, tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        fs.write("dir/file", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "dir/file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "dir").stat().st_mode) == 0o750


def test_hard_links_stay_links(fs: HostFilesystem, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a longer text")
    os.link(tmp_path / "one", tmp_path / "two")
    fs.write("one", "new")
    assert fs.read("two").content == "new"
    fs.write("two", "er", mode="append")
    assert fs.read("one").content == "newer"
    with pytest.raises(ZeroDivisionError), fs.open_write("one") as writer:
        writer.write(b"x" * MIB)
        raise ZeroDivisionError
    assert fs.read("two").content == "newer"
    assert (tmp_path / "one").samefile(tmp_path / "two")


@pytest.mark.parametrize("absolute", [False, True])
def test_symlink_is_written_through_and_stays(fs: HostFilesystem, tmp_path: Path, absolute: bool) -> None:
    fs.write("dir/file", "old")
    fs.mkdir("links")
    (tmp_path / "links/link").symlink_to(tmp_path / "dir/file" if absolute else "../dir/file")
    (tmp_path / "links/second").symlink_to(tmp_path / "links/link" if absolute else "link")
    fs.write("links/second", "new")
    fs.write("links/link", "er", mode="append")
    assert fs.read("dir/file").content == fs.read("links/second").content == "newer"
    assert (tmp_path / "links/second").is_symlink()
    assert sorted(os.listdir(tmp_path / "links")) == ["link", "second"]
    with pytest.raises(FileExistsError):
        fs.write("links/link", "", mode="create")


@pytest.mark.parametrize("absolute", [False, True])
def test_dangling_symlink_is_written_through(fs: HostFilesystem, tmp_path: Path, absolute: bool) -> None:
    fs.mkdir("dir")
    for name in ("one", "two", "three"):
        (tmp_path / name).symlink_to(tmp_path / "dir" / name if absolute else f"dir/{name}")
    assert not fs.exists("one")
    fs.write("one", "1")
    fs.write("two", "2", mode="append")
    with pytest.raises(FileExistsError):
        fs.write("three", "3", mode="create")
    with pytest.raises(FileExistsError):
        fs.mkdir("three")
    assert sorted(os.listdir(tmp_path / "dir")) == ["one", "two"]
    assert (tmp_path / "one").is_symlink()
    (tmp_path / "nowhere").symlink_to("missing/file")
    with pytest.raises(FileNotFoundError):
        fs.write("nowhere", "")


def test_symlinks_that_lead_out_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "there").write_text("outside")
    fs = HostFilesystem(tmp_path / "root")
    for target in ("../there", tmp_path / "there", "../new", tmp_path / "new", tmp_path / "root/../new", "..", "/etc/passwd"):
        link = tmp_path / "root/link"
        link.symlink_to(target)
        for mode in ("overwrite", "append"):
            with pytest.raises(PathEscapeError):
                fs.write("link", "x", mode=mode)  # type: ignore[arg-type]
        link.unlink()
    assert (tmp_path / "there").read_text() == "outside"
    assert sorted(os.listdir(tmp_path)) == ["root", "there"]


def test_symlinks_in_a_circle_end(fs: HostFilesystem, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "d").symlink_to(".")
    assert not fs.exists("a")
    for operation in (fs.read, fs.stat, lambda path: fs.write(path, "")):
        with pytest.raises(OSError) as caught:
            operation("a")
        assert caught.value.errno == errno.ELOOP
    fs.write("d/d/d/file", "x")
    assert ([match.path for match in fs.glob("**")], fs.grep("x")[0].path) == (["file"], "file")
    assert [(entry.name, entry.kind) for entry in fs.list()] == [
        ("a", "other"),
        ("b", "other"),
        ("d", "directory"),
        ("file", "file"),
    ]
    for name in ("a", "b", "d"):
        fs.delete(name, recursive=True)
    assert os.listdir(tmp_path) == ["file"]


def test_two_appenders_lose_nothing(fs: HostFilesystem, tmp_path: Path) -> None:
    fs.write("log", "0\n")
    with fs.open_write("log", mode="append") as one, fs.open_write("log", mode="append") as two:
        one.write(b"1" * 300_000 + b"\n")
        two.write(b"2\n")
        with open(tmp_path / "log", "a") as other:
            other.write("3\n")
    assert (tmp_path / "log").read_text() == f"0\n3\n2\n{'1' * 300_000}\n"


def test_file_that_appears_while_it_is_being_written(fs: HostFilesystem, tmp_path: Path) -> None:
    for mode, expected in (("overwrite", "mine"), ("append", "theirs, mine"), ("create", "theirs")):
        writer = fs.open_write("file", mode=mode)  # type: ignore[arg-type]
        writer.write(b"mine" if mode == "overwrite" else b", mine")
        (tmp_path / "file").write_text("theirs")
        if mode == "create":
            with pytest.raises(FileExistsError, match="'file'"):
                writer.close()
        else:
            writer.close()
        assert (tmp_path / "file").read_text() == expected
        os.unlink(tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_directory_that_appears_or_goes_while_a_file_is_being_written(fs: HostFilesystem, tmp_path: Path) -> None:
    fs.mkdir("dir")
    over, gone = fs.open_write("file"), fs.open_write("dir/file")
    (tmp_path / "file").mkdir()
    fs.delete("dir")
    with pytest.raises(IsADirectoryError, match="'file'"):
        over.close()
    with pytest.raises(FileNotFoundError, match="'dir/file'"):
        gone.close()
    assert os.listdir(tmp_path) == ["file"]


def test_forgotten_writer_leaves_nothing(fs: HostFilesystem, tmp_path: Path) -> None:
    fs.write("file", "old")
    before = open_descriptors()
    for path, mode in (("file", "overwrite"), ("new", "create"), ("file", "append")):
        fs.open_write(path, mode=mode).write(b"half")  # type: ignore[arg-type]
    assert (fs.read("file").content, os.listdir(tmp_path), open_descriptors()) == ("old", ["file"], before)


@pytest.fixture
def without_nameless_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS, or where there is no /proc."""
    monkeypatch.setattr("agentfs_files.backends.host_files._OWN_DESCRIPTORS", "/no/such/directory")


@pytest.mark.usefixtures("without_nameless_files")
def test_without_nameless_files_nothing_is_left_either(fs: HostFilesystem, tmp_path: Path) -> None:
    fs.write("dir/file", "old")
    (tmp_path / "dir/file").chmod(0o600)
    with pytest.raises(ZeroDivisionError), fs.open_write("dir/file") as writer:
        writer.write(b"secret")
        (temporary,) = (path for path in (tmp_path / "dir").iterdir() if path.name != "file")
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        raise ZeroDivisionError
    with pytest.raises(FileExistsError), fs.open_write("dir/new", mode="create") as writer:
        (tmp_path / "dir/new").write_text("theirs")
    fs.write("dir/file", "new")
    fs.write("dir/created", "new", mode="create")
    assert sorted(os.listdir(tmp_path / "dir")) == ["created", "file", "new"]
    assert (fs.read("dir/file").content, fs.read("dir/new").content) == ("new", "theirs")


def test_file_system_without_hard_links(fs: HostFilesystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(beside: _Beside, name: str) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr("agentfs_files.backends.host_files._OWN_DESCRIPTORS", "/no/such/directory")
    monkeypatch.setattr(_Beside, "_link", refuse)
    for mode in ("create", "overwrite", "append"):
        fs.write(mode, "new", mode=mode)  # type: ignore[arg-type]
    with pytest.raises(FileExistsError), fs.open_write("late", mode="create"):
        (tmp_path / "late").write_text("theirs")
    assert sorted(os.listdir(tmp_path)) == ["append", "create", "late", "overwrite"]


def test_full_disk_leaves_the_old_content(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        fs = HostFilesystem(disk)
        fs.write("plain", "old")
        fs.write("linked", "old")
        os.link(disk / "linked", disk / "other")
        (disk / "link").symlink_to("plain")
        attempts: list[tuple[str, str]] = [
            (path, mode) for path in ("plain", "linked", "link") for mode in ("overwrite", "append")
        ]
        for path, mode in [*attempts, ("new", "create"), ("dir/new", "append")]:
            with pytest.raises(OSError, match=path) as caught:
                fs.write_bytes(path, bytes(3 * MIB), mode=mode)  # type: ignore[arg-type]
            assert caught.value.errno == errno.ENOSPC
        assert {entry.name: entry.size_bytes for entry in fs.list() if entry.is_file} == dict.fromkeys(
            ("plain", "linked", "other", "link"), 3
        )
        assert fs.list("dir") == []
        assert fs.read("other").content == fs.read("plain").content == "old"
        fs.write("plain", "fits")
        fs.close()


@pytest.mark.parametrize("count", range(7))
def test_without_descriptors_nothing_is_left_half_done(fs: HostFilesystem, tmp_path: Path, count: int) -> None:
    fs.write("linked", "old", mode="append")
    os.link(tmp_path / "linked", tmp_path / "other")
    fs.write("tree/a/b/c", "x")
    fs.write("plain", "old")
    fs.write("plain", "", mode="append")  # what that imports is there
    fs.write("linked", "old")
    before = open_descriptors()
    attempts: list[Callable[[], object]] = [
        lambda: fs.write("plain", "new"),
        lambda: fs.write("new/file", "new"),
        lambda: fs.write("linked", "new"),
        lambda: fs.write("plain", "+", mode="append"),
        lambda: fs.read("plain"),
        lambda: fs.list("tree"),
        lambda: fs.glob("**"),
        lambda: fs.grep("x"),
        lambda: fs.delete("tree", recursive=True),
    ]
    failed = []
    with free_descriptors(count):
        for number, attempt in enumerate(attempts):
            try:
                attempt()
            except OSError as exc:
                assert exc.errno == errno.EMFILE
                failed.append(number)
    assert open_descriptors() == before
    assert failed == list(range(len(attempts))) if count == 0 else (count < 6 or failed == [])
    assert fs.read("plain").content == ("old" if 0 in failed else "new") + ("" if 3 in failed else "+")
    assert fs.read("other").content == ("old" if 2 in failed else "new")
    assert (fs.exists("new/file"), fs.exists("tree")) == (1 not in failed, 8 in failed)
    assert set(os.listdir(tmp_path)) <= {"linked", "other", "tree", "plain", "new"}


def test_ordinary_user_and_what_belongs_to_others(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        disk.chmod(0o1777)  # sticky: nobody replaces the file of another
        (disk / "theirs").write_text("old")
        (disk / "theirs").chmod(0o666)
        (disk / "secret").write_text("needle")
        (disk / "secret").chmod(0o600)
        (disk / "closed").mkdir(mode=0o700)
        (disk / "names").mkdir()
        (disk / "names" / "inner").write_text("needle")
        (disk / "names").chmod(0o744)
        (disk / "fixed").mkdir(mode=0o755)
        (disk / "fixed" / "file").write_text("old")
        (disk / "fixed" / "file").chmod(0o666)
        fs = HostFilesystem(disk)
        with as_nobody():
            fs.write("theirs", "new")
            fs.write("fixed/file", "new, and longer")
            fs.write("mine", "needle")
            for attempt in (fs.read, fs.delete, lambda path: fs.write(path, "")):
                with pytest.raises(PermissionError) as caught:
                    attempt("secret")
                assert not isinstance(caught.value, PathEscapeError)
            for attempt in (fs.list, lambda path: fs.write(f"{path}/new", ""), lambda path: fs.delete(path, recursive=True)):
                with pytest.raises(PermissionError):
                    attempt("closed")
            with pytest.raises(PermissionError):
                fs.write("fixed/new", "")
            assert [(entry.name, entry.size_bytes) for entry in fs.list("names")] == [("inner", None)]
            assert [match.path for match in fs.grep("needle")] == ["mine"]
            assert [match.path for match in fs.glob("*")] == ["mine", "secret", "theirs"]
        for path, content in (("theirs", "new"), ("fixed/file", "new, and longer")):
            found = (disk / path).stat()
            assert (found.st_uid, stat.S_IMODE(found.st_mode), (disk / path).read_text()) == (0, 0o666, content)
        assert (disk / "mine").stat().st_uid == NOBODY
        fs.close()


def test_group_that_the_user_is_not_in_is_kept(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        disk.chmod(0o777)
        (disk / "file").write_text("old")
        os.chown(disk / "file", NOBODY, 12)
        fs = HostFilesystem(disk)
        with as_nobody():
            fs.write("file", "new")
        assert ((disk / "file").stat().st_gid, (disk / "file").read_text()) == (12, "new")
        fs.close()


def test_file_that_grows_and_shrinks_while_it_is_read(fs: HostFilesystem, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 100_000)
    with fs.open_read("file") as reader:
        reader.read(10)
        with path.open("ab") as writer:
            writer.write(b"b" * 10)
        assert (reader.size, len(reader.read()), reader.position) == (100_000, 100_000, 100_010)
    with fs.open_read("file") as reader:
        os.truncate(path, 70_000)
        assert [len(chunk) for chunk in reader] == [65_536, 70_000 - 65_536]


def test_reader_keeps_what_it_opened(fs: HostFilesystem) -> None:
    fs.write("file", "old")
    with fs.open_read("file") as reader:
        fs.write("file", "new!")
        assert reader.read() == b"old"
    with fs.open_read("file") as reader:
        fs.delete("file")
        assert reader.read() == b"new!"
