"""Tests of delete() and mkdir()."""

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suite_settings import Settings, contents, fill


class ChangingTests(Settings):
    def test_delete_a_file(self, fs: Filesystem) -> None:
        fill(fs, {"dir/gone": "", "dir/kept": ""})
        fs.delete("dir/gone")
        assert [entry.name for entry in fs.list("dir")] == ["kept"]

    def test_delete_nothing(self, fs: Filesystem) -> None:
        fs.write("file", "")
        for recursive in (False, True):
            with pytest.raises(FileNotFoundError):
                fs.delete("missing", recursive=recursive)
            with pytest.raises(NotADirectoryError):
                fs.delete("file/inner", recursive=recursive)
        assert fs.exists("file")

    def test_delete_an_empty_directory(self, fs: Filesystem) -> None:
        fs.mkdir("a/empty")
        fs.delete("a/empty")
        assert fs.exists("a")
        assert not fs.exists("a/empty")

    def test_directory_that_holds_something_is_deleted_only_recursively(self, fs: Filesystem) -> None:
        fill(fs, {"dir/deep/file": "x", "dir/.hidden": "", "dirt": "stays"})
        with pytest.raises(IsADirectoryError):
            fs.delete("dir")
        assert fs.read("dir/deep/file").content == "x"
        fs.delete("dir", recursive=True)
        assert contents(fs) == {"dirt": "stays"}
        assert not fs.exists("dir")

    def test_file_is_deleted_recursively_too(self, fs: Filesystem) -> None:
        fs.write("file", "")
        fs.delete("file", recursive=True)
        assert not fs.exists("file")

    def test_root_is_emptied_but_never_deleted(self, fs: Filesystem) -> None:
        fill(fs, {"file": "", "dir/.hidden": ""})
        for path in (".", "", "dir/.."):
            with pytest.raises(PermissionError):
                fs.delete(path)
        assert fs.exists("file")
        fs.delete(".", recursive=True)
        assert len(fs.list()) == 0
        fs.write("again", "x")
        assert fs.read("again").content == "x"

    def test_name_can_be_used_for_another_kind(self, fs: Filesystem) -> None:
        fs.write("name", "file")
        fs.delete("name")
        fs.write("name/inner", "x")
        fs.delete("name", recursive=True)
        fs.write("name", "file")
        assert fs.read("name").content == "file"

    def test_mkdir_makes_parents(self, fs: Filesystem) -> None:
        fs.mkdir("a/b/c")
        assert [fs.stat(path).is_directory for path in ("a", "a/b", "a/b/c")] == [True, True, True]

    def test_mkdir_makes_no_parents_unasked(self, fs: Filesystem) -> None:
        with pytest.raises(FileNotFoundError):
            fs.mkdir("a/b", parents=False)
        assert not fs.exists("a")
        fs.mkdir("a", parents=False)
        fs.mkdir("a/b", parents=False)
        assert fs.stat("a/b").is_directory

    def test_mkdir_of_what_exists(self, fs: Filesystem) -> None:
        fs.write("dir/file", "x")
        fs.mkdir("dir")
        fs.mkdir(".")
        for path in ("dir", "."):
            with pytest.raises(FileExistsError):
                fs.mkdir(path, exist_ok=False)
        assert fs.read("dir/file").content == "x"

    def test_mkdir_where_a_file_is(self, fs: Filesystem) -> None:
        fs.write("file", "x")
        with pytest.raises(FileExistsError):
            fs.mkdir("file")
        for path in ("file/dir", "file/a/b"):
            with pytest.raises(NotADirectoryError):
                fs.mkdir(path)
        assert fs.read("file").content == "x"
