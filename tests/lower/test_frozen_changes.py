"""What others do to a lower while it is frozen: every base is of one moment, or there is none."""

import errno
import mmap
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentfs_host import syscalls
from agentfsd.domain_errors import Refusal
from agentfsd.lower import frozen_copy, frozen_walk
from agentfsd.lower.frozen_bases import FrozenBases
from agentfsd.lower.frozen_index import FrozenEntry, entry_of
from agentfsd.lower.host_lower import HostLower
from agentfsd.types import LowerEntry
from tests.lower.frozen_trees import Freezer, Seen, as_seen, closing, different
from tests.rounds import rounds, seed

ROUNDS = rounds("changes during a freeze", 15, 2000)
_TICK_NS = 10_000_000


class Disturber:
    """Changes a tree at random, *often* times, once in about *every* calls."""

    def __init__(self, root: Path, rng: random.Random, often: int, every: float) -> None:
        self._root, self._rng, self.left, self._every = root, rng, often, every

    def tick(self) -> None:
        if self.left and self._rng.random() < 1 / self._every:
            self.left -= 1
            with suppress(OSError, ValueError):  # ValueError: an empty file cannot be mapped
                self._rng.choice(self._acts())()

    def _acts(self) -> list[Callable[[], object]]:
        one, two, directory = self._file(), self._file(), self._directory()
        new = directory / self._rng.choice("abcdefgh")
        if new.is_fifo():
            return [new.unlink]
        return [
            lambda: one.write_bytes(self._content()), lambda: self._keep_times(one), one.unlink, lambda: one.chmod(0o640),
            lambda: os.replace(one, two), lambda: os.replace(one, new), lambda: os.link(one, new), lambda: new.mkdir(),
            lambda: new.write_bytes(self._content()), lambda: new.symlink_to(self._content().hex()[:20]), lambda: os.mkfifo(new),
            lambda: directory.rename(self._directory() / "moved"), lambda: self._remove(directory), lambda: self._map(one),
            lambda: os.setxattr(one, b"user.x", self._content()), lambda: os.truncate(one, 7), lambda: self._swap(one, new),
        ]  # fmt: skip

    def _content(self) -> bytes:
        return self._rng.randbytes(self._rng.choice((8, 100, 5000)))

    def _paths(self, *, directories: bool) -> list[Path]:
        """What there is, and at least the root. No FIFO: whoever opens one waits."""
        paths = sorted(path for path in self._root.rglob("*") if path.is_symlink() or path.is_file() or path.is_dir())
        return [path for path in paths if directories == (path.is_dir() and not path.is_symlink())] or [self._root]

    def _file(self) -> Path:
        return self._rng.choice(self._paths(directories=False))

    def _directory(self) -> Path:
        return self._rng.choice([self._root, *self._paths(directories=True)])

    def _keep_times(self, path: Path) -> None:
        """As rsync and patches do it: only the change time tells."""
        before = path.stat()
        path.write_bytes(self._rng.randbytes(before.st_size))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def _map(self, path: Path) -> None:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[:4] = self._rng.randbytes(4)

    def _remove(self, path: Path) -> None:
        if path != self._root:
            shutil.rmtree(path)

    def _swap(self, path: Path, other: Path) -> None:
        """Make a directory of a file, or the reverse."""
        path.unlink()
        path.mkdir()
        (path / "in").write_bytes(self._content())
        other.write_bytes(self._content())


class Disturbed(HostLower):
    """A lower in which something may happen at each call."""

    looks = 0  # at the root
    seen: Seen = {}  # what there was at the last of them
    tick: Callable[[], object] = staticmethod(lambda: None)
    opening: Callable[[], object] = staticmethod(lambda: None)
    listed: Callable[[int], object] = staticmethod(lambda _: None)

    def open(self, path: bytes) -> int:
        self.tick()
        self.opening()
        fd = super().open(path)
        self.tick()
        return fd

    def renew(self, path: bytes) -> object:  # type: ignore[override]
        if not path:  # a pass begins
            plain = HostLower(self.description)
            self.seen = as_seen(plain)
            plain.close()
        self.tick()
        return super().renew(path)

    def readdir(self, path: bytes) -> list[LowerEntry]:
        found = super().readdir(path)
        self.looks += not path
        self.listed(self.looks)
        self.tick()
        return found

    def listxattr(self, path: bytes) -> list[bytes]:
        self.tick()
        return super().listxattr(path)


