"""Tests of limits: depth and length of paths, size of reads and writes."""

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suite_settings import Settings


class LimitTests(Settings):
    def test_depth_of_paths(self, fs: Filesystem) -> None:
        deepest = "/".join(["d"] * self.limits.max_path_depth)
        fs.write(deepest, "x")
        assert fs.read(deepest).content == "x"
        fs.delete("d", recursive=True)
        for create in (lambda path: fs.write(path, ""), fs.mkdir):
            with pytest.raises(ValueError):
                create(f"{deepest}/d")
        assert not fs.exists("d")

    def test_length_of_names(self, fs: Filesystem) -> None:
        longest = "n" * self.limits.max_segment_length
        fs.write(f"{longest}/{longest}", "x")
        assert fs.read(f"{longest}/{longest}").content == "x"
        for path in (f"{longest}n", f"{longest}n/file", f"dir/{longest}n"):
            with pytest.raises(ValueError):
                fs.write(path, "")
            with pytest.raises(ValueError):
                fs.mkdir(path)
        assert [entry.name for entry in fs.list()] == [longest]

    def test_length_of_names_in_bytes(self, fs: Filesystem) -> None:
        longest = "😀" * 63 + "abc"
        fs.write(longest, "x")
        assert [entry.name for entry in fs.list()] == [longest]
        with pytest.raises(ValueError):
            fs.write("😀" * 64, "x")

    def test_names_beyond_the_limit_can_be_asked_for(self, fs: Filesystem) -> None:
        name = "n" * 300
        assert not fs.exists(name)
        with pytest.raises(FileNotFoundError):
            fs.read(name)

    def test_size_of_one_write(self, fs: Filesystem) -> None:
        fs.write("file", "old")
        with pytest.raises(ValueError):
            fs.write_bytes("file", bytes(self.limits.max_write_bytes + 1))
        with pytest.raises(ValueError):
            fs.write("file", "ü" * (self.limits.max_write_bytes // 2 + 1))
        assert fs.read("file").content == "old"

    def test_size_of_one_read(self, fs: Filesystem) -> None:
        if not self.large_file_bytes:
            pytest.skip("large_file_bytes is 0")
        most = self.limits.max_read_bytes
        with fs.open_write("large") as writer:
            writer.write(b"line\n")
            writer.write_all(bytes(min(1 << 20, most)) for _ in range(-(-most // (1 << 20))))
        for read in (fs.read_bytes, lambda path: fs.read(path, limit=-1)):
            with pytest.raises(ValueError):
                read("large")
        assert fs.read("large", limit=1).content == "line\n"
        window = fs.read_bytes("large", limit=5)
        assert (window.content, window.truncated) == (b"line\n", True)
        assert len(fs.read_bytes("large", offset=5, limit=most).content) == most
        assert len(fs.read_bytes("large", offset=most).content) >= 5
