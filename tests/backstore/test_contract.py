"""What every backstore promises; the same tests for each."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentfs_host import copying
from agentfsd.backstore.backstore_kind import BackstoreKind, BackstoreOptions
from agentfsd.backstore.known_backstores import BACKSTORES
from agentfsd.backstore.memfd import MemoryBackstore
from agentfsd.domain_errors import DamagedContent
from agentfsd.types import Backstore, ContentFile

KIB = 1 << 10
MIB = 1 << 20
LARGE = 1 << 30


def memory(path: Path, object_bytes: int = LARGE, total_bytes: int = LARGE) -> MemoryBackstore:
    return MemoryBackstore(str(path / "spill"), spill_object_bytes=object_bytes, spill_total_bytes=total_bytes)


def registered(kind: BackstoreKind) -> Callable[[Path], Backstore]:
    return lambda path: kind.open(BackstoreOptions(str(path / "objects"), str(path / "spill"), True, LARGE, LARGE))


BUILDERS: dict[str, Callable[[Path], Backstore]] = {
    **{kind.name: registered(kind) for kind in BACKSTORES.values() if kind.volume is None},  # ramdisk is hostfs on a tmpfs
    "memory, all spilled": lambda path: memory(path, object_bytes=0),
    "memory, spilling at 64 KiB": lambda path: memory(path, object_bytes=64 * KIB),
    "memory, none left": lambda path: memory(path, total_bytes=0),
}


@pytest.fixture(params=BUILDERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backstore]:
    made = BUILDERS[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[int]:
    """A file of 3 MiB and a bit, without holes."""
    (tmp_path / "source").write_bytes(os.urandom(3 * MIB + 17))
    fd = os.open(tmp_path / "source", os.O_RDONLY)
    yield fd
    os.close(fd)


def fill(store: Backstore, number: int, content: bytes) -> ContentFile:
    file = store.create(number)
    file.pwrite(content, 0)
    return file


def content(store: Backstore, number: int) -> bytes:
    file = store.open(number)
    try:
        return file.pread(file.stat().st_size, 0)
    finally:
        file.close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_content_is_what_was_written(store: Backstore) -> None:
    file = fill(store, 7, b"hello world")
    assert file.pread(5, 6) == b"world"
    assert file.pwrite(b"there", 6) == 5
    file.close()
    again = store.open(7)
    assert again.pread(100, 0) == b"hello there"
    assert again.pread(100, 11) == b""
    again.truncate(5)
    assert again.pread(100, 0) == b"hello"
    again.truncate(7)
    assert again.pread(100, 0) == b"hello\0\0"
    again.close()


def test_stat_opens_nothing(store: Backstore) -> None:
    fill(store, 7, b"x" * 100 * KIB).close()
    before = open_descriptors()
    found = store.stat(7)
    assert (found.st_size, found.st_nlink) == (100 * KIB, found.st_nlink)
    assert found.st_blocks * 512 >= 100 * KIB
    assert open_descriptors() == before


def test_the_descriptor_reads_what_the_file_does(store: Backstore) -> None:
    file = fill(store, 1, b"a" * 200 * KIB)
    assert os.pread(file.fileno(), 3, 199 * KIB) == b"aaa"
    assert not os.get_inheritable(file.fileno())
    file.close()


def test_large_numbers_and_neighbours_do_not_mix(store: Backstore) -> None:
    numbers = [1, 0x101, 0x201, 255, 256, (1 << 63) - 1]
    for number in numbers:
        fill(store, number, b"%d" % number).close()
    assert sorted(store.ids()) == sorted(numbers)
    assert [content(store, number) for number in numbers] == [b"%d" % number for number in numbers]


def test_all_who_have_it_open_see_the_same(store: Backstore) -> None:
    one, two = fill(store, 1, b"a"), store.open(1)
    two.pwrite(b"x" * 3 * MIB, 0)
    assert one.pread(4, 0) == b"xxxx"
    assert one.stat().st_size == two.stat().st_size == store.stat(1).st_size == 3 * MIB
    one.truncate(2)
    assert two.pread(9, 0) == b"xx"
    one.close()
    assert two.pread(9, 0) == b"xx"
    two.close()


def test_times_are_kept(store: Backstore) -> None:
    file = fill(store, 1, b"a")
    file.utime(1_000_000_001, 2_000_000_003)
    assert (file.pread(1, 0), store.stat(1).st_atime_ns) == (b"a", 1_000_000_001)
    file.sync(data_only=True)
    file.sync(data_only=False)
    file.close()
    assert store.stat(1).st_mtime_ns == 2_000_000_003


def test_wrong_numbers_are_errors(store: Backstore, source: int) -> None:
    fill(store, 1, b"a").close()
    with pytest.raises(FileExistsError):
        store.create(1)
    with pytest.raises(FileExistsError):
        store.clone(source, 1)
    assert content(store, 1) == b"a"
    for act in (store.open, store.stat):
        with pytest.raises(DamagedContent, match="is missing") as caught:
            act(2)
        assert caught.value.errno == errno.EIO
    store.remove(2)


def test_a_file_may_be_closed_twice_and_is_then_no_file(store: Backstore) -> None:
    file = fill(store, 1, b"a")
    other = store.open(1)
    file.close()
    file.close()
    with pytest.raises((OSError, ValueError)):
        file.pread(1, 0)
    assert other.pread(1, 0) == b"a"
    other.close()


def test_removed_content_lives_while_it_is_open(store: Backstore) -> None:
    file, reader = fill(store, 1, b"still here"), store.open(1)
    store.remove(1)
    assert list(store.ids()) == []
    assert store.usage()["objects"] == 0
    fill(store, 1, b"a new one").close()
    file.pwrite(b"!" * MIB, 10)
    file.close()
    assert reader.pread(12, 0) == b"still here!!"
    reader.close()
    assert content(store, 1) == b"a new one"


def test_usage_is_what_the_objects_hold(store: Backstore) -> None:
    assert (store.usage()["objects"], store.usage()["bytes"]) == (0, 0)
    files = [fill(store, number, b"x" * number * MIB) for number in (1, 2)]
    files[0].pwrite(b"y" * KIB, 100)  # in place
    assert (store.usage()["objects"], store.usage()["bytes"]) == (2, 3 * MIB)
    files[1].truncate(MIB)
    assert store.usage()["bytes"] == 2 * MIB
    files[1].truncate(1 << 40)  # a hole costs nothing
    assert store.usage()["bytes"] == 2 * MIB
    for number, file in enumerate(files, 1):
        file.close()
        store.remove(number)
    assert all(value == 0 for value in store.usage().values())


# -- clones


def test_a_clone_is_independent(store: Backstore, source: int) -> None:
    expected = os.pread(source, 4 * MIB, 0)
    clone = store.clone(source, 5)
    assert clone.pread(4 * MIB, 0) == expected
    second = store.clone(clone.fileno(), 6)
    second.pwrite(b"other", 0)
    assert clone.pread(5, 0) == expected[:5]
    assert second.pread(4 * MIB, 5) == expected[5:]
    clone.close()
    second.close()
    assert sorted(store.ids()) == [5, 6]


def test_shared_content_lives_under_each_number(store: Backstore) -> None:
    made = store.create(7)
    made.pwrite(b"shared", 0)
    made.close()
    if not store.share(7, 263):  # the shard of 7: another one may be missing
        assert sorted(store.ids()) == [7]
        return
    with pytest.raises(FileExistsError):
        store.share(7, 263)
    store.remove(7)
    kept = store.open(263)
    assert kept.pread(10, 0) == b"shared"
    kept.close()
    assert not store.share(7, 519)
    assert sorted(store.ids()) == [263]


def test_a_clone_of_nothing_is_empty(store: Backstore, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with open(tmp_path / "empty", "rb") as empty:
        clone = store.clone(empty.fileno(), 1)
    assert clone.stat().st_size == 0
    clone.close()
    assert store.usage()["bytes"] == 0


def test_holes_stay_holes(store: Backstore, tmp_path: Path) -> None:
    data, size = [0, 1 << 30, 1 << 39], 1 << 40  # the last quarter and more is a hole
    with open(tmp_path / "sparse", "w+b") as source:
        source.truncate(size)
        for offset in data:
            os.pwrite(source.fileno(), b"data", offset)
        clone = store.clone(source.fileno(), 1)
    again = store.clone(clone.fileno(), 2)
    for file in (clone, again):
        assert file.stat().st_size == size
        assert file.stat().st_blocks * 512 < 64 * KIB
        assert [file.pread(6, offset) for offset in data] == [b"data\0\0"] * 3
        assert os.lseek(file.fileno(), 1 << 31, os.SEEK_DATA) == 1 << 39
        file.close()


def test_a_file_that_is_one_hole_is_cloned_as_one(store: Backstore, tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "w+b") as source:
        source.truncate(1 << 40)
        clone = store.clone(source.fileno(), 1)
    assert (clone.stat().st_size, clone.stat().st_blocks) == (1 << 40, 0)
    clone.close()


def test_what_the_kernel_will_not_copy_is_copied_by_hand(store: Backstore, source: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, refusal in enumerate((errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP), 1):

        def refuse(*_: object, refusal: int = refusal) -> int:
            raise OSError(refusal, os.strerror(refusal))

        monkeypatch.setattr(os, "copy_file_range", refuse)
        clone = store.clone(source, number)
        assert clone.pread(4 * MIB, 0) == os.pread(source, 4 * MIB, 0)
        clone.close()


def test_a_file_of_proc_is_cloned_though_its_size_says_nothing(store: Backstore) -> None:
    with open("/proc/cpuinfo", "rb") as source:
        clone = store.clone(source.fileno(), 1)
    assert clone.pread(16, 0) == b""  # a stat of 0 bytes is believed, and no call fails
    clone.close()


def test_a_failed_clone_leaves_nothing(store: Backstore, source: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 9, b"stays").close()
    before, usage = open_descriptors(), store.usage()

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(os, "copy_file_range", fail)
        broken.setattr(copying, "_FICLONE", 0)
        with pytest.raises(OSError, match="broken"):
            store.clone(source, 1)
    assert list(store.ids()) == [9]
    assert store.usage() == usage
    assert open_descriptors() == before
    store.clone(source, 1).close()
    assert len(content(store, 1)) == 3 * MIB + 17


def test_a_clone_of_an_unreadable_descriptor_leaves_nothing(store: Backstore, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "w", os.O_WRONLY | os.O_CREAT)
    os.pwrite(fd, b"x" * KIB, 0)
    with pytest.raises(OSError):
        store.clone(fd, 1)
    os.close(fd)
    assert list(store.ids()) == []


def test_threads_may_clone_at_once(store: Backstore, source: int) -> None:
    expected = os.pread(source, 4 * MIB, 0)

    def clone(number: int) -> None:
        made = store.clone(source, number)
        made.pwrite(b"%04d" % number, 0)
        made.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(clone, range(1, 25)))
    assert sorted(store.ids()) == list(range(1, 25))
    for number in range(1, 25):
        assert content(store, number) == b"%04d" % number + expected[4:]
    assert store.usage()["bytes"] >= 24 * 3 * MIB


def test_of_two_clones_of_one_number_one_wins(store: Backstore, source: int) -> None:
    start, outcomes = threading.Barrier(4), []

    def clone() -> None:
        start.wait()
        try:
            store.clone(source, 1).close()
            outcomes.append("made")
        except FileExistsError:
            outcomes.append("exists")

    threads = [threading.Thread(target=clone) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["exists"] * 3 + ["made"]
    assert len(content(store, 1)) == 3 * MIB + 17
    store.remove(1)
    assert store.usage()["bytes"] == 0


def test_writers_in_threads_do_not_disturb_each_other(store: Backstore) -> None:
    store.create(1).close()
    slots, steps = 4, 50

    def write(slot: int) -> None:
        with ExitStack() as closing:
            file = store.open(1)
            closing.callback(file.close)
            for step in range(steps):
                file.pwrite(bytes([slot]) * KIB, (step * slots + slot) * KIB)
                assert file.pread(KIB, (step * slots + slot) * KIB) == bytes([slot]) * KIB

    with ThreadPoolExecutor(slots) as pool:
        list(pool.map(write, range(slots)))
    assert content(store, 1) == b"".join(bytes([slot]) * KIB for _ in range(steps) for slot in range(slots))


def test_descriptors_are_given_back(store: Backstore, source: int) -> None:
    before = open_descriptors()
    for number in range(1, 30):
        fill(store, number, b"x" * KIB).close()
        store.clone(source, number + 100).close()
        store.remove(number)
        store.remove(number + 100)
    assert open_descriptors() == before


def test_closing_the_store_gives_everything_back(tmp_path: Path) -> None:
    for name, build in BUILDERS.items():
        before = open_descriptors()
        (tmp_path / name).mkdir()
        store = build(tmp_path / name)
        fill(store, 1, b"x").close()
        store.close()
        store.close()
        assert open_descriptors() == before
