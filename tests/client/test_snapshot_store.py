"""Records of snapshots, and which of them a policy keeps."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfs_files.filesystem.filesystem_errors import SnapshotNotFoundError
from agentfs_files.filesystem.filesystem_protocol import SnapshotStore
from agentfs_files.filesystem.records import FilesystemSnapshot, SnapshotRetentionPolicy
from agentfs_files.snapshots.snapshot_retention import dropped
from agentfs_files.snapshots.snapshot_store import DirectorySnapshotStore, MemorySnapshotStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def record(hours_ago: float = 0, tag: str | None = None) -> FilesystemSnapshot:
    created = NOON - timedelta(hours=hours_ago)
    return FilesystemSnapshot(uuid4(), created, "a" * 40, "/work", git_dir="/tmp/x", tag=tag, parent_id=uuid4(), file_count=3)


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SnapshotStore:
    return MemorySnapshotStore() if request.param == "memory" else DirectorySnapshotStore(tmp_path / "records")


def test_record_comes_back_as_it_was(store: SnapshotStore) -> None:
    assert list(store.list()) == []
    newer, older = record(1, "Ärger\n"), record(2)
    store.save(newer)
    store.save(older)
    assert store.load(newer.snapshot_id) == newer
    assert list(store.list()) == [older, newer]
    store.delete(newer.snapshot_id)
    assert list(store.list()) == [older]


def test_unknown_record_is_an_error_that_says_which(store: SnapshotStore) -> None:
    unknown = uuid4()
    for ask in (store.load, store.delete):
        with pytest.raises(SnapshotNotFoundError, match=str(unknown)):
            ask(unknown)
    with pytest.raises(KeyError):
        store.load(unknown)


def test_prune_deletes_what_the_policy_does_not_keep(store: SnapshotStore) -> None:
    records = [record(hours) for hours in range(5)] + [record(50, "kept")]
    for one in records:
        store.save(one)
    assert store.prune(SnapshotRetentionPolicy(max_count=2)) == 3
    assert list(store.list()) == [records[5], records[1], records[0]]
    assert store.prune(SnapshotRetentionPolicy(max_count=2)) == 0


def test_records_outlive_the_process_and_strangers_files_are_left_alone(tmp_path: Path) -> None:
    one = record()
    DirectorySnapshotStore(tmp_path).save(one)
    (tmp_path / f"{uuid4()}.json").write_text("{damaged")
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "notes").write_text("x")
    again = DirectorySnapshotStore(tmp_path)
    assert list(again.list()) == [one]
    assert again.prune(SnapshotRetentionPolicy(max_count=0)) == 1
    assert len(os.listdir(tmp_path)) == 3


def test_damaged_record_is_named(tmp_path: Path) -> None:
    damaged = uuid4()
    (tmp_path / f"{damaged}.json").write_text("{")
    with pytest.raises(ValueError, match=f"{damaged}.json is not a record"):
        DirectorySnapshotStore(tmp_path).load(damaged)


def test_failed_save_leaves_the_record_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, one = DirectorySnapshotStore(tmp_path), record()
    store.save(one)

    def full(*paths: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        store.save(one)
    assert len(os.listdir(tmp_path)) == 1
    assert list(store.list()) == [one]


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (SnapshotRetentionPolicy(), ["a", "b", "c", "tagged"]),
        (SnapshotRetentionPolicy(max_count=1), ["a", "tagged"]),
        (SnapshotRetentionPolicy(max_count=0), ["tagged"]),
        (SnapshotRetentionPolicy(max_age_hours=2), ["a", "b", "tagged"]),
        (SnapshotRetentionPolicy(max_count=1, max_age_hours=2, keep_tagged=False), ["a"]),
        (SnapshotRetentionPolicy(keep_tagged=False, max_age_hours=0), []),
    ],
)
def test_policy(policy: SnapshotRetentionPolicy, kept: list[str]) -> None:
    records = {"c": record(3), "a": record(0.5), "tagged": record(9, "t"), "b": record(1.5)}
    gone = dropped(records.values(), policy, NOON)
    assert sorted(name for name, one in records.items() if one not in gone) == kept
    assert gone == sorted(gone, key=lambda one: one.created_at)


POLICIES: Callable[..., st.SearchStrategy[SnapshotRetentionPolicy]] = st.builds(
    SnapshotRetentionPolicy, st.integers(0, 4), st.none() | st.integers(0, 5), st.booleans()
)  # type: ignore[assignment]


@given(st.lists(st.tuples(st.floats(0, 6), st.none() | st.just("tag"))), POLICIES)
def test_policy_keeps_the_newest_and_asks_nothing_twice(
    made: list[tuple[float, str | None]], policy: SnapshotRetentionPolicy
) -> None:
    records = [record(hours, tag) for hours, tag in made]
    gone = dropped(records, policy, NOON)
    stay = [one for one in records if one not in gone]
    assert dropped(stay, policy, NOON) == []
    counted = [one for one in stay if not (policy.keep_tagged and one.tag)]
    assert len(counted) <= policy.max_count
    if gone and counted:
        assert max(one.created_at for one in gone) <= min(one.created_at for one in counted)
