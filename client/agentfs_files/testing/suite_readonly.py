"""Tests of what a read-only file system refuses."""

from collections.abc import Callable

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem, SnapshotableFilesystem
from agentfs_files.testing.suite_settings import Settings, contents


class ReadOnlyTests(Settings):
    @pytest.fixture
    def read_only_fs(self) -> Filesystem:
        r"""Return a read-only file system of the same kind, with ``file.txt`` and ``dir/inner.txt``, both ``content\n``."""
        pytest.skip("no fixture `read_only_fs`: read-only, with the files file.txt and dir/inner.txt that say `content\\n`")

    def test_read_only_is_read(self, read_only_fs: Filesystem) -> None:
        fs = read_only_fs
        assert fs.read_only is True
        assert fs.read("file.txt").content == "content\n"
        assert [entry.name for entry in fs.list()] == ["dir", "file.txt"]
        assert [match.path for match in fs.grep("content")] == ["dir/inner.txt", "file.txt"]
        with fs.open_text("dir/inner.txt") as reader:
            assert list(reader) == ["content\n"]

    def test_read_only_is_never_changed(self, read_only_fs: Filesystem) -> None:
        fs = read_only_fs
        changes: list[Callable[[], object]] = [
            lambda: fs.write("file.txt", "x"),
            lambda: fs.write("new.txt", "x", mode="create"),
            lambda: fs.write_bytes("file.txt", b"x", mode="append"),
            lambda: fs.open_write("file.txt"),
            lambda: fs.open_write("a/new.txt"),
            lambda: fs.delete("file.txt"),
            lambda: fs.delete("dir", recursive=True),
            lambda: fs.delete(".", recursive=True),
            lambda: fs.mkdir("new"),
            lambda: fs.mkdir("dir"),
        ]
        for change in changes:
            with pytest.raises(PermissionError):
                change()
        assert contents(fs) == {"dir/inner.txt": "content\n", "file.txt": "content\n"}
        if isinstance(fs, SnapshotableFilesystem):
            snapshot = fs.snapshot()
            with pytest.raises(PermissionError):
                fs.restore(snapshot)
        assert [entry.name for entry in fs.list()] == ["dir", "file.txt"]
