"""Tests of how paths are interpreted, and that none leads out of the root."""

from collections.abc import Callable

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suite_settings import Settings, contents

_HARD_NAMES = (
    " leading", "trailing ", "-dash", "--", "~", "$HOME", "$(id)", "`id`", "a;b", "a&b", "a|b", "a>b", "a'b", 'a"b', "a\\b",
    "a\nb", "a\tb", "*", "?", "[a]", "{a,b}", "!", "#x",
    "...", ".hidden", "%s", "ü", "u\u0308", "漢字", "😀",
    "Name", "name", "CON",
)  # fmt: skip


class PathTests(Settings):
    def operations(self, fs: Filesystem) -> list[Callable[[str], object]]:
        """Return every operation that takes a path, except exists()."""
        return [
            fs.read,
            fs.stat,
            fs.list,
            lambda path: fs.glob("*", path=path),
            lambda path: fs.grep("x", path=path),
            lambda path: fs.write(path, "x"),
            lambda path: fs.write(path, "x", mode="append"),
            lambda path: fs.delete(path, recursive=True),
            fs.mkdir,
        ]

    def test_one_file_has_many_spellings(self, fs: Filesystem) -> None:
        fs.write("./a//b/../file.txt", "x")
        spellings = (
            "a/file.txt",
            "./a/file.txt",
            "a//file.txt",
            "a/./file.txt",
            "a/file.txt/",
            "a/none/../file.txt",
            "a/../a/file.txt",
        )
        assert [(fs.read(path).path, fs.read(path).content) for path in spellings] == [("a/file.txt", "x")] * len(spellings)
        assert list(contents(fs)) == ["a/file.txt"]

    def test_absolute_paths_count_from_the_root(self, fs: Filesystem) -> None:
        top = fs.root.rstrip("/")
        assert fs.write(f"{top}/a/file.txt", "x").path == "a/file.txt"
        assert fs.read(f"{top}//a/./file.txt").path == "a/file.txt"
        assert fs.stat(fs.root).is_directory

    def test_paths_that_lead_out_are_refused_by_everything(self, fs: Filesystem) -> None:
        fs.write("a/file.txt", "x")
        paths = ["../escape", "a/../../escape"]
        if fs.root.strip("/"):
            paths += ["/etc/hostname", fs.root.rstrip("/") + "-beside/file", f"{fs.root}/../escape"]
        for path in paths:
            for operation in self.operations(fs):
                with pytest.raises(PermissionError):
                    operation(path)
            assert fs.exists(path) is False
        assert contents(fs) == {"a/file.txt": "x"}

    def test_zero_bytes_are_refused(self, fs: Filesystem) -> None:
        for operation in self.operations(fs):
            with pytest.raises(ValueError):
                operation("a\0b")
        assert fs.exists("a\0b") is False

    def test_half_of_a_pair_is_no_name(self, fs: Filesystem) -> None:
        with pytest.raises(ValueError):
            fs.write("half \ud800", "")
        assert fs.exists("half \ud800") is False

    def test_any_other_name_can_be_used(self, fs: Filesystem) -> None:
        for name in _HARD_NAMES:
            fs.write(f"dir/{name}", name)
        assert [entry.name for entry in fs.list("dir")] == sorted(_HARD_NAMES)
        assert contents(fs) == {f"dir/{name}": name for name in sorted(_HARD_NAMES)}
        for name in _HARD_NAMES[::2]:
            fs.delete(f"dir/{name}")
        assert [entry.name for entry in fs.list("dir")] == sorted(_HARD_NAMES[1::2])

    def test_directories_may_have_any_name_too(self, fs: Filesystem) -> None:
        for name in ("$(id) x", "[a]*", "-rf", "a\nb"):
            fs.write(f"{name}/{name}", "x")
            assert [entry.path for entry in fs.list(name)] == [f"{name}/{name}"]
            assert [match.path for match in fs.glob("*", path=name)] == [f"{name}/{name}"]
            assert [match.path for match in fs.grep("x", path=name)] == [f"{name}/{name}"]


class StreamPathTests(PathTests):
    """The tests of paths for operations on bytes and streams."""

    def operations(self, fs: Filesystem) -> list[Callable[[str], object]]:
        return [
            *super().operations(fs),
            fs.read_bytes,
            fs.open_read,
            fs.open_text,
            lambda path: fs.write_bytes(path, b"x", mode="append"),
            lambda path: fs.open_write(path, mode="create"),
        ]


class MountPointTests(Settings):
    @pytest.fixture
    def mounted_fs(self) -> Filesystem:
        """Return an empty file system of the same kind with ``mount_point="/workspace"``."""
        pytest.skip("no fixture `mounted_fs`: an empty file system whose mount_point is /workspace")

    def test_paths_beneath_the_mount_point(self, mounted_fs: Filesystem) -> None:
        fs = mounted_fs
        assert fs.mount_point == "/workspace"
        assert fs.write("/workspace/src/file.txt", "x").path == "src/file.txt"
        assert fs.read("src/file.txt").content == fs.read("/workspace//src/./file.txt").content == "x"
        assert [entry.path for entry in fs.list("/workspace")] == ["src"]
        assert fs.exists("/workspace")
        fs.delete("/workspace/src", recursive=True)
        assert len(fs.list()) == 0

    def test_patterns_beneath_the_mount_point(self, mounted_fs: Filesystem) -> None:
        mounted_fs.write("src/file.txt", "x")
        assert [match.path for match in mounted_fs.glob("/workspace/**/*.txt")] == ["src/file.txt"]
        assert [match.path for match in mounted_fs.grep("x", path="/workspace/src")] == ["src/file.txt"]

    def test_relative_paths_do_not_know_the_mount_point(self, mounted_fs: Filesystem) -> None:
        mounted_fs.write("workspace/file.txt", "x")
        assert mounted_fs.exists("/workspace/workspace/file.txt")
        assert not mounted_fs.exists("/workspace/file.txt")

    def test_mount_point_is_no_way_out(self, mounted_fs: Filesystem) -> None:
        assert not mounted_fs.exists("/workspace/../etc/passwd")
        for path in ("/workspace/../../x", "/workspace/a/../../../x"):
            with pytest.raises(PermissionError):
                mounted_fs.write(path, "")
