"""Snapshots of a plain directory, the same with every strategy: on real btrfs and xfs, with a real overlayfs."""

import array
import ctypes
import fcntl
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from agentfs_client.address import unix_address
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.filesystem.filesystem_errors import (
    SnapshotCreationError,
    SnapshotError,
    SnapshotIncompatibleError,
    SnapshotNotFoundError,
    SnapshotRestoreError,
)
from agentfs_files.filesystem.records import FilesystemDiff, FilesystemSnapshot, SnapshotRetentionPolicy, SnapshotStrategy
from agentfs_files.snapshots.directory_snapshots import DirectorySnapshots
from tests.mounted import needs_open_checkout, needs_root

MAKE = {"btrfs": ["mkfs.btrfs", "-q", "-M"], "xfs": ["mkfs.xfs", "-q"]}
SIZE = {"btrfs": 64 << 20, "xfs": 320 << 20}
CLONE_NEWNS = 0x20000
KINDS = ["copy", "git", "archive", "reflink-btrfs", "reflink-xfs", "overlay"]


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """File systems in images, made when they are first asked for."""
    made: dict[str, Path] = {}

    def disk(kind: str) -> Path:
        needs_root()
        if shutil.which(MAKE[kind][0]) is None:
            pytest.skip(f"{MAKE[kind][0]} is not installed: scripts/install --tests")
        if kind not in made:
            base = tmp_path_factory.mktemp(kind)
            with (base / "image").open("wb") as file:
                file.truncate(SIZE[kind])
            subprocess.run([*MAKE[kind], base / "image"], check=True, stdout=subprocess.DEVNULL)
            (base / "disk").mkdir()
            subprocess.run(["mount", "-o", "loop", base / "image", base / "disk"], check=True)
            made[kind] = base / "disk"
        return made[kind]

    yield disk
    for where in made.values():
        subprocess.run(["umount", "-l", where], check=True)


@dataclass
class Workspace:
    root: Path
    strategy: SnapshotStrategy
    storage: Path

    def snapshots(self, **options: object) -> DirectorySnapshots:
        return DirectorySnapshots(self.root, strategy=self.strategy, storage=self.storage, **options)  # type: ignore[arg-type]


@pytest.fixture(params=KINDS)
def workspace(request: pytest.FixtureRequest, tmp_path: Path, disks: Callable[[str], Path]) -> Iterator[Workspace]:
    kind, _, disk = request.param.partition("-")
    if kind == "overlay":
        request.getfixturevalue("own_mounts")
    base = disks(disk) / str(uuid4()) if disk else tmp_path
    (base / "root").mkdir(parents=True)
    yield Workspace(base / "root", SnapshotStrategy(kind), base / "storage")
    unmount_all(base)


@pytest.fixture
def own_mounts() -> Iterator[None]:
    """A mount namespace for this thread: what somebody else begins meanwhile has none of our mounts, which would be refused."""
    needs_root()
    libc = ctypes.CDLL(None, use_errno=True)
    home, place = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY), os.open(".", os.O_PATH)
    try:
        if libc.unshare(CLONE_NEWNS) != 0:
            pytest.skip(f"no mount namespace of our own here: {os.strerror(ctypes.get_errno())}")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        yield
        assert libc.setns(home, CLONE_NEWNS) == 0
        os.fchdir(place)
    finally:
        os.close(home)
        os.close(place)


def unmount_all(base: Path) -> None:
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        path = line.split()[4]
        if path.startswith(f"{base}/"):
            subprocess.run(["umount", "-l", path], check=True)


def picture(root: Path) -> dict[bytes, object]:
    """All that a restore has to bring back."""
    found: dict[bytes, object] = {}
    names: dict[int, bytes] = {}

    def look(path: bytes) -> None:
        info = os.lstat(path)
        relative = os.path.relpath(path, os.fsencode(root))
        content: bytes | None = None
        if stat.S_ISLNK(info.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(info.st_mode):
            content = Path(os.fsdecode(path)).read_bytes()
        xattrs = {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)}
        first = names.setdefault(info.st_ino, relative) if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode) else b""
        found[relative] = (info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, content, xattrs, first)
        if stat.S_ISDIR(info.st_mode):
            for name in sorted(os.listdir(path)):
                look(os.path.join(path, name))

    look(os.fsencode(root))
    return found


STRANGE = [
    b"\xff\xfe not utf-8",
    b"%manifest",
    b"%",
    b"manifest",
    b".GIT",
    b"git~1",
    b".g\xe2\x80\x8cit",
    b"a\\.git",
    b"new\nline",
    b" ",
]


