"""Tests of exists(), stat() and list()."""

from datetime import UTC, datetime, timedelta

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suite_settings import Settings, fill

_CLOCKS_DIFFER = timedelta(minutes=10)


class LookingTests(Settings):
    def test_it_has_a_root_and_can_be_written(self, fs: Filesystem) -> None:
        assert fs.read_only is False
        assert fs.root.startswith("/")

    def test_what_exists(self, fs: Filesystem) -> None:
        fs.write("dir/file", "")
        found = {
            path: fs.exists(path) for path in ("dir", "dir/file", "", ".", "dir/other", "other/file", "dir/file/x", "../dir")
        }
        assert [path for path, there in found.items() if there] == ["dir", "dir/file", "", "."]

    def test_stat_of_a_file(self, fs: Filesystem) -> None:
        fs.write("dir/file.txt", "zwölf")
        stat = fs.stat("dir//file.txt")
        assert (stat.path, stat.is_file, stat.is_directory, stat.size_bytes) == ("dir/file.txt", True, False, 6)
        for time in (stat.created_at, stat.modified_at):
            assert time is None or (time.utcoffset() == timedelta(0) and abs(datetime.now(UTC) - time) < _CLOCKS_DIFFER)

    def test_stat_of_a_directory(self, fs: Filesystem) -> None:
        fs.write("dir/file.txt", "content")
        for path in ("dir", ".", ""):
            stat = fs.stat(path)
            assert (stat.is_file, stat.is_directory, stat.size_bytes) == (False, True, 0)
        assert fs.stat("dir/").path == "dir"

    def test_stat_of_nothing(self, fs: Filesystem) -> None:
        fs.write("file", "")
        with pytest.raises(FileNotFoundError):
            fs.stat("missing")
        with pytest.raises(FileNotFoundError):
            fs.stat("missing/deeper")
        with pytest.raises(NotADirectoryError):
            fs.stat("file/inner")

    def test_list_is_sorted_and_one_level_deep(self, fs: Filesystem) -> None:
        fill(fs, {"b.txt": "123", "a/inner": "", "c": "", ".hidden": "1"})
        fs.mkdir("empty")
        found = [(entry.name, entry.path, entry.is_file, entry.is_directory, entry.kind) for entry in fs.list()]
        assert found == [
            (".hidden", ".hidden", True, False, "file"),
            ("a", "a", False, True, "directory"),
            ("b.txt", "b.txt", True, False, "file"),
            ("c", "c", True, False, "file"),
            ("empty", "empty", False, True, "directory"),
        ]
        assert {entry.size_bytes for entry in fs.list() if entry.name == "b.txt"} <= {3, None}
        assert {entry.size_bytes for entry in fs.list() if entry.is_directory} == {None}

    def test_list_below_the_root(self, fs: Filesystem) -> None:
        fill(fs, {"src/deep/x": "", "src/y": ""})
        assert [(entry.name, entry.path) for entry in fs.list("./src/")] == [("deep", "src/deep"), ("y", "src/y")]
        assert fs.list("src/deep/..") == fs.list("src")

    def test_root_is_listed_by_any_of_its_names(self, fs: Filesystem) -> None:
        fs.write("file", "")
        assert [entry.path for path in (".", "", fs.root) for entry in fs.list(path)] == ["file", "file", "file"]

    def test_list_of_an_empty_directory(self, fs: Filesystem) -> None:
        assert len(fs.list()) == 0
        fs.mkdir("empty")
        assert len(fs.list("empty")) == 0

    def test_list_of_what_is_no_directory(self, fs: Filesystem) -> None:
        fs.write("file", "")
        with pytest.raises(FileNotFoundError):
            fs.list("missing")
        with pytest.raises(NotADirectoryError):
            fs.list("file")
        with pytest.raises(NotADirectoryError):
            fs.list("file/inner")

    def test_what_is_told_cannot_be_changed(self, fs: Filesystem) -> None:
        fs.write("file", "")
        for record in (fs.stat("file"), fs.list()[0], fs.glob("*")[0]):
            with pytest.raises(AttributeError):
                record.path = "other"  # type: ignore[misc]
