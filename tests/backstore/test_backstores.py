"""One contract for every backstore, then what each has of its own."""

import errno
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfsd.backstore import copy
from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.backstore.memory import MemoryBackstore
from agentfsd.types import Backstore, ContentFile
from tests.mounted import needs_root

KIB = 1 << 10
MIB = 1 << 20


def memory(path: Path, **limits: int) -> MemoryBackstore:
    return MemoryBackstore(str(path / "spill"), **limits)


BUILDERS: dict[str, Callable[[Path], Backstore]] = {
    "hostfs": lambda path: HostBackstore(str(path / "objects")),
    "memory": memory,
    "memory-spilled": lambda path: memory(path, spill_object_bytes=1),
}


@pytest.fixture(params=BUILDERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backstore]:
    made = BUILDERS[request.param](tmp_path)
    yield made
    made.close()


def fill(store: Backstore, number: int, content: bytes) -> ContentFile:
    file = store.create(number)
    file.pwrite(content, 0)
    return file


def test_content_is_what_was_written(store: Backstore) -> None:
    file = fill(store, 7, b"hello world")
    assert file.pread(5, 6) == b"world"
    file.pwrite(b"there", 6)
    file.close()
    again = store.open(7)
    assert again.pread(100, 0) == b"hello there"
    assert store.stat(7).st_size == 11
    assert list(store.ids()) == [7]
    again.truncate(5)
    assert again.pread(100, 0) == b"hello"
    again.close()


def test_all_who_have_it_open_see_the_same(store: Backstore) -> None:
    one, two = fill(store, 1, b"a"), store.open(1)
    two.pwrite(b"x" * 3 * MIB, 0)
    assert one.pread(4, 0) == b"xxxx"
    assert one.stat().st_size == two.stat().st_size == 3 * MIB
    one.close()
    two.close()


def test_times_are_kept(store: Backstore) -> None:
    file = fill(store, 1, b"a")
    file.utime(1_000_000_001, 2_000_000_003)
    assert store.stat(1).st_mtime_ns == 2_000_000_003
    file.sync(data_only=True)
    file.close()


def test_wrong_numbers_are_errors(store: Backstore) -> None:
    fill(store, 1, b"a").close()
    with pytest.raises(FileExistsError):
        store.create(1)
    for act in (store.open, store.stat):
        with pytest.raises(FileNotFoundError):
            act(2)
    store.remove(2)


def test_removed_content_lives_while_it_is_open(store: Backstore) -> None:
    file = fill(store, 1, b"still here")
    store.remove(1)
    assert list(store.ids()) == []
    file.pwrite(b"!", 10)
    assert file.pread(20, 0) == b"still here!"
    file.close()
    assert store.usage()["objects"] == 0


def test_clone_is_independent(store: Backstore, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(os.urandom(3 * MIB + 17))
    with open(tmp_path / "source", "rb") as source:
        clone = store.clone(source.fileno(), 5)
    assert clone.pread(4 * MIB, 0) == (tmp_path / "source").read_bytes()
    second = store.clone(clone.fileno(), 6)
    second.pwrite(b"other", 0)
    assert clone.pread(5, 0) == (tmp_path / "source").read_bytes()[:5]
    clone.close()
    second.close()


def test_holes_stay_holes(store: Backstore, tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "w+b") as source:
        source.truncate(1 << 40)
        os.pwrite(source.fileno(), b"data", 1 << 39)
        clone = store.clone(source.fileno(), 1)
    assert clone.stat().st_size == 1 << 40
    assert clone.stat().st_blocks * 512 < MIB
    assert clone.pread(4, 1 << 39) == b"data"
    clone.close()


def test_failed_clone_leaves_nothing(store: Backstore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x" * MIB)
    before = os.listdir("/proc/self/fd")

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "copy_file_range", fail)
    monkeypatch.setattr(copy, "_FICLONE", 0)
    with open(tmp_path / "source", "rb") as source, pytest.raises(OSError, match="broken"):
        store.clone(source.fileno(), 1)
    assert list(store.ids()) == []
    assert len(os.listdir("/proc/self/fd")) == len(before)
    fill(store, 1, b"free again").close()


def test_descriptors_are_given_back(store: Backstore) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(1, 50):
        file = fill(store, number, b"x" * KIB)
        file.close()
        store.remove(number)
    assert len(os.listdir("/proc/self/fd")) == before


# -- hostfs


def test_host_objects_outlive_the_store(tmp_path: Path) -> None:
    store = HostBackstore(str(tmp_path / "objects"))
    fill(store, 300, b"kept").close()
    store.close()
    again = HostBackstore(str(tmp_path / "objects"))
    assert (list(again.ids()), again.open(300).pread(10, 0)) == ([300], b"kept")
    again.close()


@pytest.mark.parametrize(("kind", "size_mib"), [("btrfs", 128), ("xfs", 320)])
def test_blocks_are_shared_where_the_file_system_can(tmp_path: Path, kind: str, size_mib: int) -> None:
    needs_root()
    image, mountpoint = tmp_path / "image", tmp_path / "mnt"
    mountpoint.mkdir()
    with open(image, "wb") as file:
        file.truncate(size_mib * MIB)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mountpoint)], check=True)
    try:
        (mountpoint / "source").write_bytes(os.urandom(20 * MIB))
        os.sync()
        store = HostBackstore(str(mountpoint / "objects"))
        free = os.statvfs(mountpoint).f_bfree
        with open(mountpoint / "source", "rb") as source:
            clones = [store.clone(source.fileno(), number) for number in range(1, 11)]
        os.sync()
        used = (free - os.statvfs(mountpoint).f_bfree) * os.statvfs(mountpoint).f_frsize
        assert used < 10 * MIB  # ten copies would need 200
        assert clones[9].pread(MIB, 0) == (mountpoint / "source").read_bytes()[:MIB]
        for clone in clones:
            clone.close()
        store.close()
    finally:
        subprocess.run(["umount", str(mountpoint)], check=True)


