"""What each way of keeping a directory's snapshots does in its own way: reflinks, a git repository, an overlay."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from agentfs_files.filesystem.filesystem_errors import (
    SnapshotCreationError,
    SnapshotError,
    SnapshotIncompatibleError,
    SnapshotRestoreError,
)
from agentfs_files.filesystem.records import FilesystemSnapshot, SnapshotStrategy
from agentfs_files.snapshots.directory_snapshots import DirectorySnapshots
from tests.client.snapshot_trees import fill, picture, unmount_all, wreck


def test_best_strategy_is_found(tmp_path: Path, disks: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root = disks("btrfs") / str(uuid4()) / "root"
    root.mkdir(parents=True)
    snapshots = DirectorySnapshots(root)
    assert snapshots.strategy is SnapshotStrategy.REFLINK
    snapshots.take()
    assert snapshots.storage is not None
    assert Path(snapshots.storage).name.startswith(".root-agentfs-")  # beside the root, which is where blocks can be shared
    snapshots.cleanup()
    assert os.listdir(root.parent) == ["root"]
    plain = Path("/dev/shm") if os.path.isdir("/dev/shm") else tmp_path
    assert DirectorySnapshots(plain).strategy is SnapshotStrategy.GIT
    assert DirectorySnapshots(root, storage=plain / "storage").strategy is SnapshotStrategy.GIT
    assert DirectorySnapshots(root, git_dir=tmp_path / "git").strategy is SnapshotStrategy.GIT
    monkeypatch.setitem(sys.modules, "pygit2", None)
    assert DirectorySnapshots(plain).strategy is SnapshotStrategy.ARCHIVE
    with pytest.raises(SnapshotCreationError, match=r"agentfsd\[git\]"):
        DirectorySnapshots(tmp_path, strategy=SnapshotStrategy.GIT).take()


@pytest.mark.parametrize("kind", ["btrfs", "xfs"])
def test_reflinks_share_their_blocks(disks: Callable[[str], Path], kind: str) -> None:
    base = disks(kind) / str(uuid4())
    (base / "root").mkdir(parents=True)
    (base / "root" / "large").write_bytes(os.urandom(8 << 20))
    snapshots = DirectorySnapshots(base / "root")
    os.sync()
    before = os.statvfs(base).f_bfree
    snapshot = snapshots.take()
    (base / "root" / "large").unlink()
    snapshots.restore(snapshot)
    os.sync()
    assert (before - os.statvfs(base).f_bfree) * os.statvfs(base).f_frsize < 2 << 20
    snapshots.cleanup()
    shutil.rmtree(base)


def test_reflinks_need_one_file_system(disks: Callable[[str], Path], tmp_path: Path) -> None:
    root = disks("xfs") / str(uuid4())
    root.mkdir()
    (root / "file").write_text("1")
    snapshots = DirectorySnapshots(root, strategy=SnapshotStrategy.REFLINK, storage=tmp_path / "elsewhere")
    with pytest.raises(SnapshotCreationError, match="must be on the same file system"):
        snapshots.take()
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(SnapshotCreationError, match="name a storage"):
        DirectorySnapshots(disks("xfs"), strategy=SnapshotStrategy.REFLINK).take()  # a whole file system has no outside
    assert DirectorySnapshots(disks("xfs")).strategy is SnapshotStrategy.GIT


def git(repository: str | None, *arguments: str) -> str:
    command = ["git", "-c", "safe.directory=*", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_repository_satisfies_git(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path / "root"
    root.mkdir()
    fill(root)
    snapshots = DirectorySnapshots(root, strategy=SnapshotStrategy.GIT)
    assert snapshots.git_dir is None
    first = snapshots.take("a tag\nof two lines")
    assert snapshots.git_dir == first.git_dir
    assert first.git_dir is not None
    assert Path(first.git_dir).name.startswith("agentfs-git-")
    assert len(first.commit_ref) == 40
    before = picture(root)
    wreck(root, tmp_path)
    second = snapshots.take()
    assert git(first.git_dir, "fsck", "--strict", "--full", "--no-dangling") == ""
    assert git(first.git_dir, "show", f"{first.commit_ref}:src/main.py") == "print('hello')\n"
    assert git(first.git_dir, "rev-parse", "--is-bare-repository") == "true\n"
    git(first.git_dir, "gc", "-q", "--prune=now")
    stranger = DirectorySnapshots(root)
    stranger.restore(first)
    assert picture(root) == before
    assert stranger.git_dir == first.git_dir
    snapshots.delete(first)
    snapshots.restore(second)
    third = snapshots.take()
    snapshots.delete(second)
    snapshots.restore(third)
    assert git(first.git_dir, "fsck", "--strict", "--full", "--no-dangling") == ""
    for reference in ("0" * 40, "no commit"):
        with pytest.raises(SnapshotRestoreError, match="Failed to restore snapshot"):
            snapshots.restore(replace(third, commit_ref=reference))
    with pytest.raises(SnapshotRestoreError, match="Failed to restore snapshot"):
        stranger.restore(replace(third, git_dir=str(tmp_path / "nowhere")))
    assert not (tmp_path / "nowhere").exists()
    snapshots.cleanup()
    assert not os.path.exists(first.git_dir)


def test_deleted_snapshots_leave_no_objects(tmp_path: Path) -> None:
    root, storage = tmp_path / "root", tmp_path / "storage"
    root.mkdir()
    snapshots = DirectorySnapshots(root, strategy=SnapshotStrategy.GIT, storage=storage)
    (root / "file").write_text("kept")
    kept = snapshots.take()
    count = len(list((storage / "objects").rglob("*")))
    (root / "other").write_text("not kept")
    snapshots.delete(snapshots.take())
    assert len([path for path in (storage / "objects").rglob("*") if path.is_file()]) <= count
    snapshots.take()  # what the index knew of has gone
    snapshots.restore(kept)
    assert os.listdir(root) == ["file"]


def test_places_within_the_root_are_refused(tmp_path: Path) -> None:
    for options in ({"storage": tmp_path / "inner"}, {"git_dir": tmp_path / ".git"}, {"storage": tmp_path}):
        with pytest.raises(ValueError, match="part of it"):
            DirectorySnapshots(tmp_path, **options)  # type: ignore[arg-type]
    with pytest.raises(SnapshotCreationError, match="no such directory"):
        DirectorySnapshots(tmp_path / "missing").take()
    with pytest.raises(SnapshotIncompatibleError, match="kept as commit"):
        DirectorySnapshots(tmp_path).restore(foreign(tmp_path))


def foreign(root: Path) -> FilesystemSnapshot:
    import datetime

    return FilesystemSnapshot(
        uuid4(), datetime.datetime.now(datetime.UTC), "image", str(root), backend="podman", strategy="commit"
    )


# -- overlay


@pytest.fixture
def covered(tmp_path: Path, own_mounts: None) -> Iterator[tuple[Path, DirectorySnapshots]]:
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_text("1")
    yield root, DirectorySnapshots(root, strategy=SnapshotStrategy.OVERLAY, storage=tmp_path / "storage")
    unmount_all(tmp_path)


def mounts_below(path: Path) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if point.startswith(str(path))]


def test_overlay_freezes_only_what_nobody_can_write(covered: tuple[Path, DirectorySnapshots]) -> None:
    root, snapshots = covered
    for number in range(2):
        (root / "file").write_text(f"{number}")
        with (root / "file").open("a") as held:
            with pytest.raises(SnapshotCreationError, match=f"in use: process {os.getpid()}"):
                snapshots.take()
            held.write("!")
        with subprocess.Popen(["sleep", "60"], cwd=root) as stander:
            with pytest.raises(SnapshotCreationError, match=f"process {stander.pid} \\(cwd"):
                snapshots.take()
            stander.kill()
        assert (root / "file").read_text() == f"{number}!"
        snapshot = snapshots.take()
        assert len(mounts_below(root)) == 1
    (root / "file").write_text("2")
    with (root / "file").open(), pytest.raises(SnapshotRestoreError, match="in use"):
        snapshots.restore(snapshot)
    assert (root / "file").read_text() == "2"
    with (root / "file").open(), pytest.raises(SnapshotError, match="in use"):
        snapshots.cleanup()
    snapshots.restore(snapshot)
    snapshots.cleanup()
    assert mounts_below(root.parent) == []
    assert {path.name: path.read_text() for path in root.iterdir()} == {"file": "1!"}


def test_overlay_refuses_a_mount_that_lives_on_elsewhere(covered: tuple[Path, DirectorySnapshots]) -> None:
    root, snapshots = covered
    snapshots.take()
    (root / "file").write_text("2")
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/") as container:
        assert container.stdout is not None
        container.stdout.readline()
        with pytest.raises(SnapshotCreationError, match=f"another mount namespace, that of process {container.pid}"):
            snapshots.take()
        container.kill()
    (root / "file").write_text("3")
    snapshot = snapshots.take()
    (root / "file").write_text("4")
    snapshots.restore(snapshot)
    assert (root / "file").read_text() == "3"
    snapshots.cleanup()


def test_overlay_comes_back_after_its_mounts_are_gone(covered: tuple[Path, DirectorySnapshots]) -> None:
    """As after a restart of the machine."""
    root, snapshots = covered
    snapshots.take()
    (root / "file").write_text("2")
    snapshot = snapshots.take()
    unmount_all(root.parent)
    assert (root / "file").read_text() == "1"
    again = DirectorySnapshots(root)
    with pytest.raises(SnapshotCreationError, match="restore a snapshot first"):
        snapshots.take()
    again.restore(snapshot)
    assert (root / "file").read_text() == "2"
    snapshots.cleanup()
    assert (root / "file").read_text() == "2"


def test_overlay_is_refused_where_a_part_is_mounted_elsewhere(covered: tuple[Path, DirectorySnapshots]) -> None:
    root, snapshots = covered
    (root / "part").mkdir()
    (root.parent / "there").mkdir()
    subprocess.run(["mount", "--bind", root / "part", root.parent / "there"], check=True)
    with pytest.raises(SnapshotCreationError, match="also mounted at"):
        snapshots.take()
    assert len(mounts_below(root.parent)) == 1
    assert not (root.parent / "storage").exists()
