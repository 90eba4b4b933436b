"""InMemoryFilesystem: snapshots that share, trees of any depth, many files."""

import tracemalloc

import pytest

from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.filesystem_errors import SnapshotNotFoundError
from agentfs_files.filesystem.size_limits import Limits
from tests.client.host_places import MANY_NAMES, check_large_directory


def test_deep_trees_in_memory() -> None:
    fs = InMemoryFilesystem(limits=Limits(max_path_depth=5000))
    path = "/".join(["d"] * 1100)
    empty = fs.snapshot()
    fs.write(path, "needle")
    full = fs.snapshot()
    assert full.file_count == 1
    assert [match.path for match in fs.glob("**")] == [match.path for match in fs.grep("needle")] == [path]
    assert (fs.diff(empty).added, fs.diff(full, empty).deleted) == ((path,), (path,))
    fs.delete("d", recursive=True)
    fs.restore(full)
    assert fs.read(path).content == "needle"


def test_large_directories_in_memory() -> None:
    check_large_directory(InMemoryFilesystem(dict.fromkeys(MANY_NAMES, "")))


def test_snapshots_share_what_is_the_same() -> None:
    fs = InMemoryFilesystem({f"dir{number % 10}/{number}": b"x" * 100_000 for number in range(50)})
    tracemalloc.start()
    snapshots = []
    for number in range(100):
        snapshots.append(fs.snapshot())
        fs.write("dir0/changed", str(number))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20
    for number in (0, 50, 99):
        fs.restore(snapshots[number])
        assert fs.exists("dir0/changed") == (number > 0)
        assert (snapshots[number].file_count, len(fs.glob("**"))) == (50 + (number > 0),) * 2


def test_forgotten_snapshots_are_gone() -> None:
    fs = InMemoryFilesystem({"file": "x"})
    snapshot = fs.snapshot()
    fs.delete_snapshot(snapshot)
    for attempt in (fs.restore, fs.diff, fs.delete_snapshot):
        with pytest.raises(SnapshotNotFoundError):
            attempt(snapshot)
    with pytest.raises(SnapshotNotFoundError, match=snapshot.commit_ref):
        InMemoryFilesystem().restore(snapshot)