def test_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    needs_root()
    mountpoint = tmp_path / "small"
    mountpoint.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(mountpoint)], check=True)
    try:
        store = HostBackstore(str(mountpoint / "objects"))
        (tmp_path / "source").write_bytes(b"x" * 4 * MIB)
        with open(tmp_path / "source", "rb") as source, pytest.raises(OSError) as caught:
            store.clone(source.fileno(), 1)
        assert caught.value.errno == errno.ENOSPC
        assert list(store.ids()) == []
        file = store.create(2)
        with pytest.raises(OSError) as caught:
            file.pwrite(b"x" * 4 * MIB, 0)
        assert caught.value.errno == errno.ENOSPC
        file.close()
        store.close()
    finally:
        subprocess.run(["umount", str(mountpoint)], check=True)


# -- memory


def test_large_object_moves_to_disk_unnoticed(tmp_path: Path) -> None:
    store = memory(tmp_path, spill_object_bytes=MIB)
    file, reader = store.create(1), store.open(1)
    file.pwrite(b"a" * (MIB // 2), 0)
    file.utime(1, 2)
    assert store.usage()["spilled_objects"] == 0
    file.pwrite(b"b" * MIB, 4 * MIB)
    assert store.usage()["spilled_objects"] == 1
    assert reader.pread(3, MIB // 2 - 2) == b"aa\0"
    assert reader.pread(2, 4 * MIB) == b"bb"
    assert os.listdir(tmp_path / "spill") == []  # it has no name: it goes with the process
    file.close()
    reader.close()
    store.close()


def test_total_above_its_limit_moves_to_disk(tmp_path: Path) -> None:
    store = memory(tmp_path, spill_total_bytes=MIB)
    files = [fill(store, number, b"x" * (MIB // 2)) for number in range(1, 5)]
    usage = store.usage()
    assert (usage["bytes"], usage["spilled_objects"], usage["spilled_bytes"]) == (2 * MIB, 2, MIB)
    files[0].truncate(0)
    store.remove(2)
    files[1].close()
    assert store.usage()["bytes"] == MIB
    for file in files:
        file.close()
    for number in (1, 3, 4):
        store.remove(number)
    assert store.usage() == {"objects": 0, "bytes": 0, "spilled_objects": 0, "spilled_bytes": 0}
    store.close()


def test_writers_in_threads_do_not_disturb_a_spill(tmp_path: Path) -> None:
    store = memory(tmp_path, spill_object_bytes=64 * KIB)
    store.create(1).close()

    def write(slot: int) -> None:
        file = store.open(1)
        for step in range(50):
            file.pwrite(bytes([slot]) * KIB, (step * 4 + slot) * KIB)
        file.close()

    threads = [threading.Thread(target=write, args=(slot,)) for slot in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file = store.open(1)
    assert file.pread(200 * KIB, 0) == b"".join(bytes([slot]) * KIB for _ in range(50) for slot in range(4))
    file.close()
    store.close()
