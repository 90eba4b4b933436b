"""What the directory of objects has of its own: it lasts, it shares blocks, it says when the disk is full."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentfsd.backstore.hostfs import HostBackstore
from tests.disks import REFLINKING, reflinking_disk
from tests.mounted import needs_root

MIB = 1 << 20
NOBODY = 65534

Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts: the arguments of mount(8) but for the mount point, which it returns."""
    needs_root()
    with ExitStack() as mounted:

        def make(*arguments: str) -> Path:
            mountpoint = tmp_path / "mounted"
            mountpoint.mkdir()
            subprocess.run(["mount", *arguments, str(mountpoint)], check=True)
            mounted.callback(subprocess.run, ["umount", "--lazy", str(mountpoint)], check=True)
            return mountpoint

        yield make


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HostBackstore]:
    made = HostBackstore(str(tmp_path / "objects"))
    yield made
    made.close()


def fill(store: HostBackstore, number: int, content: bytes) -> None:
    file = store.create(number)
    file.pwrite(content, 0)
    file.close()


def clone(store: HostBackstore, source: Path, number: int) -> None:
    with open(source, "rb") as file:
        store.clone(file.fileno(), number).close()


def test_objects_outlive_the_store(store: HostBackstore, tmp_path: Path) -> None:
    fill(store, 300, b"kept")
    again = HostBackstore(str(tmp_path / "objects"))
    file = again.open(300)
    assert (list(again.ids()), file.pread(10, 0)) == ([300], b"kept")
    file.close()
    again.close()


