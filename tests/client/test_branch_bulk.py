"""Searching and archiving a branch: few requests for many files, with the results that one request for each would have."""

import mmap
import os
import random
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.trees.directory_tree import Directory
from agentfs_files.trees.tree_source import TreeEntry, TreeSource, walk
from agentfsd.state.state_directory import StateDirectory
from tests.mounted import Mounted, needs_root

BIG = 200 << 10


def filled(lower: Path) -> None:
    """Files of every kind, also ones that are read one by one."""
    rng = random.Random(2)
    for directory in ("", "b", "b/c", "z"):
        (lower / directory).mkdir(exist_ok=True)
        for number in range(150 if directory == "b" else 5):
            words = [f"word{rng.randrange(40)}" for _ in range(30)]
            (lower / directory / f"f{number}").write_text("\n".join(words) + "\n")
    (lower / "b" / "big").write_bytes(b"word1 in a large file\n" * (BIG // 22))
    (lower / "b" / "binary").write_bytes(b"word1\0")
    (lower / "b" / "empty").touch()
    (lower / "b" / "f1~").symlink_to("f1")
    (lower / "b" / "out").symlink_to("/etc/passwd")
    (lower / "b" / "nowhere").symlink_to("missing")
    (lower / "z" / "up").symlink_to("../b")
    os.link(lower / "b" / "f2", lower / "z" / "f2 again")
    with (lower / "z" / "sparse").open("wb") as file:
        file.write(b"word1\n")
        file.truncate(1 << 20)
    os.mkfifo(lower / "z" / "pipe")
    (lower / "z" / "f1").chmod(0o751)
    os.utime(lower / "z" / "f1", ns=(1, 2_000_000_003))
    os.setxattr(lower / "z" / "f0", "user.note", b"kept")
    (lower / os.fsdecode(b"odd\xff")).write_text("word1\n")


def changed(root: Path) -> None:
    """What a branch changes: names, contents, modes."""
    (root / "b" / "f3").unlink()
    (root / "b" / "f4").write_text("word1 mine\n")
    (root / "b" / "c").rename(root / "moved")
    (root / "b" / "f5").chmod(0o600)
    (root / "new").mkdir()
    (root / "new" / "x").write_text("word1 new\n")


@pytest.fixture
def branch(tmp_path: Path, make_mount: Callable[..., Mounted]) -> Iterator[tuple[Mounted, BranchFilesystem]]:
    lower = tmp_path / "full"
    lower.mkdir()
    filled(lower)
    mounted = make_mount(lower)
    with BranchFilesystem("one", mount=mounted.path, create=True) as filesystem:
        changed(mounted.subtree("one"))
        yield mounted, filesystem


def requests_of(mounted: Mounted, act: Callable[[], object]) -> int:
    with ControlClient.connect(StateDirectory(str(mounted.state)).socket) as client:
        before = int(client.status().resources["requests"])
        act()
        return int(client.status().resources["requests"]) - before


@pytest.mark.parametrize("over_socket", [False, True], ids=["mount", "socket"])
def test_a_search_finds_what_it_finds_in_a_plain_directory(branch: tuple[Mounted, BranchFilesystem], over_socket: bool) -> None:
    mounted, _ = branch
    where = StateDirectory(str(mounted.state)).socket
    other = BranchFilesystem("one", socket=where if over_socket else None, mount=None if over_socket else mounted.path)
    with other as filesystem, HostFilesystem(mounted.subtree("one"), shown_at=(str(mounted.path),)) as plain:
        assert filesystem.is_mounted != over_socket
        for pattern, glob in (("word1$", None), ("word1", "b/*"), ("mine|new", None), ("word7", "f1*")):
            found = filesystem.grep(pattern, glob=glob, max_matches=10_000)
            assert found == plain.grep(pattern, glob=glob, max_matches=10_000)
            assert found
        assert list(filesystem.glob("**")) == list(plain.glob("**"))
        assert list(filesystem.glob("*")) == list(plain.glob("*"))
        assert [at.path for at in filesystem.glob("z/*")] == ["z/f0", "z/f1", "z/f2", "z/f2 again", "z/f3", "z/f4", "z/sparse"]


def test_a_search_takes_few_requests(branch: tuple[Mounted, BranchFilesystem]) -> None:
    mounted, filesystem = branch
    assert requests_of(mounted, lambda: filesystem.grep("nothing such", glob="f*")) < 40
    assert len(filesystem.glob("**/f*")) > 150


def test_a_search_sees_what_a_mapping_at_the_mount_point_has_just_changed(branch: tuple[Mounted, BranchFilesystem]) -> None:
    mounted, filesystem = branch
    with (mounted.subtree("one") / "b" / "f6").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:9] = b"mapped-in"
        assert [match.path for match in filesystem.grep("mapped-in")] == ["b/f6"]
        mapped[:9] = b"again-in-"
        assert [match.path for match in filesystem.grep("again-in-")] == ["b/f6"]


def test_a_search_sees_what_is_mounted_beneath_the_branch(branch: tuple[Mounted, BranchFilesystem], tmp_path: Path) -> None:
    needs_root()
    mounted, filesystem = branch
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "inside").write_text("word1 mounted\n")
    target = mounted.subtree("one") / "z"
    subprocess.run(["mount", "--bind", tmp_path / "other", target], check=True)
    try:
        assert [match.path for match in filesystem.grep("mounted")] == ["z/inside"]
    finally:
        subprocess.run(["umount", target], check=True)
    assert not filesystem.grep("mounted")


