"""Tests of read_bytes() and write_bytes(): content of any kind, in parts."""

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suite_settings import Settings

_EVERY_BYTE = bytes(range(256))


class BinaryTests(Settings):
    def test_it_has_the_whole_protocol(self, fs: Filesystem) -> None:
        assert isinstance(fs, Filesystem)

    def test_every_byte_comes_back(self, fs: Filesystem) -> None:
        written = fs.write_bytes("dir/data.bin", _EVERY_BYTE * 3)
        content = fs.read_bytes("dir/data.bin")
        assert (written.path, written.bytes_written, written.mode) == ("dir/data.bin", 768, "overwrite")
        assert (content.content, content.path, content.size_bytes) == (_EVERY_BYTE * 3, "dir/data.bin", 768)
        assert (content.offset, content.limit, content.truncated) == (0, -1, False)

    def test_window_of_bytes(self, fs: Filesystem) -> None:
        fs.write_bytes("data.bin", _EVERY_BYTE)
        middle, rest = fs.read_bytes("data.bin", offset=10, limit=5), fs.read_bytes("data.bin", offset=250, limit=99)
        assert (middle.content, middle.offset, middle.limit, middle.truncated) == (_EVERY_BYTE[10:15], 10, 5, True)
        assert (rest.content, rest.limit, rest.truncated, rest.size_bytes) == (_EVERY_BYTE[250:], 99, False, 256)

    def test_window_of_nothing(self, fs: Filesystem) -> None:
        fs.write_bytes("data.bin", b"abc")
        none, behind = fs.read_bytes("data.bin", limit=0), fs.read_bytes("data.bin", offset=7)
        assert (none.content, none.truncated) == (b"", True)
        assert (behind.content, behind.truncated, behind.size_bytes) == (b"", False, 3)

    def test_windows_of_bytes_that_cannot_be_are_refused(self, fs: Filesystem) -> None:
        fs.write_bytes("data.bin", b"abc")
        with pytest.raises(ValueError):
            fs.read_bytes("data.bin", offset=-1)
        with pytest.raises(ValueError):
            fs.read_bytes("data.bin", limit=-1)

    def test_bytes_are_appended_and_created(self, fs: Filesystem) -> None:
        fs.write_bytes("data.bin", b"\x00", mode="create")
        assert fs.write_bytes("data.bin", b"\xff\xfe", mode="append").bytes_written == 2
        assert fs.read_bytes("data.bin").content == b"\x00\xff\xfe"
        with pytest.raises(FileExistsError):
            fs.write_bytes("data.bin", b"", mode="create")

    def test_bytes_of_what_is_no_file(self, fs: Filesystem) -> None:
        fs.mkdir("dir")
        with pytest.raises(FileNotFoundError):
            fs.read_bytes("missing.bin")
        with pytest.raises(IsADirectoryError):
            fs.read_bytes("dir")

    def test_binary_content_is_no_text(self, fs: Filesystem) -> None:
        fs.write_bytes("data.bin", b"\x89PNG\r\n\x1a\n\xff")
        with pytest.raises(UnicodeDecodeError):
            fs.read("data.bin")

    def test_parents_of_binary_files(self, fs: Filesystem) -> None:
        with pytest.raises(FileNotFoundError):
            fs.write_bytes("missing/data.bin", b"", create_parents=False)
        assert not fs.exists("missing")

    def test_grep_passes_over_what_is_no_text(self, fs: Filesystem) -> None:
        fs.write_bytes("binary", b"needle \xff\n")
        fs.write("text", "needle\n")
        assert [match.path for match in fs.grep("needle")] == ["text"]
