"""Real descriptors while everything else happens: what comes in between, at the points where giving one out has to wait."""

import contextlib
import errno
import fcntl
import os
import signal
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio

from agentfsd.core import data
from agentfsd.core.tree import Inode
from agentfsd.fuse.native.passthrough import PassthroughFiles
from agentfsd.handoff.descriptor_forwarding import Forwarding, WantedDescriptor
from agentfsd.handoff.descriptor_mounts import DescriptorMounts
from agentfsd.history.applying import Author
from agentfsd.history.merge_records import Rules
from agentfsd.history.merging import merge_branches
from agentfsd.process.kept_descriptors import KeptDescriptors
from tests.overlays import Opened

WRITE = WantedDescriptor(os.O_RDWR)


async def nothing() -> None:
    await trio.lowlevel.checkpoint()


class Giving(Opened):
    """An overlay without a mount that gives out descriptors. ``meanwhile``: done while one who asks has to wait."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.views = DescriptorMounts(self.lower, str(base / "lower"), self.backstore, str(base / "objects"), KeptDescriptors())
        if self.views.why_not:
            pytest.skip(self.views.why_not)
        self.begin()

    def begin(self) -> None:
        self.at_once = True
        self.meanwhile: Callable[[], Awaitable[None]] = nothing
        self.forwarding = Forwarding(self.overlay, self._write_back, lambda *_: self.at_once, "", 1000)
        self.forwarding.set("enabled", "on")
        self.fds: list[int] = []

    async def _write_back(self) -> None:
        await self.meanwhile()

    def file(self, path: str, ref: str = "main") -> Inode:
        return self.tree(ref).walk(path.encode())

    def give(self, path: str, wanted: WantedDescriptor = WRITE, ref: str = "main", slow: bool = False) -> int:
        self.at_once = not slow

        async def asked() -> int:
            return (await self.forwarding.give(self.file(path, ref), wanted, 1)).fd

        self.fds.append(trio.run(asked))
        return self.fds[-1]

    def drop(self, fd: int) -> None:
        self.fds.remove(fd)
        os.close(fd)

    def end(self) -> None:
        while self.fds:
            os.close(self.fds.pop())
        self.views.close()
        self.close()


@pytest.fixture
def giving(tmp_path: Path) -> Iterator[Giving]:
    made = Giving(tmp_path)
    (made.base / "lower/file").write_bytes(b"lower\n")
    with contextlib.closing(made), contextlib.ExitStack() as held:
        held.callback(made.end)
        yield made


def check_parted(giving: Giving, fd: int, path: str = "file") -> None:
    """What a descriptor writes after a snapshot is in the branch, and not in the snapshot."""
    before = giving.read(path)
    snapshot = giving.overlay.snapshots.create("main").name
    os.pwrite(fd, b"AFTER", 0)
    assert giving.read(path, snapshot) == before
    assert giving.read(path)[:5] == b"AFTER"


def test_a_sweep_while_somebody_waits_for_a_descriptor(giving: Giving) -> None:
    async def sweep() -> None:
        giving.forwarding.sweep()

    giving.write("file", b"own content")
    inode = giving.file("file")
    data.open_(inode, os.O_RDONLY)  # as on the mount
    giving.meanwhile = sweep
    fd = giving.give("file", slow=True)
    data.release(inode)
    check_parted(giving, fd)


def test_a_merge_between_reading_and_writing(giving: Giving) -> None:
    giving.write("file", b"x" * 100_000)
    giving.overlay.branches.create("other")
    giving.write("new", b"merged", "other")
    reader = giving.give("file", WantedDescriptor(os.O_RDONLY))
    for _ in merge_branches(giving.overlay, ["other"], "main", Rules(), Author()):
        pass
    assert giving.read("new") == b"merged"
    fd = giving.give("file")
    giving.forwarding.sweep()
    check_parted(giving, fd)
    assert os.pread(reader, 1, 0) == b"x"


def test_a_small_file_that_somebody_reads_keeps_no_merge_out(giving: Giving) -> None:
    giving.write("file", b"own")
    giving.overlay.branches.create("other")
    giving.write("new", b"merged", "other")
    reader = giving.give("file", WantedDescriptor(os.O_RDONLY))
    for _ in merge_branches(giving.overlay, ["other"], "main", Rules(), Author()):
        pass
    assert giving.read("new") == b"merged"
    assert os.pread(reader, 3, 0) == b"own"


def test_what_was_sealed_with_nobody_writing_is_not_taken_back_by_a_later_snapshot(giving: Giving) -> None:
    fd = giving.give("file")
    os.pwrite(fd, b"first", 0)
    giving.drop(fd)
    first = giving.overlay.snapshots.create("main").name
    kept = giving.file("file", first)
    data.open_(kept, os.O_RDONLY)  # somebody reads it there
    elsewhere = giving.give("file", WantedDescriptor(os.O_RDONLY), first)
    giving.write("other", b"x")
    giving.overlay.snapshots.create("main")
    inode = giving.file("file")
    data.open_(inode, os.O_WRONLY)
    data.write(inode, b"LATER", 0)
    assert data.read(kept, 10, 0) == os.pread(elsewhere, 10, 0) == b"first\n"
    assert giving.read("file") == b"LATER\n"
    data.release(inode)
    data.release(kept)


def test_a_branch_that_could_not_be_noted_gives_nothing_out(giving: Giving, monkeypatch: pytest.MonkeyPatch) -> None:
    giving.write("file", b"own content" * 10_000)
    with monkeypatch.context() as broken:

        def full(*_: object) -> None:
            raise OSError(28, "no space left on device")

        broken.setattr(giving.store, "put_value", full)
        with pytest.raises(OSError):
            giving.give("file")
    check_parted(giving, giving.give("file"))


def test_what_a_start_finds_open_is_let_go_when_it_is_closed(giving: Giving) -> None:
    giving.write("file", b"own content")
    fd = giving.give("file")
    giving.file("file").release_files()  # as of a daemon that was killed
    giving.close()
    giving.open()
    giving.views = DescriptorMounts(
        giving.lower, str(giving.base / "lower"), giving.backstore, str(giving.base / "objects"), KeptDescriptors()
    )
    giving.forwarding = Forwarding(giving.overlay, giving._write_back, lambda *_: True, "", 1000)
    assert len(giving.forwarding) == 1
    inode = giving.file("file")
    giving.drop(fd)
    giving.forwarding.sweep()
    assert len(giving.forwarding) == inode.opens == 0


def test_flags_that_no_open_takes(giving: Giving) -> None:
    for flags in (1 << 31 | os.O_RDWR, 0xFFFFFFFF, 1 << 40, -5):
        with pytest.raises(OSError):
            giving.give("file", WantedDescriptor(flags))


def test_a_file_whose_open_the_kernel_has_not_finished_is_open_past_us(giving: Giving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passthrough: the opener goes to the object when it comes to run again, however long after our reply that is."""

    def kernel(fd: int, command: int, argument: bytes, *_: object) -> int:
        giving.fds.append(os.dup(struct.unpack_from("=i", argument)[0]))
        return 1

    giving.write("file", b"own content" * 10_000)
    inode = giving.file("file")
    data.open_(inode, os.O_RDWR)
    monkeypatch.setattr(fcntl, "ioctl", kernel)
    assert PassthroughFiles(-1).enter(inode, writes=True)
    monkeypatch.undo()
    before = giving.read("file")
    snapshot = giving.overlay.snapshots.create("main").name
    opened = os.open(f"/proc/self/fd/{giving.fds[0]}", os.O_RDWR)
    os.pwrite(opened, b"AFTER", 0)
    os.close(opened)
    assert giving.read("file", snapshot) == before
    assert giving.read("file")[:5] == b"AFTER"
    data.release(inode)