def told(tree: TreeSource) -> list[tuple[TreeEntry, bytes]]:
    return [(entry, b"".join(data for _, data in tree.chunks(entry)) if entry.is_file else b"") for entry in walk(tree)]


def test_an_archive_has_all_that_reading_name_by_name_has(branch: tuple[Mounted, BranchFilesystem], tmp_path: Path) -> None:
    mounted, filesystem = branch
    with filesystem._archive_tree() as fast, Directory(str(mounted.subtree("one"))) as slow:
        groups: dict[int, int] = {}
        expected, found = told(slow), told(fast)
        for (mine, content), (theirs, same) in zip(found, expected, strict=True):
            assert content == same, mine.path
            assert bool(mine.group) == bool(theirs.group)
            assert groups.setdefault(theirs.group, mine.group) == mine.group
            for field in ("path", "mode", "uid", "gid", "size", "mtime_ns", "rdev", "target", "xattrs"):
                assert getattr(mine, field) == getattr(theirs, field), (mine.path, field)
    count = filesystem.export_archive(tmp_path / "x.zip")
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert archive.read("files/b/f4") == b"word1 mine\n"
        assert count == sum(1 for entry, _ in found if entry.is_file or entry.is_link)


def test_contents_that_may_not_be_read_are_not_told(branch: tuple[Mounted, BranchFilesystem]) -> None:
    mounted, _ = branch
    with ControlClient.connect(StateDirectory(str(mounted.state)).socket) as client:

        def contents(*paths: bytes, most_bytes: int = 1000) -> list[bytes | None]:
            request = wire.FileContents(branch="one", raw_paths=list(paths), most_bytes=most_bytes)
            return client.ask(request, wire.ContentsReply).contents

        odd = contents(b"b/f4", b"b/f3", b"b", b"b/out", b"z/pipe", b"b/big", b".agentfs/status", b"b/../b/f4", b"b/empty", b"")
        assert odd == [b"word1 mine\n", None, None, None, None, None, None, b"word1 mine\n", b"", None]
        assert contents(b"b/f4", most_bytes=10) == [None]
        listed = client.ask(wire.FileListings(branch="one", raw_paths=[b"new", b"missing", b"b/f4"]), wire.ListingsReply)
        assert [None if found is None else [name.name for name in found] for found in listed.listings] == [[b"x"], None, None]
