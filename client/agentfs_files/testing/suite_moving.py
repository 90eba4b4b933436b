"""Tests of move(), for file systems that have it."""

import pytest

from agentfs_files.filesystem.filesystem_protocol import Filesystem, MovableFilesystem
from agentfs_files.testing.suite_settings import Settings, contents, fill


class MovingTests(Settings):
    @pytest.fixture
    def movable(self, fs: Filesystem) -> MovableFilesystem:
        if not isinstance(fs, MovableFilesystem):
            pytest.skip(f"{type(fs).__name__} has no move()")
        return fs

    def test_files_and_directories_get_another_name(self, movable: MovableFilesystem) -> None:
        fill(movable, {"file": "x", "dir/deep/inner": "y"})
        movable.mkdir("dir/empty")
        movable.move("file", "new/place")
        movable.move("dir", "new/dir")
        assert contents(movable) == {"new/dir/deep/inner": "y", "new/place": "x"}
        assert movable.stat("new/dir/empty").is_directory
        assert [entry.name for entry in movable.list()] == ["new"]

    def test_nothing_is_moved_over_anything(self, movable: MovableFilesystem) -> None:
        fill(movable, {"file": "x", "other": "y", "dir/inner": "z"})
        for source, destination in (("file", "other"), ("file", "dir"), ("dir", "file"), ("file", "file")):
            with pytest.raises(FileExistsError):
                movable.move(source, destination)
        assert contents(movable) == {"dir/inner": "z", "file": "x", "other": "y"}

    def test_moves_that_cannot_be(self, movable: MovableFilesystem) -> None:
        fill(movable, {"file": "x", "dir/inner": "z"})
        with pytest.raises(FileNotFoundError):
            movable.move("missing", "new")
        with pytest.raises(NotADirectoryError):
            movable.move("dir", "file/new")
        with pytest.raises(FileNotFoundError):
            movable.move("file", "none/new", create_parents=False)
        for source, destination in (("dir", "dir/inside"), (".", "new"), ("file", "."), ("file", "../out"), ("../out", "in")):
            with pytest.raises(OSError):
                movable.move(source, destination)
        with pytest.raises(ValueError):
            movable.move("file", "n" * (self.limits.max_segment_length + 1))
        assert contents(movable) == {"dir/inner": "z", "file": "x"}
        assert [entry.name for entry in movable.list()] == ["dir", "file"]