def test_objects_lie_by_the_low_byte_and_are_the_owners_alone(store: HostBackstore, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        fill(store, 0xABC, b"")
        clone(store, Path(__file__), 0x1BC)
    finally:
        os.umask(old)
    for name in ("bc/abc", "bc/1bc"):
        assert stat.S_IMODE((tmp_path / "objects" / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "objects" / "bc").stat().st_mode) == 0o700


def test_what_is_no_object_is_passed_over(store: HostBackstore, tmp_path: Path) -> None:
    fill(store, 0x1AB, b"")
    objects = tmp_path / "objects"
    (objects / "lost+found").mkdir()
    (objects / "README").touch()
    for name in ("x", "0x1ab", "1_ab", "01AB", "fff"):
        (objects / "ab" / name).touch()
    assert list(store.ids()) == [0x1AB]
    assert store.usage()["objects"] == 1


def test_a_directory_that_went_missing_is_made_again(store: HostBackstore, tmp_path: Path) -> None:
    fill(store, 1, b"")
    shutil.rmtree(tmp_path / "objects" / "01")
    fill(store, 1, b"again")
    shutil.rmtree(tmp_path / "objects" / "01")
    clone(store, Path(__file__), 1)
    assert list(store.ids()) == [1]


def test_statvfs_is_the_roots(store: HostBackstore, mount: Mount) -> None:
    mounted = mount("-t", "tmpfs", "-o", "size=1m", "none")
    small = HostBackstore(str(mounted / "objects"))
    assert small.statvfs().f_blocks * small.statvfs().f_frsize == MIB != store.statvfs().f_blocks
    small.close()


def test_objects_of_somebody_else_can_be_opened(store: HostBackstore, tmp_path: Path) -> None:
    needs_root()  # only a file's owner may ask for O_NOATIME
    fill(store, 1, b"theirs")
    (tmp_path / "objects").chmod(0o777)
    (tmp_path / "objects" / "01").chmod(0o777)
    (tmp_path / "objects" / "01" / "1").chmod(0o666)
    os.seteuid(NOBODY)
    try:
        file = store.open(1)
        assert file.pread(10, 0) == b"theirs"
        file.close()
    finally:
        os.seteuid(0)


def test_a_synced_object_has_a_synced_name(store: HostBackstore, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        real(fd)
        synced.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    directories = lambda *names: [os.stat(os.path.join(f"/proc/self/fd/{store._root}", name)).st_ino for name in names]  # noqa: E731

    def sync(number: int) -> list[int]:
        synced.clear()
        file = store.open(number)
        file.sync(data_only=True)
        file.close()
        return list(synced)

    fill(store, 1, b"a")
    assert sync(1) == directories(".", "01")
    assert sync(1) == []
    fill(store, 0x101, b"a")  # a new name where all were known
    assert sync(1) == directories("01")
    clone(store, Path(__file__), 0x201)
    assert sync(0x101) == directories("01")
    fill(store, 2, b"a")
    assert sync(2) == directories(".", "02")
    assert sync(0x201) == sync(2) == []


def test_a_name_that_could_not_be_synced_is_tried_again(store: HostBackstore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 1, b"a")
    file = store.open(1)
    with monkeypatch.context() as broken:
        broken.setattr("agentfs_host.syncing.sync_directory", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        for _ in range(2):
            with pytest.raises(OSError, match="broken"):
                file.sync(data_only=True)
    file.sync(data_only=True)
    file.close()


# Clones a large file without end and says so; the test kills it in the middle.
_CLONER = """
import os, sys
from agentfsd.backstore.hostfs import HostBackstore
store, source, number = HostBackstore(sys.argv[1]), os.open(sys.argv[2], os.O_RDONLY), 0
while True:
    number += 1
    print(number, flush=True)
    store.clone(source, number).close()
"""


def test_a_clone_that_is_killed_leaves_complete_objects_only(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(os.urandom(8 * MIB))
    for round_ in range(5):
        root = tmp_path / f"objects{round_}"
        command = [sys.executable, "-c", _CLONER, str(root), str(tmp_path / "source")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as cloner:
            assert cloner.stdout is not None
            for _ in range(3):
                begun = int(cloner.stdout.readline())
            cloner.kill()
        store = HostBackstore(str(root))
        if not store._has_unnamed:
            pytest.skip("no O_TMPFILE on this file system")
        sizes = [store.stat(number).st_size for number in store.ids()]
        assert len(sizes) >= begun - 1
        assert set(sizes) == {8 * MIB}
        assert sum(len(names) for _, _, names in os.walk(root)) == len(sizes)
        store.close()


# -- real file systems


@pytest.fixture(params=REFLINKING)
def reflinking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system that can share blocks, on a loop device; empty."""
    with reflinking_disk(tmp_path, request.param) as where:
        yield where


def test_clones_share_their_blocks(reflinking: Path) -> None:
    source = reflinking / "source"
    source.write_bytes(os.urandom(20 * MIB))
    os.sync()
    store, free = HostBackstore(str(reflinking / "objects")), os.statvfs(reflinking).f_bavail
    for number in range(1, 11):
        clone(store, source, number)
    os.sync()
    assert (free - os.statvfs(reflinking).f_bavail) * os.statvfs(reflinking).f_frsize < 10 * MIB  # copies: 200
    file = store.open(10)
    file.pwrite(b"changed", MIB)
    assert file.pread(7, MIB) == b"changed"
    assert file.pread(MIB, 0) == source.read_bytes()[:MIB]
    assert source.read_bytes()[MIB : MIB + 7] != b"changed"
    file.close()
    assert store._no_reflink == set()
    store.close()


def test_what_comes_from_another_file_system_is_copied(reflinking: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"x" * MIB)
    store = HostBackstore(str(reflinking / "objects"))
    assert store.native_snapshots == "reflink"
    clone(store, tmp_path / "elsewhere", 1)
    assert store._no_reflink == {tmp_path.stat().st_dev}
    (reflinking / "source").write_bytes(b"y" * MIB)
    clone(store, reflinking / "source", 2)  # its own device is asked all the same
    assert store._no_reflink == {tmp_path.stat().st_dev}
    assert [store.stat(number).st_size for number in (1, 2)] == [MIB, MIB]
    store.close()


def test_a_file_system_without_reflinks_says_so(mount: Mount) -> None:
    store = HostBackstore(str(mount("-t", "tmpfs", "none") / "objects"))
    assert store.native_snapshots == "none"
    store.close()


def test_a_full_file_system_with_reflinks_still_says_so(reflinking: Path) -> None:
    with (reflinking / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(MIB))
    store = HostBackstore(str(reflinking / "objects"))
    assert store.native_snapshots == "reflink"
    store.close()


def test_a_full_disk_is_said_and_leaves_nothing(mount: Mount, tmp_path: Path) -> None:
    mounted = mount("-t", "tmpfs", "-o", "size=2m", "none")
    store = HostBackstore(str(mounted / "objects"))
    (tmp_path / "source").write_bytes(b"x" * 4 * MIB)
    fill(store, 3, b"stays")
    free = store.statvfs().f_bfree
    for named in (False, True):
        store._has_unnamed = not named
        with pytest.raises(OSError) as caught:
            clone(store, tmp_path / "source", 1)
        assert caught.value.errno == errno.ENOSPC
        assert (list(store.ids()), store.statvfs().f_bfree) == ([3], free)
    file = store.create(2)
    written = file.pwrite(b"x" * 4 * MIB, 0)  # as write(2): what fitted, and the error comes next time
    assert 0 < written == file.stat().st_size < 4 * MIB
    with pytest.raises(OSError) as caught:
        file.pwrite(b"x" * 4 * MIB, written)
    assert caught.value.errno == errno.ENOSPC
    file.truncate(0)
    assert file.pwrite(b"x" * MIB, 0) == MIB
    file.close()
    store.close()
