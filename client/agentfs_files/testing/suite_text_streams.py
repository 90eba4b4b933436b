"""Tests of open_text(), and of its counterpart for writing if there is one: lines of UTF-8."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem, TextReader, TextWriter
from agentfs_files.testing.suite_settings import Settings

_CHUNK = 65_536


class TextReaderTests(Settings):
    def test_lines_come_one_by_one(self, fs: Filesystem) -> None:
        fs.write("dir/file.txt", "one\n\nthrée\nlast")
        with fs.open_text("dir/file.txt") as reader:
            assert isinstance(reader, TextReader)
            assert (reader.path, reader.encoding, reader.line_number, reader.closed) == ("dir/file.txt", "utf-8", 0, False)
            assert (reader.readline(), reader.line_number) == ("one\n", 1)
            assert (reader.readline(), reader.readline(), reader.readline(), reader.line_number) == ("\n", "thrée\n", "last", 4)
            assert (reader.readline(), reader.readline(), reader.line_number) == ("", "", 4)
        assert reader.closed

    def test_iteration_keeps_newlines_and_strip_takes_them(self, fs: Filesystem) -> None:
        fs.write("file.txt", "one  \n\n\ttwo\r\nlast")
        with fs.open_text("file.txt") as reader:
            assert list(reader) == ["one  \n", "\n", "\ttwo\r\n", "last"]
        with fs.open_text("file.txt") as reader:
            assert list(reader.lines()) == ["one  \n", "\n", "\ttwo\r\n", "last"]
        with fs.open_text("file.txt") as reader:
            assert [(line, reader.line_number) for line in reader.lines(strip=True)] == [
                ("one", 1),
                ("", 2),
                ("\ttwo", 3),
                ("last", 4),
            ]

    def test_read_counts_characters(self, fs: Filesystem) -> None:
        fs.write("file.txt", "äöü\nß😀x\ny")
        with fs.open_text("file.txt") as reader:
            assert (reader.read(2), reader.read(0), reader.read(3), reader.line_number) == ("äö", "", "ü\nß", 1)
            assert (reader.readline(), reader.line_number) == ("😀x\n", 2)
            assert (reader.read(), reader.read(), reader.read(5)) == ("y", "", "")

    def test_lines_end_with_newline_alone_in_streams(self, fs: Filesystem) -> None:
        fs.write("file.txt", "a\rb\x0b\x0c\x1c\x85\u2028c\r\nd")
        with fs.open_text("file.txt") as reader:
            assert list(reader) == ["a\rb\x0b\x0c\x1c\x85\u2028c\r\n", "d"]

    def test_characters_across_chunks_are_whole(self, fs: Filesystem) -> None:
        for shift in range(4):
            text = "x" * shift + "😀" * (_CHUNK // 4 + 10)
            fs.write("file.txt", text)
            with fs.open_text("file.txt") as reader:
                assert reader.readline() == text

    def test_long_and_many_lines(self, fs: Filesystem) -> None:
        lines = ["y" * (2 * _CHUNK) + "\n", *(f"{number}\n" for number in range(20_000)), "end"]
        fs.write("file.txt", "".join(lines))
        with fs.open_text("file.txt") as reader:
            assert list(reader) == lines
            assert reader.line_number == len(lines)

    def test_what_is_no_text_fails_where_it_is_reached(self, fs: Filesystem) -> None:
        fs.write_bytes("file.txt", b"good\nbad \xff line\n")
        with fs.open_text("file.txt") as reader:
            assert reader.readline() == "good\n"
            with pytest.raises(UnicodeDecodeError, match="9"):
                reader.readline()
        with fs.open_text("file.txt") as reader, pytest.raises(UnicodeDecodeError):
            reader.read()

    def test_place_of_what_is_no_text_counts_from_the_start_of_the_file(self, fs: Filesystem) -> None:
        fs.write_bytes("file.txt", b"line\n" * 30_000 + b"\xc3(")
        with fs.open_text("file.txt") as reader, pytest.raises(UnicodeDecodeError, match="150000"):
            list(reader)

    def test_character_cut_off_by_the_end(self, fs: Filesystem) -> None:
        fs.write_bytes("file.txt", b"good\n\xf0\x9f\x98")
        with fs.open_text("file.txt") as reader:
            assert reader.readline() == "good\n"
            with pytest.raises(UnicodeDecodeError):
                reader.readline()

    def test_empty_text(self, fs: Filesystem) -> None:
        fs.write("file.txt", "")
        with fs.open_text("file.txt") as reader:
            assert (list(reader), reader.readline(), reader.read(), reader.line_number) == ([], "", "", 0)

    def test_only_utf8_is_opened(self, fs: Filesystem) -> None:
        fs.write("file.txt", "\ufeffü")
        with fs.open_text("file.txt", encoding="UTF-8") as reader:
            assert (reader.encoding, reader.read()) == ("utf-8", "\ufeffü")
        with pytest.raises(ValueError):
            fs.open_text("file.txt", encoding="latin-1")

    def test_closed_text_raises(self, fs: Filesystem) -> None:
        fs.write("file.txt", "x\ny\n")
        reader = fs.open_text("file.txt")
        lines = iter(reader)
        next(lines)
        reader.close()
        reader.close()
        attempts: tuple[Callable[[], object], ...] = (
            reader.readline, reader.read, lambda: list(reader.lines()), lambda: next(lines), reader.__enter__,
        )  # fmt: skip
        for attempt in attempts:
            with pytest.raises(ValueError):
                attempt()

    def test_what_cannot_be_opened_as_text(self, fs: Filesystem) -> None:
        fs.mkdir("dir")
        with pytest.raises(FileNotFoundError):
            fs.open_text("missing")
        with pytest.raises(IsADirectoryError):
            fs.open_text("dir")


class TextWriterTests(Settings):
    """Tests for backends with open_write_text(), which is not part of a specification."""

    @pytest.fixture
    def open_write_text(self, fs: Filesystem) -> Callable[..., TextWriter]:
        if not hasattr(fs, "open_write_text"):
            pytest.skip(f"{type(fs).__name__} has no open_write_text()")
        return cast(Callable[..., TextWriter], cast(Any, fs).open_write_text)

    def test_text_writer_counts_characters_and_bytes(self, fs: Filesystem, open_write_text: Callable[..., TextWriter]) -> None:
        with open_write_text("dir/file.txt", mode="create") as writer:
            assert isinstance(writer, TextWriter)
            assert (writer.path, writer.encoding, writer.write("zwölf\n"), writer.bytes_written) == (
                "dir/file.txt",
                "utf-8",
                6,
                7,
            )
            assert (writer.write_all(["a", "😀"]), writer.bytes_written, writer.closed) == (2, 12, False)
        assert writer.closed
        assert fs.read("dir/file.txt").content == "zwölf\na😀"

    def test_failed_text_leaves_the_old(self, fs: Filesystem, open_write_text: Callable[..., TextWriter]) -> None:
        fs.write("file.txt", "old")
        with pytest.raises(UnicodeEncodeError), open_write_text("file.txt") as writer:
            writer.write("new")
            writer.write("\ud800")
        assert fs.read("file.txt").content == "old"

    def test_closed_text_writer_raises(self, fs: Filesystem, open_write_text: Callable[..., TextWriter]) -> None:
        writer = open_write_text("file.txt", mode="append")
        writer.write("x")
        writer.close()
        for attempt in (lambda: writer.write("y"), lambda: writer.write_all(["y"]), writer.__enter__):
            with pytest.raises(ValueError):
                attempt()
        with pytest.raises(ValueError):
            open_write_text("file.txt", encoding="latin-1")
        assert fs.read("file.txt").content == "x"