def test_whoever_has_a_lease_on_what_it_was_given_stops_nobody(giving: Giving) -> None:
    giving.write("file", b"sealed")
    snapshot = giving.overlay.snapshots.create("main").name
    fd = giving.give("file", WantedDescriptor(os.O_RDONLY), snapshot)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    began = time.monotonic()
    assert giving.read("file", snapshot) == giving.read("file") == b"sealed"
    assert time.monotonic() - began < 5
    signal.signal(signal.SIGIO, signal.SIG_DFL)


def test_a_snapshot_that_finds_no_room_leaves_nothing(giving: Giving, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        giving.write(f"f{number}", b"x" * 1000)
        giving.give(f"f{number}")
    before = sorted(giving.backstore.ids())
    clone, room = giving.backstore.clone, iter([1, 1])

    def full(*arguments: object) -> object:
        if next(room, None) is None:
            raise OSError(28, "no space left on device")
        return clone(*arguments)

    monkeypatch.setattr(giving.backstore, "clone", full)
    with pytest.raises(OSError):
        giving.overlay.snapshots.create("main")
    assert sorted(giving.backstore.ids()) == before


def test_nothing_is_given_for_writing_on_a_read_only_mount(giving: Giving) -> None:
    """As by an ioctl where the kernel opens files without asking: nobody knows what for."""
    giving.write("file", b"own")
    giving.forwarding = Forwarding(giving.overlay, giving._write_back, lambda *_: True, "", 1000, read_only=True)
    with pytest.raises(OSError) as refused:
        giving.give("file")
    assert refused.value.errno == errno.EROFS
    assert os.pread(giving.give("file", WantedDescriptor(os.O_RDONLY)), 9, 0) == b"own"


def test_a_restore_copies_what_is_open_once(giving: Giving) -> None:
    giving.overlay.snapshots.create("main", "before")
    fd = giving.give("file")
    os.pwrite(fd, b"FIRST", 0)
    before = len(list(giving.backstore.ids()))
    giving.overlay.branches.restore("main", "before")
    giving.drop(fd)
    assert len(list(giving.backstore.ids())) == before + 1
    assert giving.overlay.undo_log.undo().kind == "restore"
    assert giving.read("file") == b"FIRST\n"