def make_tree(root: Path, rng: random.Random) -> None:
    for number in range(30):
        directory = root / rng.choice("pqrs") / rng.choice("pqrs")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{number}").write_bytes(rng.randbytes(rng.choice((0, 8, 100, 5000, 70_000))))
    for number, path in enumerate(list(root.rglob("f?"))):
        os.link(path, root / f"linked{number}")


@contextmanager
def disturbed(base: Path, rng: random.Random) -> Iterator[tuple[Freezer, Disturbed, Disturber]]:
    base.mkdir()
    (base / "root").mkdir()
    make_tree(base / "root", rng)
    lower = Disturbed(str(base / "root"))
    try:
        yield Freezer(base, lower), lower, Disturber(base / "root", rng, rng.choice((1, 3, 10, 40)), rng.choice((5, 20, 60)))
    finally:
        lower.close()


def check_round(base: Path, rng: random.Random) -> None:
    """Freeze twice while a tree changes: each base is as the tree was when the last pass began, or there is none."""
    with disturbed(base, rng) as (freezer, lower, disturber):
        for base_id in ("one", "two"):
            lower.tick = disturber.tick
            try:
                freezer.bases.freeze(base_id)
            except Refusal as exc:
                assert exc.code == "keeps-changing"  # changes came in each pass
                assert not (freezer.place / base_id).exists()
                continue
            lower.tick = lambda: None
            assert different(as_seen(freezer.bases.open(base_id)), lower.seen) == []
            disturber.left += 5
    shutil.rmtree(base)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_changes_of_every_kind_during_a_freeze(tmp_path: Path, number: int) -> None:
    check_round(tmp_path / "round", random.Random(seed() * 100_000 + number))


def test_likewise_on_each_file_system(disk: Path) -> None:
    for number in range(5):
        check_round(disk / "round", random.Random(seed() * 1000 + number))


