"""What objects in memory have of their own: they move to disk when they must, and nobody who has them open notices."""

import errno
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentfsd.backstore import memfd
from agentfsd.backstore.memfd import MemoryBackstore
from agentfsd.types import ContentFile
from tests.mounted import needs_root

KIB = 1 << 10
MIB = 1 << 20
LARGE = 1 << 30

Make = Callable[..., MemoryBackstore]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes a store with these limits."""
    with ExitStack() as closing:

        def make(object_bytes: int = LARGE, total_bytes: int = LARGE, spill: Path = tmp_path / "spill") -> MemoryBackstore:
            store = MemoryBackstore(str(spill), spill_object_bytes=object_bytes, spill_total_bytes=total_bytes)
            closing.callback(store.close)
            return store

        yield make


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    needs_root()
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(path)], check=True)
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(store: MemoryBackstore, number: int, content: bytes) -> ContentFile:
    file = store.create(number)
    file.pwrite(content, 0)
    return file


def spilled(store: MemoryBackstore) -> tuple[int, int]:
    usage = store.usage()
    return usage["spilled_objects"], usage["spilled_bytes"]


def on_disk(file: ContentFile, spill: Path) -> bool:
    return os.fstat(file.fileno()).st_dev == spill.stat().st_dev


def test_it_says_what_it_is(make: Make, tmp_path: Path) -> None:
    store = make()
    assert (store.kind, store.persistent) == ("memory", False)
    assert store.statvfs().f_blocks == os.statvfs(tmp_path).f_blocks


def test_a_large_object_moves_to_disk_unnoticed(make: Make, tmp_path: Path) -> None:
    store = make(object_bytes=MIB)
    file, reader = store.create(1), store.open(1)
    number = file.fileno()
    file.pwrite(b"a" * (MIB // 2), 0)
    assert spilled(store) == (0, 0)
    file.pwrite(b"b" * MIB, 4 * MIB)
    assert spilled(store) == (1, store.stat(1).st_blocks * 512)
    assert file.fileno() == reader.fileno() == number
    assert on_disk(reader, tmp_path / "spill")
    assert not os.get_inheritable(number)
    assert reader.pread(3, MIB // 2 - 2) == b"aa\0"
    assert reader.pread(2, 4 * MIB) == b"bb"
    assert os.lseek(number, MIB, os.SEEK_DATA) == 4 * MIB  # the hole is one still
    assert os.listdir(tmp_path / "spill") == []  # it has no name: it goes with the process
    file.close()
    reader.close()


def test_a_move_keeps_the_times(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make(object_bytes=MIB)
    file = fill(store, 1, b"a")
    file.utime(1_000_000_001, 2_000_000_003)
    seen = []
    real = memfd.write_all
    monkeypatch.setattr(memfd, "write_all", lambda fd, *rest: (seen.append(os.fstat(fd)), real(fd, *rest))[1])
    file.pwrite(b"x" * 2 * MIB, 0)
    (moved,) = seen  # after the move, before the write that made it necessary
    assert spilled(store)[0] == 1
    assert (moved.st_size, moved.st_atime_ns, moved.st_mtime_ns) == (1, 1_000_000_001, 2_000_000_003)
    file.close()


def test_the_move_comes_before_the_write_that_needs_it(make: Make) -> None:
    store = make(object_bytes=MIB)
    file = fill(store, 1, b"x" * MIB)
    assert spilled(store) == (0, 0)
    file.pwrite(b"y" * MIB, 0)  # in place: nothing grows
    file.pwrite(b"y", MIB - 1)
    assert spilled(store) == (0, 0)
    file.pwrite(b"z", MIB)
    assert spilled(store)[0] == 1
    assert file.pread(2, MIB - 1) == b"yz"
    file.close()


def test_holes_do_not_count_towards_the_limits(make: Make) -> None:
    store = make(object_bytes=MIB, total_bytes=MIB)
    file = store.create(1)
    file.truncate(1 << 40)
    file.pwrite(b"end", 1 << 39)
    assert (spilled(store), store.usage()["bytes"]) == ((0, 0), 4 * KIB)
    file.close()


def test_a_total_above_its_limit_moves_to_disk(make: Make) -> None:
    store = make(total_bytes=MIB)
    files = [fill(store, number, b"x" * (MIB // 2)) for number in (1, 2, 3, 4)]
    disk = sum(store.stat(number).st_blocks * 512 for number in (3, 4))
    assert spilled(store) == (2, disk)
    assert store.usage()["bytes"] == MIB + disk
    files[0].truncate(0)
    store.remove(2)
    assert store.usage()["bytes"] == MIB // 2 + disk  # 2 is open still
    files[1].close()
    assert store.usage()["bytes"] == disk
    again = fill(store, 5, b"x" * MIB)  # there is room again
    assert spilled(store) == (2, disk)
    for file in (*files, again):
        file.close()
    for number in (1, 3, 4, 5):
        store.remove(number)
    assert store.usage() == {"objects": 0, "bytes": 0, "spilled_objects": 0, "spilled_bytes": 0}


def test_clones_keep_to_the_limits(make: Make, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(os.urandom(MIB))
    store = make(total_bytes=3 * MIB)
    start = threading.Barrier(8)

    def clone(number: int) -> None:
        with open(tmp_path / "source", "rb") as source:
            start.wait()
            store.clone(source.fileno(), number).close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(clone, range(1, 9)))
    in_memory = store.usage()["bytes"] - spilled(store)[1]
    assert (in_memory, spilled(store)[0]) == (3 * MIB, 5)


def test_a_clone_of_a_spilled_object_is_one_of_its_content(make: Make) -> None:
    store = make(object_bytes=MIB)
    file = fill(store, 1, os.urandom(2 * MIB))
    copied = store.clone(file.fileno(), 2)
    file.pwrite(b"changed", 0)
    assert copied.pread(2 * MIB, 7) == file.pread(2 * MIB, 7)
    assert copied.pread(7, 0) != b"changed"
    assert spilled(store)[0] == 2
    file.close()
    copied.close()


def test_memory_that_runs_out_is_like_a_limit(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").write_bytes(b"c" * MIB)
    store = make()
    file = fill(store, 1, b"a" * KIB)
    real = os.pwrite

    def full(fd: int, data: bytes, offset: int) -> int:
        if os.fstat(fd).st_dev == tmp_path.stat().st_dev:
            return real(fd, data, offset)
        real(fd, data[:100], offset)  # a part finds room before none is left
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    file.pwrite(b"b" * KIB, KIB)
    assert file.pread(3 * KIB, 0) == b"a" * KIB + b"b" * KIB
    with open(tmp_path / "source", "rb") as source:
        clone = store.clone(source.fileno(), 2)
    assert clone.pread(2 * MIB, 0) == b"c" * MIB
    assert spilled(store) == (2, sum(store.stat(number).st_blocks * 512 for number in (1, 2)))
    file.close()
    clone.close()


def test_a_disk_that_is_full_is_said_and_the_object_stays(make: Make, small_disk: Path, tmp_path: Path) -> None:
    store = make(object_bytes=2 * MIB, spill=small_disk)
    file = fill(store, 1, b"a" * 2 * MIB)
    before = store.usage()
    with pytest.raises(OSError) as caught:
        file.pwrite(b"b", 2 * MIB)  # would have to move, and cannot
    assert caught.value.errno == errno.ENOSPC
    assert store.usage() == before
    assert file.pread(3 * MIB, 0) == b"a" * 2 * MIB
    (tmp_path / "source").write_bytes(b"x" * 4 * MIB)
    with open(tmp_path / "source", "rb") as source, pytest.raises(OSError) as caught:
        store.clone(source.fileno(), 2)
    assert caught.value.errno == errno.ENOSPC
    assert (store.usage(), list(store.ids())) == (before, [1])
    assert os.statvfs(small_disk).f_bfree == os.statvfs(small_disk).f_blocks
    file.close()


def test_a_write_that_is_cut_short_on_disk_is_counted(make: Make, small_disk: Path) -> None:
    store = make(object_bytes=0, spill=small_disk)
    file = fill(store, 1, b"a")
    assert 0 < file.pwrite(b"b" * 2 * MIB, 0) < 2 * MIB
    assert spilled(store) == (1, store.stat(1).st_blocks * 512)
    assert spilled(store)[1] > 4 * KIB
    file.truncate(0)
    assert spilled(store) == (1, 0)
    file.close()


def test_spilled_files_have_no_name_where_the_file_system_knows_none(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(object_bytes=KIB)
    real = os.open

    def refuse(path: str, flags: int, *rest: int, **options: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    file = fill(store, 1, b"x" * MIB)
    assert (spilled(store)[0], os.listdir(tmp_path / "spill")) == (1, [])
    assert (file.pread(1, MIB - 1), on_disk(file, tmp_path / "spill")) == (b"x", True)
    file.close()


def test_a_spill_under_readers_and_writers_shows_nothing_but_the_content(make: Make) -> None:
    rounds, block = 60, 4 * KIB
    store = make(object_bytes=64 * KIB)

    def use(number: int, slot: int) -> None:
        file = store.open(number)
        for step in range(16):
            offset = (step * 4 + slot) * block
            file.pwrite(bytes([slot + 1]) * block, offset)
            assert file.pread(block, offset) == bytes([slot + 1]) * block
            assert os.pread(file.fileno(), 1, slot * block) == bytes([slot + 1])
        file.close()

    for number in range(1, rounds + 1):
        store.create(number).close()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(use, [number] * 4, range(4)))
        file = store.open(number)
        assert file.pread(LARGE >> 8, 0) == b"".join(bytes([slot + 1]) * block for slot in range(4)) * 16
        file.close()
    assert spilled(store)[0] == rounds
    for number in range(1, rounds + 1):
        store.remove(number)
    assert not any(store.usage().values())
