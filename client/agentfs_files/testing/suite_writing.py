"""Tests of write(): modes, parents, refusals that change nothing."""

from typing import Any, cast

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suite_settings import Settings


class WritingTests(Settings):
    def test_write_replaces_and_says_how_much(self, fs: Filesystem) -> None:
        fs.write("dir/file.txt", "a longer text")
        written = fs.write("dir/./file.txt", "zwölf")
        assert (written.path, written.bytes_written, written.mode) == ("dir/file.txt", 6, "overwrite")
        assert fs.read("dir/file.txt").content == "zwölf"

    def test_create_makes_a_new_file(self, fs: Filesystem) -> None:
        assert fs.write("new.txt", "new", mode="create").mode == "create"
        assert fs.read("new.txt").content == "new"

    def test_create_refuses_what_exists(self, fs: Filesystem) -> None:
        fs.write("file.txt", "old")
        with pytest.raises(FileExistsError):
            fs.write("file.txt", "new", mode="create")
        assert fs.read("file.txt").content == "old"

    def test_append_adds_and_counts_what_it_added(self, fs: Filesystem) -> None:
        fs.write("log.txt", "one\n")
        written = fs.write("log.txt", "zwei\n", mode="append")
        assert (written.bytes_written, written.mode) == (5, "append")
        assert fs.read("log.txt").content == "one\nzwei\n"

    def test_append_creates_what_is_missing(self, fs: Filesystem) -> None:
        fs.write("logs/new.txt", "one\n", mode="append")
        assert fs.read("logs/new.txt").content == "one\n"

    def test_unknown_mode_is_refused(self, fs: Filesystem) -> None:
        with pytest.raises(ValueError):
            fs.write("file.txt", "", mode=cast(Any, "truncate"))
        assert not fs.exists("file.txt")

    def test_parents_are_made(self, fs: Filesystem) -> None:
        fs.write("a/b/c.txt", "c")
        assert fs.stat("a/b").is_directory
        assert fs.read("a/b/c.txt").content == "c"

    def test_parents_are_not_made_unasked(self, fs: Filesystem) -> None:
        with pytest.raises(FileNotFoundError):
            fs.write("missing/file.txt", "", create_parents=False)
        assert not fs.exists("missing")
        fs.mkdir("there")
        fs.write("there/file.txt", "x", create_parents=False)
        assert fs.read("there/file.txt").content == "x"

    def test_file_is_no_parent(self, fs: Filesystem) -> None:
        fs.write("file", "old")
        for path in ("file/inner", "file/deeper/inner"):
            with pytest.raises(NotADirectoryError):
                fs.write(path, "")
        assert fs.read("file").content == "old"

    def test_directory_is_not_overwritten(self, fs: Filesystem) -> None:
        fs.write("dir/inner", "x")
        for mode in ("overwrite", "append"):
            with pytest.raises(IsADirectoryError):
                fs.write("dir", "", mode=cast(Any, mode))
        with pytest.raises((IsADirectoryError, FileExistsError)):
            fs.write("dir", "", mode="create")
        assert fs.read("dir/inner").content == "x"

    def test_root_is_not_overwritten(self, fs: Filesystem) -> None:
        for path in ("", ".", "a/.."):
            with pytest.raises((PermissionError, IsADirectoryError)):
                fs.write(path, "")

    def test_text_that_is_no_unicode_leaves_the_old(self, fs: Filesystem) -> None:
        fs.write("file.txt", "old")
        with pytest.raises(ValueError):
            fs.write("file.txt", "half a pair: \ud800")
        assert fs.read("file.txt").content == "old"

    def test_empty_text_empties(self, fs: Filesystem) -> None:
        fs.write("file.txt", "old")
        assert fs.write("file.txt", "").bytes_written == 0
        assert (fs.read("file.txt").content, fs.stat("file.txt").size_bytes) == ("", 0)