def test_likewise_where_the_clock_of_the_file_system_ticks_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before Linux 6.13, when two changes within a tick had the same time; here they have for whoever looks."""

    def coarse(status: os.stat_result, device: int, listed: int) -> FrozenEntry:
        entry = entry_of(status, device, listed)
        values = {name: getattr(entry, name) // _TICK_NS * _TICK_NS for name in ("mtime_ns", "ctime_ns")}
        return frozen_copy.msgspec.structs.replace(entry, **values)

    monkeypatch.setattr(frozen_walk, "entry_of", coarse)
    monkeypatch.setattr(frozen_copy, "entry_of", coarse)
    for number in range(20):
        rng = random.Random(number)
        with disturbed(tmp_path / f"{number}", rng) as (freezer, lower, _):
            for name in ("fast", "faster"):
                (freezer.root / name).write_bytes(bytes(100))
            left, victims = [6], [path for path in freezer.root.rglob("f*") if path.stat().st_size == 100]

            def tick(left: list[int] = left, victims: list[Path] = victims, rng: random.Random = rng) -> None:
                if left[0] and rng.random() < 0.1:
                    left[0] -= 1
                    victims[left[0] % 2].write_bytes(rng.randbytes(100))

            lower.tick = tick
            freezer.bases.freeze("one")
            frozen = freezer.bases.open("one")
            for path in freezer.root.rglob("f*"):
                fd = frozen.open(os.fsencode(path.relative_to(freezer.root)))
                assert os.read(fd, 100_000) == path.read_bytes()
                os.close(fd)


def test_two_files_that_are_written_one_after_the_other(tmp_path: Path) -> None:
    """The second is never ahead: that never was."""
    with closing(tmp_path) as freezer:
        first, second = freezer.root / "z-first", freezer.root / "a-second"
        for number in range(400):
            (freezer.root / f"m{number}").write_text("other")
        for path in (first, second):
            path.write_text("0")
        ended = threading.Event()
        writer = threading.Thread(target=_count_up, args=(first, second, ended))
        writer.start()
        made = 0
        try:
            while made < 5:
                with suppress(Refusal):
                    frozen = freezer.freeze(f"{made}")
                    numbers = [int(os.read(frozen.open(path), 20)) for path in (b"z-first", b"a-second")]
                    assert numbers[0] - numbers[1] in (0, 1)
                    frozen.close()
                    made += 1
        finally:
            ended.set()
            writer.join()


def _count_up(first: Path, second: Path, ended: threading.Event) -> None:
    number = 0
    while not ended.wait(0.15):
        for _ in range(20):
            number += 1
            for path in (first, second):
                (path.parent / "new").write_text(f"{number}")
                (path.parent / "new").rename(path)


def test_directories_that_change_places(tmp_path: Path) -> None:
    """Their files have other names then, and no newer time."""
    with disturbed(tmp_path / "x", random.Random(1)) as (freezer, lower, _):
        for name in ("one", "two"):
            (freezer.root / name).mkdir()
            (freezer.root / name / "leaf").write_text(name)
            os.link(freezer.root / name / "leaf", tmp_path / name)  # outside
        time.sleep(0.05)  # else they are copied again anyway

        def swap(looks: int) -> None:
            if looks == 3:
                syscalls.exchange(str(freezer.root / "one"), str(freezer.root / "two"))
                lower.listed = lambda _: None

        lower.listed = swap
        freezer.bases.freeze("one")
        assert different(as_seen(freezer.bases.open("one")), as_seen(lower)) == []
        assert os.read(freezer.bases.open("one").open(b"one/leaf"), 9) == b"two"


def test_a_file_that_never_rests_is_named(tmp_path: Path) -> None:
    with disturbed(tmp_path / "x", random.Random(1)) as (freezer, lower, _):
        log = freezer.root / "noisy.log"

        def tick() -> None:
            with log.open("a") as file:
                file.write("x")

        lower.tick = tick
        with pytest.raises(Refusal, match=r"cannot be frozen while they keep changing: 'noisy.log'") as caught:
            freezer.bases.freeze("one")
        assert caught.value.errno == errno.EBUSY
        assert caught.value.hint == "stop what writes there, and try again"
        assert list(freezer.place.iterdir()) == []


def test_stores_through_a_mapping_are_seen(disk: Path) -> None:
    """They change the times of the file only if its page was clean."""
    if not (disk.parent / "image").exists():
        pytest.skip("tmpfs never changes times for stores through a mapping")
    (disk / "root").mkdir()
    (disk / "root" / "mapped").write_bytes(bytes(8192))
    lower = Disturbed(str(disk / "root"))
    freezer = Freezer(disk, lower)
    with (freezer.root / "mapped").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        stores = iter([1, 2, 3])

        def store() -> None:
            with suppress(StopIteration):
                mapped[0] = next(stores)
                time.sleep(0.05)

        store()
        lower.opening = lambda: store() if lower.looks == 2 else None  # the first pass: its page is dirty when it is copied
        lower.listed = lambda looks: store() if looks == 3 else None
        freezer.bases.freeze("one")
        assert os.read(freezer.bases.open("one").open(b"mapped"), 1) == b"\3"
    lower.close()


def test_an_earlier_base_that_is_removed_meanwhile(tmp_path: Path) -> None:
    with disturbed(tmp_path / "x", random.Random(1)) as (freezer, lower, _):
        freezer.bases.freeze("one")
        other = FrozenBases.__new__(FrozenBases)
        other.__dict__.update(freezer.bases.__dict__)
        calls = iter(range(10_000))

        def tick() -> None:
            if next(calls) == 30:
                other.remove("one")

        lower.tick = tick
        freezer.bases.freeze("two")
        lower.tick = lambda: None
        assert different(as_seen(freezer.bases.open("two")), as_seen(lower)) == []
