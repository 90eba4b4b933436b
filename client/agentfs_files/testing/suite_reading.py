"""Tests of read(): parts of a file by lines."""

import dataclasses

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suite_settings import Settings


class ReadingTests(Settings):
    def test_read_nonexistent_raises(self, fs: Filesystem) -> None:
        with pytest.raises(FileNotFoundError):
            fs.read("does_not_exist.txt")

    def test_write_and_read_roundtrip(self, fs: Filesystem) -> None:
        fs.write("test.txt", "hello world")
        assert fs.read("test.txt").content == "hello world"

    def test_read_says_what_it_read(self, fs: Filesystem) -> None:
        fs.write("dir/three.txt", "a\nb\nc\n")
        content = fs.read("./dir//three.txt")
        assert (content.path, content.total_lines, content.offset, content.limit, content.truncated) == (
            "dir/three.txt", 3, 0, self.limits.default_read_lines, False,
        )  # fmt: skip
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
            content.content = "other"  # type: ignore[misc]

    def test_read_gives_the_lines_asked_for(self, fs: Filesystem) -> None:
        fs.write("three.txt", "a\nb\nc\n")
        window = fs.read("three.txt", offset=1, limit=1)
        assert (window.content, window.offset, window.limit, window.total_lines, window.truncated) == ("b\n", 1, 1, 3, True)
        assert (fs.read("three.txt", offset=1, limit=2).content, fs.read("three.txt", offset=1, limit=2).truncated) == (
            "b\nc\n",
            False,
        )
        assert fs.read("three.txt", offset=2).content == "c\n"

    def test_read_of_no_line_is_empty(self, fs: Filesystem) -> None:
        fs.write("two.txt", "a\nb\n")
        none, behind = fs.read("two.txt", limit=0), fs.read("two.txt", offset=9)
        assert (none.content, none.truncated, none.total_lines) == ("", True, 2)
        assert (behind.content, behind.truncated, behind.total_lines) == ("", False, 2)

    def test_read_stops_at_the_default_limit_and_says_so(self, fs: Filesystem) -> None:
        most = self.limits.default_read_lines
        text = "".join(f"{number}\n" for number in range(most + 1))
        fs.write("long.txt", text)
        cut, whole = fs.read("long.txt"), fs.read("long.txt", limit=-1)
        assert (cut.content, cut.truncated, cut.total_lines) == (text.removesuffix(f"{most}\n"), True, most + 1)
        assert (whole.content, whole.truncated, whole.limit) == (text, False, -1)

    def test_last_line_counts_without_newline(self, fs: Filesystem) -> None:
        fs.write("open.txt", "a\nb")
        content = fs.read("open.txt", offset=1)
        assert (content.content, content.total_lines) == ("b", 2)

    def test_empty_file_has_no_lines(self, fs: Filesystem) -> None:
        fs.write("empty.txt", "")
        content = fs.read("empty.txt")
        assert (content.content, content.total_lines, content.truncated) == ("", 0, False)

    def test_lines_end_with_newline_alone(self, fs: Filesystem) -> None:
        text = "a\rb\x0bc\x0cd\x1ce\x85f\u2028g\r\nlast"
        fs.write("odd.txt", text)
        assert (fs.read("odd.txt").content, fs.read("odd.txt").total_lines) == (text, 2)

    def test_text_comes_back_as_it_was(self, fs: Filesystem) -> None:
        text = "\ufeffümläut 漢字 😀 e\u0301 \0\n"
        fs.write("text.txt", text)
        assert fs.read("text.txt").content == text

    def test_windows_that_cannot_be_are_refused(self, fs: Filesystem) -> None:
        fs.write("file.txt", "a\n")
        with pytest.raises(ValueError):
            fs.read("file.txt", offset=-1)
        with pytest.raises(ValueError):
            fs.read("file.txt", limit=-2)

    def test_encodings_other_than_utf8_are_refused(self, fs: Filesystem) -> None:
        fs.write("file.txt", "ü")
        assert fs.read("file.txt", encoding="UTF8").content == "ü"
        for encoding in ("latin-1", "utf-16", "no-such-encoding"):
            with pytest.raises(ValueError):
                fs.read("file.txt", encoding=encoding)

    def test_directory_cannot_be_read(self, fs: Filesystem) -> None:
        fs.mkdir("dir")
        for path in ("dir", ".", ""):
            with pytest.raises(IsADirectoryError):
                fs.read(path)

    def test_nothing_is_beneath_a_file(self, fs: Filesystem) -> None:
        fs.write("file", "")
        with pytest.raises(NotADirectoryError):
            fs.read("file/inner")