def fill(root: Path) -> None:
    """One of each kind."""
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "main.py").write_text("print('hello')\n")
    (root / "src" / "deep" / "leaf").write_text("leaf\n")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o751)
    (root / "secret").write_text("x")
    (root / "secret").chmod(0o600)
    (root / "none").touch()
    (root / "empty").mkdir(mode=0o700)
    (root / ".gitignore").write_text("*.log\nbuild/\n")
    (root / "kept.log").write_text("ignored, but kept\n")
    (root / ".git" / "refs").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "sub" / ".git").mkdir(parents=True)
    (root / "sub" / ".git" / "config").write_text("[core]\n")
    (root / ".gitmodules").symlink_to("src/main.py")
    (root / ".gitattributes").write_text("x" * 5000)
    (root / "link").symlink_to("src")
    (root / "dangling").symlink_to(b"no\xffwhere")
    (root / "one").write_text("several names")
    os.link(root / "one", root / "src" / "two")
    with (root / "sparse").open("wb") as file:
        file.write(b"start")
        file.seek(3 << 20)
        file.write(b"end")
    os.mkfifo(root / "pipe", 0o640)
    os.setxattr(root / "run", "user.note", b"\0binary")
    os.setxattr(root / "src", "user.note", b"on a directory")
    for name in STRANGE:
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_bytes(name)
    if os.geteuid() == 0:
        os.chown(root / "secret", 1234, 1235)
        (root / "none").chmod(0o4755)
    os.utime(root / "src" / "main.py", ns=(1, 1_000_000_007))
    os.utime(root / "src", ns=(1, 2_000_000_009))
    root.chmod(0o755)


def wreck(root: Path, outside: Path) -> None:
    """Whatever an agent may do."""
    (root / "src" / "main.py").write_text("print('broken')\n")
    (root / "src" / "deep" / "leaf").unlink()
    (root / "src" / "deep" / "leaf").mkdir()
    (root / "src" / "deep" / "leaf" / "inner").write_text("x")
    (root / "build").mkdir()
    (root / "build" / "ignored.log").write_text("new and ignored")
    (root / "new.log").write_text("new and ignored")
    (root / "run").chmod(0o600)
    os.removexattr(root / "run", "user.note")
    os.setxattr(root / "secret", "user.new", b"1")
    shutil.rmtree(root / "sub")
    (root / "sub").symlink_to(outside)
    shutil.rmtree(root / ".git")
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "one").unlink()
    (root / "one").write_text("several names")
    os.link(root / "none", root / "another none")
    (root / "sparse").write_text("short")
    (root / "pipe").unlink()
    (root / "empty").rmdir()
    os.utime(root / "kept.log", ns=(1, 1))
    os.rename(root / ".gitignore", root / "moved")
    with socket.socket(socket.AF_UNIX) as server, unix_address(str(root / "socket")) as address:
        server.bind(address)
    root.chmod(0o700)


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


# -- when it fails


def set_immutable(path: Path, on: bool) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        flags = array.array("i", [0])
        fcntl.ioctl(fd, 0x80086601, flags)
        flags[0] = flags[0] | 0x10 if on else flags[0] & ~0x10
        fcntl.ioctl(fd, 0x40086602, flags)
    finally:
        os.close(fd)


@pytest.mark.parametrize("kind", ["btrfs", "xfs"])
def test_restore_that_cannot_be_finished_is_undone(disks: Callable[[str], Path], kind: str) -> None:
    base = disks(kind) / str(uuid4())
    root = base / "root"
    (root / "b").mkdir(parents=True)
    for name in ("a", "b/inner", "z"):
        (root / name).write_text("before")
    snapshots = DirectorySnapshots(root, strategy=SnapshotStrategy.GIT, storage=base / "storage")
    snapshot = snapshots.take()
    for name in ("a", "b/inner", "z"):
        (root / name).write_text("after")
    (root / "new").mkdir()
    set_immutable(root / "z", True)
    after = picture(root)
    with pytest.raises(SnapshotRestoreError, match="Operation not permitted: z"):
        snapshots.restore(snapshot)
    assert picture(root) == after
    set_immutable(root / "z", False)
    snapshots.restore(snapshot)
    assert sorted(os.listdir(root)) == ["a", "b", "z"]
    assert sorted(os.listdir(base)) == ["root", "storage"]


