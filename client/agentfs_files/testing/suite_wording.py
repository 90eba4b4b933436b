"""Tests of error messages: each names its path and says what to do instead."""

from collections.abc import Callable

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suite_settings import Settings, fill


class WordingTests(Settings):
    def test_errors_name_the_path(self, fs: Filesystem) -> None:
        fill(fs, {"dir/file.txt": "x"})
        cases: dict[str, Callable[[str], object]] = {
            "dir/none.txt": fs.read,
            "dir/file.txt/x": fs.stat,
            "dir": fs.open_read,
            "dir/gone": fs.delete,
            "dir/none": fs.list,
            "dir/file.txt": lambda path: fs.write(path, "", mode="create"),
            "../out": fs.read,
        }
        said = {}
        for path, operation in cases.items():
            with pytest.raises(OSError) as caught:
                operation(path)
            said[path] = str(caught.value)
        assert [path for path, words in said.items() if path not in words] == []

    def test_binary_content_names_read_bytes(self, fs: Filesystem) -> None:
        fs.write_bytes("data.bin", b"ok\n\xff")
        with pytest.raises(UnicodeDecodeError, match="read_bytes") as caught:
            fs.read("data.bin")
        assert "data.bin" in str(caught.value)
        assert "byte 3" in str(caught.value)

    def test_too_much_at_once_names_the_stream(self, fs: Filesystem) -> None:
        with pytest.raises(ValueError, match="open_write"):
            fs.write_bytes("file", bytes(self.limits.max_write_bytes + 1))

    def test_full_directory_names_recursive(self, fs: Filesystem) -> None:
        fs.write("dir/file", "")
        with pytest.raises(IsADirectoryError, match="recursive"):
            fs.delete("dir")

    def test_limits_name_themselves(self, fs: Filesystem) -> None:
        with pytest.raises(ValueError, match=str(self.limits.max_segment_length)):
            fs.write("n" * (self.limits.max_segment_length + 1), "")
        with pytest.raises(ValueError, match=str(self.limits.max_path_depth)):
            fs.mkdir("/".join("d" * (self.limits.max_path_depth + 1)))

    def test_wrong_arguments_name_the_right_ones(self, fs: Filesystem) -> None:
        fs.write("file", "")
        with pytest.raises(ValueError, match=r"(?i)utf-8"):
            fs.read("file", encoding="latin-1")
        with pytest.raises(ValueError, match="overwrite"):
            fs.write("file", "", mode="replace")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"\["):
            fs.grep("[")
        with pytest.raises(ValueError, match="offset"):
            fs.read("file", offset=-1)
        with pytest.raises(ValueError, match="limit"):
            fs.read("file", limit=-5)

    def test_closed_streams_say_so(self, fs: Filesystem) -> None:
        fs.write("file", "x")
        reader = fs.open_read("file")
        reader.close()
        with pytest.raises(ValueError, match="closed file"):
            reader.read()
