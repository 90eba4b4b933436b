"""Tests that streams hold a chunk or a line in memory, and never the whole file."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suite_settings import Settings

_BLOCK = 65_536
_ALLOWED = 16 * _BLOCK


@contextmanager
def _little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < _ALLOWED


class MemoryTests(Settings):
    @pytest.fixture
    def large(self, fs: Filesystem) -> int:
        """Write the file ``large`` with lines of 1 KiB, and return its size in bytes."""
        if not self.large_file_bytes:
            pytest.skip("large_file_bytes is 0")
        if self.large_file_bytes < 2 * _ALLOWED:
            raise ValueError(f"large_file_bytes must be 0, or at least {2 * _ALLOWED}, to show anything")
        blocks = self.large_file_bytes // _BLOCK
        with fs.open_write("large") as writer:
            writer.write_all((b"x" * 1023 + b"\n") * (_BLOCK // 1024) for _ in range(blocks))
        return blocks * _BLOCK

    def test_reading_in_chunks(self, fs: Filesystem, large: int) -> None:
        with _little_memory(), fs.open_read("large") as reader:
            assert sum(map(len, reader)) == large

    def test_reading_lines(self, fs: Filesystem, large: int) -> None:
        with _little_memory(), fs.open_text("large") as reader:
            assert sum(len(line) for line in reader) == large
            assert reader.line_number == large // 1024

    def test_reading_a_window_of_bytes(self, fs: Filesystem, large: int) -> None:
        with _little_memory():
            assert len(fs.read_bytes("large", offset=large - 10, limit=100).content) == 10

    def test_reading_a_window_of_lines(self, fs: Filesystem, large: int) -> None:
        with _little_memory():
            content = fs.read("large", offset=large // 2048, limit=3)
            assert (len(content.content), content.total_lines) == (3 * 1024, large // 1024)

    def test_writing_and_copying(self, fs: Filesystem, large: int) -> None:
        if self.keeps_content_in_memory:
            pytest.skip("the backend keeps contents in memory")
        with _little_memory(), fs.open_read("large") as source, fs.open_write("copy") as target:
            target.write_all(source)
        assert fs.stat("copy").size_bytes == large
        with _little_memory(), fs.open_read("large") as source, fs.open_write("copy", mode="append") as target:
            target.write_all(source)
        assert fs.stat("copy").size_bytes == 2 * large
