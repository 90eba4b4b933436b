"""Snapshots of a plain directory, the same with every strategy: on real btrfs and xfs, with a real overlayfs."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from agentfs_files.backends.host import HostFilesystem
from agentfs_files.filesystem.filesystem_errors import (
    SnapshotError,
    SnapshotIncompatibleError,
    SnapshotNotFoundError,
    SnapshotRestoreError,
)
from agentfs_files.filesystem.records import FilesystemDiff, SnapshotRetentionPolicy
from agentfs_files.snapshots.directory_snapshots import DirectorySnapshots
from tests.client.snapshot_trees import KINDS, Workspace, fill, picture, wreck


def test_restore_brings_back_everything_and_nothing_else(workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    fill(workspace.root)
    before = picture(workspace.root)
    snapshots = workspace.snapshots()
    first = snapshots.take("first")
    assert picture(workspace.root) == before
    wreck(workspace.root, outside)
    after = picture(workspace.root)
    second = snapshots.take(parent_id=first.snapshot_id)
    snapshots.restore(first)
    assert picture(workspace.root) == before
    assert (workspace.root / "sparse").stat().st_blocks * 512 < 1 << 20
    assert snapshots.diff(first) == FilesystemDiff(unchanged_count=first.file_count)
    snapshots.restore(second)
    assert picture(workspace.root) == after
    snapshots.restore(first)
    assert picture(workspace.root) == before
    assert os.listdir(outside) == []
    assert second.parent_id == first.snapshot_id
    snapshots.cleanup()
    assert picture(workspace.root) == before
    assert not workspace.storage.exists()


def test_diff_names_files_by_content(workspace: Workspace) -> None:
    root = workspace.root
    for name in ("same", "touched", "changed", "as long", "gone", "mode"):
        (root / name).write_text("before")
    (root / "link").symlink_to("same")
    (root / "dir").mkdir()
    (root / "dir" / "inner").write_text("before")
    snapshots = workspace.snapshots()
    base = snapshots.take()
    (root / "changed").write_text("longer than before")
    (root / "as long").write_text("before".upper())
    os.utime(root / "touched", ns=(1, 1))
    (root / "mode").chmod(0o700)
    (root / "gone").unlink()
    (root / "link").unlink()
    (root / "link").symlink_to("changed")
    (root / "dir" / "new").write_text("new")
    expected = FilesystemDiff(("dir/new",), ("as long", "changed", "link"), ("gone",), 4)
    assert snapshots.diff(base) == expected
    target = snapshots.take()
    assert snapshots.diff(base, target) == expected
    assert snapshots.diff(target, base) == FilesystemDiff(("gone",), ("as long", "changed", "link"), ("dir/new",), 4)
    assert (base.file_count, target.file_count) == (8, 8)
    assert base.total_bytes == 7 * len("before")


def test_snapshot_without_a_change_is_another_one(workspace: Workspace) -> None:
    (workspace.root / "file").write_text("1")
    snapshots = workspace.snapshots()
    one, two = snapshots.take("one"), snapshots.take("two")
    assert one.snapshot_id != two.snapshot_id
    assert one.commit_ref != two.commit_ref
    (workspace.root / "file").write_text("2")
    snapshots.delete(one)
    snapshots.restore(two)
    assert (workspace.root / "file").read_text() == "1"
    with pytest.raises(SnapshotNotFoundError, match="Failed to restore snapshot"):
        snapshots.restore(one)
    with pytest.raises(SnapshotError, match="could not be deleted"):
        snapshots.delete(one)
    assert (workspace.root / "file").read_text() == "1"


def test_another_instance_restores_what_one_has_taken(workspace: Workspace) -> None:
    (workspace.root / "file").write_text("1")
    snapshot = workspace.snapshots().take("mine")
    (workspace.root / "file").write_text("2")
    stranger = DirectorySnapshots(workspace.root)
    stranger.restore(snapshot)
    assert (workspace.root / "file").read_text() == "1"
    assert stranger.strategy is workspace.strategy
    assert stranger.list() == (snapshot,)
    stranger.cleanup()  # it did not make the place
    assert workspace.storage.exists()


@pytest.mark.parametrize("workspace", KINDS[:-1], indirect=True)
def test_only_what_differs_is_written(workspace: Workspace) -> None:
    root = workspace.root
    for name in ("same", "touched", "changed"):
        (root / name).write_text("before")
    os.link(root / "same", root / "same too")
    snapshots = workspace.snapshots()
    snapshot = snapshots.take()
    numbers = {name: (root / name).stat().st_ino for name in ("", "same", "touched", "changed")}
    os.utime(root / "touched", ns=(1, 1))
    (root / "changed").write_text("after")
    held = (root / "changed").open()
    fd = os.open(root, os.O_PATH)
    snapshots.restore(snapshot)
    assert os.fstat(fd).st_ino == root.stat().st_ino == numbers[""]
    os.close(fd)
    assert (root / "same").stat().st_ino == (root / "same too").stat().st_ino == numbers["same"]
    assert (root / "touched").stat().st_ino == numbers["touched"]
    assert (root / "changed").read_text() == "before"
    assert held.read() == "after"  # a reader keeps the file that it has opened
    held.close()


def test_a_single_change_deep_inside_is_undone(workspace: Workspace) -> None:
    inner = workspace.root / "a" / "b"
    inner.mkdir(parents=True)
    snapshots = workspace.snapshots()
    empty = snapshots.take()
    (inner / "file").write_text("1")
    full = snapshots.take()
    snapshots.restore(empty)
    assert os.listdir(inner) == []
    snapshots.restore(full)
    assert (inner / "file").read_text() == "1"
    (inner / "file").write_text("2")
    snapshots.restore(full)
    assert (inner / "file").read_text() == "1"


def test_file_that_changes_just_after_a_snapshot_is_noticed(workspace: Workspace) -> None:
    """Same size, and mtime put back: within one tick of the clock the change time would be the same, too."""
    file = workspace.root / "file"
    snapshots = workspace.snapshots()
    for number in range(5):
        file.write_text(f"{number}a")
        info = file.stat()
        snapshot = snapshots.take()
        file.write_text(f"{number}b")
        os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
        assert snapshots.diff(snapshot).modified == ("file",)
        snapshots.restore(snapshot)
        assert file.read_text() == f"{number}a"


def test_old_snapshots_go_as_the_policy_says(workspace: Workspace) -> None:
    snapshots = workspace.snapshots(policy=SnapshotRetentionPolicy(max_count=2))
    taken = []
    for number in range(5):
        (workspace.root / "file").write_text(f"{number}" * 10_000)
        taken.append(snapshots.take("kept" if number == 1 else None))
    assert list(snapshots.list()) == [taken[1], taken[3], taken[4]]
    for snapshot, digit in zip(snapshots.list(), "134", strict=True):
        snapshots.restore(snapshot)
        assert (workspace.root / "file").read_text() == digit * 10_000
    with pytest.raises(SnapshotNotFoundError):
        snapshots.restore(taken[0])


def test_nothing_is_made_before_the_first_snapshot(workspace: Workspace) -> None:
    snapshots = workspace.snapshots()
    assert snapshots.list() == ()
    snapshots.cleanup()
    assert snapshots.strategy is workspace.strategy
    assert not workspace.storage.exists()
    assert os.listdir(workspace.root.parent) == ["root"]
    first = snapshots.take()
    assert snapshots.storage == str(workspace.storage)
    snapshots.cleanup()
    snapshots.cleanup()
    assert os.listdir(workspace.root.parent) == ["root"]
    with pytest.raises(SnapshotRestoreError, match="Failed to restore snapshot"):
        snapshots.restore(first)


@pytest.mark.parametrize("workspace", KINDS[:-1], indirect=True)
def test_snapshot_of_a_directory_that_changes_meanwhile(workspace: Workspace) -> None:
    ended = threading.Event()

    def churn() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            directory = workspace.root / f"d{number % 7}"
            directory.mkdir(exist_ok=True)
            (directory / "file").write_text("x" * (number % 5000))
            if number % 3 == 0:
                shutil.rmtree(directory)

    for number in range(60):
        (workspace.root / f"steady{number}").write_text(str(number))
    snapshots = workspace.snapshots()
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        taken = [snapshots.take() for _ in range(4)]
    finally:
        ended.set()
        thread.join()
    for snapshot in taken:
        snapshots.restore(snapshot)
        assert snapshots.diff(snapshot) == FilesystemDiff(unchanged_count=snapshot.file_count)
        assert (workspace.root / "steady59").read_text() == "59"


@pytest.mark.parametrize("workspace", KINDS[:-1], indirect=True)
def test_directory_that_is_not_empty_takes_no_snapshot_of_another(workspace: Workspace) -> None:
    (workspace.root / "file").write_text("1")
    snapshot = workspace.snapshots().take()
    other = workspace.root.parent / "other"
    other.mkdir()
    (other / "mine").touch()
    with pytest.raises(SnapshotIncompatibleError, match="not empty"):
        DirectorySnapshots(other).restore(snapshot)
    (other / "mine").unlink()
    DirectorySnapshots(other).restore(snapshot)
    assert (other / "file").read_text() == "1"


def test_host_file_system_goes_back_and_forth(workspace: Workspace) -> None:
    fs = HostFilesystem(workspace.root, snapshot_strategy=workspace.strategy, snapshot_dir=str(workspace.storage))
    fs.write("config.py", "DEBUG = True")
    one = fs.snapshot(tag="initial")
    fs.write("config.py", "DEBUG = False")
    fs.write("tests.py", "import pytest")
    two = fs.snapshot(tag="with-tests")
    assert fs.diff(one, two) == FilesystemDiff(("tests.py",), ("config.py",), (), 0)
    fs.restore(one)
    assert (fs.read("config.py").content, fs.exists("tests.py")) == ("DEBUG = True", False)
    fs.restore(two)
    assert (fs.read("config.py").content, fs.exists("tests.py")) == ("DEBUG = False", True)
    assert two.parent_id == one.snapshot_id
    fs.cleanup()
    assert fs.read("config.py").content == "DEBUG = False"
    fs.close()