@pytest.mark.parametrize("kind", ["copy", "git", "archive"])
def test_damaged_storage_is_found_before_anything_changes(tmp_path: Path, kind: str) -> None:
    root, storage = tmp_path / "root", tmp_path / "storage"
    root.mkdir()
    for name in ("one", "two"):
        (root / name).write_text(name * 1000)
    snapshots = DirectorySnapshots(root, strategy=SnapshotStrategy(kind), storage=storage)
    snapshot = snapshots.take()
    for file in storage.rglob("*"):
        if file.is_file() and file.stat().st_size > 20 and {"tree", "objects", "workspace.tar.gz"} & set(file.parts):
            file.chmod(0o600)
            os.truncate(file, file.stat().st_size // 2)
    (root / "one").write_text("changed")
    (root / "two").unlink()
    with pytest.raises(SnapshotRestoreError, match="Failed to restore snapshot"):
        snapshots.restore(snapshot)
    assert {path.name: path.read_text() for path in root.iterdir()} == {"one": "changed"}


def test_what_is_mounted_in_the_root_is_left_alone(tmp_path: Path) -> None:
    needs_root()
    root = tmp_path / "root"
    (root / "mounted").mkdir(parents=True)
    (root / "file").write_text("1")
    snapshots = DirectorySnapshots(root, strategy=SnapshotStrategy.COPY)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", root / "mounted"], check=True)
    try:
        (root / "mounted" / "inner").write_text("theirs")
        snapshot = snapshots.take()
        assert snapshot.file_count == 1
        (root / "file").write_text("2")
        snapshots.restore(snapshot)
        assert (root / "mounted" / "inner").read_text() == "theirs"
        (root / "new" / "deep").mkdir(parents=True)
        subprocess.run(["mount", "--bind", root / "mounted", root / "new" / "deep"], check=True)
        (root / "file").write_text("3")
        with pytest.raises(SnapshotRestoreError, match="unmount it first"):
            snapshots.restore(snapshot)
        assert (root / "file").read_text() == "3"
        assert (root / "mounted" / "inner").read_text() == "theirs"
    finally:
        unmount_all(root)
        snapshots.cleanup()


NAME = "a-name-of-some-length"


def test_tree_deeper_than_a_path_may_be_long(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    top = os.open(root, os.O_RDONLY)
    fd = top
    for _ in range(210):
        os.mkdir(NAME, dir_fd=fd)
        inner = os.open(NAME, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd))
    os.close(fd)
    snapshots = DirectorySnapshots(root, strategy=SnapshotStrategy.COPY)
    snapshot = snapshots.take()
    shutil.move(root / NAME / NAME, root / "elsewhere")
    snapshots.restore(snapshot)
    assert snapshots.diff(snapshot) == FilesystemDiff(unchanged_count=1)
    snapshots.cleanup()
    subprocess.run(["rm", "-rf", root], check=True)


@pytest.fixture
def their_own() -> Iterator[Path]:
    """Where another user may go: tmp_path is ours alone."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield Path(name)


NOT_ROOT = """
import os, sys
from agentfs_files.filesystem.filesystem_errors import SnapshotCreationError
from agentfs_files.snapshots.directory_snapshots import DirectorySnapshots
from agentfs_files.filesystem.records import SnapshotStrategy
root = sys.argv[1]
os.makedirs(f"{root}/locked/inner")
open(f"{root}/locked/inner/file", "w").write("1")
open(f"{root}/file", "w").write("1")
os.chmod(f"{root}/locked/inner", 0o555)
for strategy in (SnapshotStrategy.COPY, SnapshotStrategy.GIT, SnapshotStrategy.ARCHIVE):
    snapshots = DirectorySnapshots(root, strategy=strategy)
    snapshot = snapshots.take()
    os.chmod(f"{root}/locked/inner", 0o755)
    open(f"{root}/locked/inner/file", "w").write("2")
    os.chmod(f"{root}/locked/inner", 0)
    os.makedirs(f"{root}/new/inner")
    open(f"{root}/new/inner/unreadable", "w").close()
    os.chmod(f"{root}/new/inner/unreadable", 0)
    try:
        snapshots.take()
    except SnapshotCreationError as exc:
        print(exc)
    os.chmod(f"{root}/new/inner", 0)
    os.chmod(f"{root}/new", 0o500)
    snapshots.restore(snapshot)
    assert sorted(os.listdir(root)) == ["file", "locked"], os.listdir(root)
    assert os.stat(f"{root}/locked/inner").st_mode & 0o777 == 0o555
    assert open(f"{root}/locked/inner/file").read() == "1"
    snapshots.cleanup()
    assert os.listdir(os.path.dirname(root)) == ["root"]
try:
    DirectorySnapshots(root, strategy=SnapshotStrategy.OVERLAY).take()
except SnapshotCreationError as exc:
    print(exc)
"""


def test_restore_without_root_undoes_what_the_owner_could(their_own: Path) -> None:
    needs_root()
    needs_open_checkout()
    base = their_own / "base"
    (base / "root").mkdir(parents=True)
    for directory in (their_own, base, base / "root"):
        os.chown(directory, 65534, 65534)
    package = Path(__import__("agentfs_client").__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", NOT_ROOT, str(base / "root")], capture_output=True, text=True, user=65534, group=65534,
        env={**os.environ, "TMPDIR": str(base), "HOME": str(base), "PYTHONPATH": str(package)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all("Permission denied: locked/inner" in line for line in lines[:3])
    assert "only root may" in lines[3]
    assert os.listdir(base) == ["root"]


# -- strategies


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
