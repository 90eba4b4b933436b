"""Tests of snapshot(), restore() and diff(), for file systems that have them."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID, uuid4

import msgspec
import pytest

from agentfs_files.filesystem.filesystem_errors import SnapshotError, SnapshotIncompatibleError, SnapshotRestoreError
from agentfs_files.filesystem.filesystem_protocol import DiffableFilesystem, Filesystem, SnapshotableFilesystem
from agentfs_files.filesystem.records import FilesystemSnapshot
from agentfs_files.testing.suite_settings import Settings, contents, fill


class SnapshotTests(Settings):
    @pytest.fixture
    def snapshotable(self, fs: Filesystem) -> SnapshotableFilesystem:
        if not (hasattr(fs, "snapshot") and hasattr(fs, "restore")):
            pytest.skip(f"{type(fs).__name__} has no snapshots")
        return cast(SnapshotableFilesystem, fs)

    def test_snapshot_is_a_record(self, snapshotable: SnapshotableFilesystem) -> None:
        fill(snapshotable, {"a": "12", "dir/b": "345"})
        snapshot = snapshotable.snapshot(tag="before")
        assert isinstance(snapshot, FilesystemSnapshot)
        assert isinstance(snapshot.snapshot_id, UUID)
        assert abs(datetime.now(UTC) - snapshot.created_at) < timedelta(minutes=10)
        assert (snapshot.tag, snapshot.root_path, snapshot.file_count, snapshot.total_bytes) == (
            "before",
            snapshotable.root,
            2,
            5,
        )
        assert snapshot.commit_ref
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
            snapshot.tag = "after"  # type: ignore[misc]
        assert msgspec.json.decode(msgspec.json.encode(snapshot), type=FilesystemSnapshot) == snapshot

    def test_restore_makes_everything_as_it_was(self, snapshotable: SnapshotableFilesystem) -> None:
        fs = snapshotable
        before = {"changed": "old", "deleted": "old", "dir/inner": "x", "kept": "x", "kind": "file", "tree/a/b": "x"}
        fill(fs, before)
        snapshot = fs.snapshot()
        fs.write("changed", "new!")
        fs.delete("deleted")
        fs.delete("tree", recursive=True)
        fs.delete("kind")
        fill(fs, {"added": "x", "dir/added": "x", "new/deep/er": "x", "kind/now": "directory"})
        fs.restore(snapshot)
        assert contents(fs) == before
        assert not any(fs.exists(path) for path in ("added", "new", "kind/now"))

    def test_restore_takes_back_a_single_change(self, snapshotable: SnapshotableFilesystem) -> None:
        fs = snapshotable
        fs.write("dir/file", "old")
        snapshot = fs.snapshot()
        fs.write("dir/added", "x")
        fs.restore(snapshot)
        assert contents(fs) == {"dir/file": "old"}
        fs.delete("dir/file")
        fs.restore(snapshot)
        assert contents(fs) == {"dir/file": "old"}

    def test_restore_removes_ignored_and_hidden_files(self, snapshotable: SnapshotableFilesystem) -> None:
        fs = snapshotable
        before = {".gitignore": "*.log\nbuild/\n", "old.log": "kept"}
        fill(fs, before)
        snapshot = fs.snapshot()
        fill(fs, {"new.log": "x", "build/out": "x", ".hidden": "x", ".env/secret": "x", "old.log": "changed"})
        fs.restore(snapshot)
        assert contents(fs) == before
        assert [entry.name for entry in fs.list()] == [".gitignore", "old.log"]

    def test_empty_directories_come_back(self, snapshotable: SnapshotableFilesystem) -> None:
        fs = snapshotable
        fs.mkdir("empty/inner")
        snapshot = fs.snapshot()
        fs.delete("empty", recursive=True)
        fs.mkdir("other")
        fs.restore(snapshot)
        assert [entry.path for entry in (*fs.list(), *fs.list("empty"))] == ["empty", "empty/inner"]

    def test_any_snapshot_can_be_restored_at_any_time(self, snapshotable: SnapshotableFilesystem) -> None:
        fs = snapshotable
        snapshots = []
        for number in range(3):
            fs.write("file", str(number))
            fs.write(f"only-{number}", "x")
            snapshots.append(fs.snapshot(tag=str(number)))
        assert len({snapshot.snapshot_id for snapshot in snapshots}) == 3
        for number in (0, 2, 1, 1):
            fs.restore(snapshots[number])
            assert fs.read("file").content == str(number)
            assert fs.exists("only-2") == (number == 2)

    def test_snapshot_does_not_change_with_the_file_system(self, snapshotable: SnapshotableFilesystem) -> None:
        fs = snapshotable
        fs.write("file", "one\n")
        first = fs.snapshot()
        fs.write("file", "two\n", mode="append")
        second = fs.snapshot()
        fs.restore(first)
        fs.write("file", "three\n", mode="append")
        fs.restore(second)
        assert contents(fs) == {"file": "one\ntwo\n"}
        fs.restore(first)
        assert contents(fs) == {"file": "one\n"}

    def test_text_of_any_kind_comes_back(self, snapshotable: SnapshotableFilesystem) -> None:
        fs = snapshotable
        before = {"$(x) ü\n": "odd", "dos.txt": "a\r\nb\r\n", "zero": "\0"}
        fill(fs, before)
        snapshot = fs.snapshot()
        fs.delete(".", recursive=True)
        fs.restore(snapshot)
        assert contents(fs) == before

    def test_empty_file_system_can_be_restored(self, snapshotable: SnapshotableFilesystem) -> None:
        snapshot = snapshotable.snapshot()
        snapshotable.write("dir/file", "x")
        snapshotable.restore(snapshot)
        assert (len(snapshotable.list()), snapshot.file_count, snapshot.total_bytes) == (0, 0, 0)

    def test_unknown_snapshots_change_nothing(self, snapshotable: SnapshotableFilesystem) -> None:
        fs = snapshotable
        fs.write("file", "old")
        snapshot = fs.snapshot()
        fs.write("file", "new")
        strange = dataclasses.replace(snapshot, snapshot_id=uuid4(), commit_ref="0" * 40, git_dir=None)
        with pytest.raises(SnapshotRestoreError):
            fs.restore(strange)
        assert contents(fs) == {"file": "new"}
        foreign = dataclasses.replace(strange, backend="no-such-backend", strategy="no-such-strategy")
        with pytest.raises(SnapshotIncompatibleError):
            fs.restore(foreign)
        assert contents(fs) == {"file": "new"}


class BinarySnapshotTests(SnapshotTests):
    """The same for content that is not text."""

    def test_snapshot_keeps_every_byte(self, snapshotable: SnapshotableFilesystem) -> None:
        snapshotable.write_bytes("data.bin", bytes(range(256)))
        snapshot = snapshotable.snapshot()
        snapshotable.delete("data.bin")
        snapshotable.restore(snapshot)
        assert snapshotable.read_bytes("data.bin").content == bytes(range(256))


class DiffTests(Settings):
    @pytest.fixture
    def diffable(self, fs: Filesystem) -> DiffableFilesystem:
        if not (hasattr(fs, "diff") and hasattr(fs, "current_snapshot_id")):
            pytest.skip(f"{type(fs).__name__} has no diff()")
        return cast(DiffableFilesystem, fs)

    def test_diff_with_what_there_is_now(self, diffable: DiffableFilesystem) -> None:
        fs = diffable
        fill(fs, {"a": "1", "dir/b": "1", "dir/c": "1", "same": "1"})
        base = fs.snapshot()
        nothing = fs.diff(base)
        assert (nothing.added, nothing.modified, nothing.deleted, nothing.unchanged_count) == ((), (), (), 4)
        fill(fs, {"z": "new", "dir/new": "new", "dir/b": "2", "a": "longer"})
        fs.delete("dir/c")
        diff = fs.diff(base)
        assert (diff.added, diff.modified, diff.deleted) == (("dir/new", "z"), ("a", "dir/b"), ("dir/c",))
        assert diff.unchanged_count == 1

    def test_diff_of_two_snapshots_goes_both_ways(self, diffable: DiffableFilesystem) -> None:
        fs = diffable
        fill(fs, {"a": "1", "b": "1"})
        one = fs.snapshot()
        fill(fs, {"b": "2", "c": "1"})
        fs.delete("a")
        two = fs.snapshot()
        fs.delete(".", recursive=True)
        there, back = fs.diff(one, two), fs.diff(two, one)
        assert (there.added, there.modified, there.deleted, there.unchanged_count) == (("c",), ("b",), ("a",), 0)
        assert (back.added, back.modified, back.deleted, back.unchanged_count) == (("a",), ("b",), ("c",), 0)
        same = fs.diff(two, two)
        assert (same.added, same.modified, same.deleted, same.unchanged_count) == ((), (), (), 2)

    def test_file_that_becomes_a_directory(self, diffable: DiffableFilesystem) -> None:
        fs = diffable
        fs.write("name", "x")
        base = fs.snapshot()
        fs.delete("name")
        fs.write("name/deep/file", "x")
        diff = fs.diff(base)
        assert (diff.added, diff.modified, diff.deleted) == (("name/deep/file",), (), ("name",))

    def test_same_content_written_again_is_no_change(self, diffable: DiffableFilesystem) -> None:
        diffable.write("file", "same")
        base = diffable.snapshot()
        diffable.write("file", "same")
        assert (diffable.diff(base).modified, diffable.diff(base).unchanged_count) == ((), 1)

    def test_snapshots_know_their_parents(self, diffable: DiffableFilesystem) -> None:
        fs = diffable
        assert fs.current_snapshot_id is None
        first = fs.snapshot()
        assert first.parent_id is None
        second = fs.snapshot()
        current: UUID | None = fs.current_snapshot_id
        assert (second.parent_id, current) == (first.snapshot_id, second.snapshot_id)
        fs.restore(first)
        assert fs.current_snapshot_id == first.snapshot_id
        assert fs.snapshot().parent_id == first.snapshot_id

    def test_diff_of_unknown_snapshots(self, diffable: DiffableFilesystem) -> None:
        base = diffable.snapshot()
        strange = dataclasses.replace(base, snapshot_id=uuid4(), commit_ref="0" * 40, git_dir=None)
        with pytest.raises(SnapshotError):
            diffable.diff(strange)
        with pytest.raises(SnapshotError):
            diffable.diff(base, strange)
