"""Random sequences of valid requests to a native session, and the same calls in a plain directory: the same results."""

import errno
import os
import stat
from collections.abc import Callable
from ctypes import c_long
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfsd.fuse.kernel_nodes import DirNode, FileNode
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.handshake import IoMode
from tests.fuse.fake_kernel import ROOT, FakeKernel, plus_entries, unpack_entry
from tests.posix.places import call
from tests.rounds import rounds

LIVES = rounds("histories with kills", 25, 2000)
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
FILES = ("a", "b", "d/a", "d/e/b", "new", "d/new")
DIRECTORIES = ("d", "d/e", "f", "new", "f/new")
PATHS = sorted({*FILES, *DIRECTORIES})
OFFSETS = st.sampled_from([0, 1, 10, 4096, 5000, 8192, 70_000])
LENGTHS = st.sampled_from([1, 7, 4096, 6000])


def _zeroes_ranges() -> bool:
    """Whether the plain directory's file system does, which tmpfs does not."""
    with TemporaryFile() as file:
        try:
            call("fallocate64", file.fileno(), ZERO_RANGE, c_long(0), c_long(1))
        except OSError:
            return False
    return True


ALLOCATIONS = [0, KEEP_SIZE, KEEP_SIZE | PUNCH_HOLE] + [ZERO_RANGE] * _zeroes_ranges()

paths = st.sampled_from(PATHS)
steps = st.one_of(
    st.tuples(st.just("look"), paths), st.tuples(st.just("make"), paths), st.tuples(st.just("write"), paths, OFFSETS, LENGTHS),
    st.tuples(st.just("read"), paths, OFFSETS, LENGTHS),
    st.tuples(st.just("rename"), paths, paths, st.sampled_from([0, 0, 1, 2])),
    st.tuples(st.just("unlink"), paths), st.tuples(st.just("link"), paths, paths), st.tuples(st.just("mkdir"), paths),
    st.tuples(st.just("rmdir"), paths), st.tuples(st.just("truncate"), paths, OFFSETS),
    st.tuples(st.just("chmod"), paths, st.sampled_from([0o600, 0o755, 0o777])),
    st.tuples(st.just("allocate"), paths, OFFSETS, LENGTHS, st.sampled_from(ALLOCATIONS)),
    st.tuples(st.just("seek"), paths, OFFSETS, st.sampled_from([os.SEEK_DATA, os.SEEK_HOLE])),
    st.tuples(st.just("copy"), paths, OFFSETS, paths, OFFSETS, LENGTHS), st.tuples(st.just("list"), paths),
    st.tuples(st.just("snapshot")), st.tuples(st.just("forget")),
    st.tuples(st.just("hold"), paths), st.tuples(st.just("held")), st.tuples(st.just("add"), LENGTHS),
)  # fmt: skip
deaths = st.one_of(
    st.tuples(st.just("die")), st.tuples(st.just("dies_at"), st.integers(1, 4), st.sampled_from(["before", "after"]))
)


def seed(where: Path) -> None:
    (where / "d" / "e").mkdir(parents=True)
    (where / "f").mkdir()
    (where / "a").write_bytes(b"lower a\n")
    (where / "b").write_bytes(b"0123456789" * 2000)
    (where / "d" / "a").hardlink_to(where / "a")
    (where / "d" / "e" / "b").write_bytes(b"deep\n")


def content(offset: int, length: int) -> bytes:
    return bytes((offset + position) % 251 + 1 for position in range(length))


class Plain:
    """The calls as the system has them, in a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fds: list[int] = []

    def opened(self, path: str, flags: int, work: Callable[[int], Any]) -> Any:
        if not stat.S_ISREG((self.root / path).lstat().st_mode):
            raise OSError(errno.EISDIR, "for both")
        fd = os.open(self.root / path, flags)
        try:
            return work(fd)
        finally:
            os.close(fd)

    def look(self, path: str) -> object:
        found = (self.root / path).lstat()
        is_dir = stat.S_ISDIR(found.st_mode)
        return found.st_mode, found.st_nlink, None if is_dir else found.st_size

    def make(self, path: str) -> object:
        os.close(os.open(self.root / path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        return None

    def write(self, path: str, offset: int, length: int) -> object:
        return self.opened(path, os.O_WRONLY, lambda fd: os.pwrite(fd, content(offset, length), offset))

    def read(self, path: str, offset: int, length: int) -> object:
        return self.opened(path, os.O_RDONLY, lambda fd: os.pread(fd, length, offset))

    def rename(self, old: str, new: str, flags: int) -> object:
        return call("renameat2", -100, os.fsencode(self.root / old), -100, os.fsencode(self.root / new), flags)

    def unlink(self, path: str) -> None:
        os.unlink(self.root / path)

    def link(self, old: str, new: str) -> None:
        os.link(self.root / old, self.root / new)

    def mkdir(self, path: str) -> None:
        os.mkdir(self.root / path, 0o755)

    def rmdir(self, path: str) -> None:
        os.rmdir(self.root / path)

    def truncate(self, path: str, size: int) -> object:
        return self.opened(path, os.O_WRONLY, lambda fd: os.ftruncate(fd, size))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.root / path, mode)

    def allocate(self, path: str, offset: int, length: int, mode: int) -> object:
        return self.opened(path, os.O_WRONLY, lambda fd: call("fallocate64", fd, mode, c_long(offset), c_long(length)))

    def seek(self, path: str, offset: int, whence: int) -> object:
        return self.opened(path, os.O_RDONLY, lambda fd: os.lseek(fd, offset, whence))

    def copy(self, source: str, offset: int, target: str, to: int, length: int) -> object:
        def copy(fd: int) -> Any:
            return self.opened(target, os.O_WRONLY, lambda out: os.copy_file_range(fd, out, length, offset, to))

        return self.opened(source, os.O_RDONLY, copy)

    def hold(self, path: str) -> object:
        """Open a file, and keep it open."""
        self.fds.append(self.opened(path, os.O_RDWR, os.dup))
        return None

    def held(self) -> object:
        """What is in the files that are open, and how many names they have."""
        return [(os.pread(fd, 1 << 18, 0), os.fstat(fd).st_nlink, os.fstat(fd).st_mode) for fd in self.fds]

    def add(self, length: int) -> object:
        """Write at the end of each of them."""
        return [os.pwrite(fd, content(0, length), os.fstat(fd).st_size) for fd in self.fds]

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)

    def list(self, path: str) -> object:
        return sorted((os.fsencode(name), *_shown((self.root / path / name).lstat())) for name in os.listdir(self.root / path))


def _shown(found: os.stat_result) -> tuple[int, int]:
    return found.st_mode, found.st_nlink


class Native:
    """The same by requests, as the kernel makes them of those calls."""

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel
        self.kept: list[tuple[int, int]] = []  # nodes and handles

    def hold(self, path: str) -> object:
        node = self.file(path)
        self.kept.append((node, self.kernel.open(node, os.O_RDWR)))
        return None

    def held(self) -> object:
        return [self._state_of(node, handle) for node, handle in self.kept]

    def _state_of(self, node: int, handle: int) -> object:
        text = self.kernel.get(fuse.READ, node, fuse.READ_IN.pack(handle, 0, 1 << 18, 0, 0, 0, 0))
        fields = fuse.ATTR_OUT.unpack(self.kernel.get(fuse.GETATTR, node, fuse.GETATTR_IN.pack(0, 0, 0)))
        return text, fields[13], fields[12]

    def add(self, length: int) -> object:
        written = []
        for node, handle in self.kept:
            size = len(self._state_of(node, handle)[0])  # type: ignore[index]
            body = fuse.WRITE_IN.pack(handle, size, length, 0, 0, os.O_APPEND, 0) + content(0, length)
            written.append(fuse.SIZE_OUT.unpack(self.kernel.get(fuse.WRITE, node, body))[0])
        return written

    def die(self) -> None:
        self.kernel.die()

    def dies_at(self, request: int, when: str) -> None:
        self.kernel.dies_at(request, when)

    def place(self, path: str) -> tuple[int, bytes]:
        """(node of the directory, name)."""
        parent, _, name = path.rpartition("/")
        node = self.kernel.walk(parent)
        if parent and not stat.S_ISDIR(unpack_mode(self.kernel, node)):
            raise NotADirectoryError(errno.ENOTDIR, parent)
        return node, name.encode()

    def missing(self, path: str) -> tuple[int, bytes]:
        """The kernel itself refuses names that are there."""
        node, name = self.place(path)
        try:
            self.kernel.lookup(node, name)
        except FileNotFoundError:
            return node, name
        raise FileExistsError(errno.EEXIST, path)

    def file(self, path: str) -> int:
        node, name = self.place(path)
        found = self.kernel.lookup(node, name)
        if not stat.S_ISREG(found.mode):
            raise OSError(errno.EISDIR, "for both")
        return found.node

    def look(self, path: str) -> object:
        found = self.kernel.lookup(*self.place(path))
        return found.mode, found.nlink, None if stat.S_ISDIR(found.mode) else found.size

    def make(self, path: str) -> object:
        self.kernel.create(*self.missing(path))
        return None

    def write(self, path: str, offset: int, length: int) -> object:
        return self.kernel.write(self.file(path), content(offset, length), offset)

    def read(self, path: str, offset: int, length: int) -> object:
        return self.kernel.read(self.file(path), length, offset)

    def rename(self, old: str, new: str, flags: int) -> object:
        (old_dir, old_name), (new_dir, new_name) = self.place(old), self.place(new)
        self.kernel.lookup(old_dir, old_name)
        if flags == 2:  # the kernel itself sees these
            self.kernel.lookup(new_dir, new_name)
        elif old.startswith(f"{new}/") and not flags:
            raise OSError(errno.ENOTEMPTY, new)
        body = fuse.RENAME2_IN.pack(new_dir, flags, 0) + old_name + b"\0" + new_name + b"\0"
        self.kernel.get(fuse.RENAME2, old_dir, body)
        return 0

    def unlink(self, path: str) -> object:
        node, name = self.place(path)
        self.kernel.lookup(node, name)
        self.kernel.get(fuse.UNLINK, node, name + b"\0")
        return None

    def link(self, old: str, new: str) -> object:
        found = self.kernel.lookup(*self.place(old))
        node, name = self.missing(new)
        self.kernel.get(fuse.LINK, node, fuse.LINK_IN.pack(found.node) + name + b"\0")
        return None

    def mkdir(self, path: str) -> object:
        node, name = self.missing(path)
        unpack_entry(self.kernel.get(fuse.MKDIR, node, fuse.MKDIR_IN.pack(0o755, 0o022) + name + b"\0"))
        return None

    def rmdir(self, path: str) -> object:
        node, name = self.place(path)
        self.kernel.lookup(node, name)
        self.kernel.get(fuse.RMDIR, node, name + b"\0")
        return None

    def truncate(self, path: str, size: int) -> object:
        body = fuse.SETATTR_IN.pack(fuse.FATTR_SIZE, 0, 0, size, *(0,) * 12)
        self.kernel.get(fuse.SETATTR, self.file(path), body)
        return None

    def chmod(self, path: str, mode: int) -> object:
        body = fuse.SETATTR_IN.pack(fuse.FATTR_MODE, *(0,) * 10, mode, 0, 0, 0, 0)
        self.kernel.get(fuse.SETATTR, self.kernel.lookup(*self.place(path)).node, body)
        return None

    def allocate(self, path: str, offset: int, length: int, mode: int) -> object:
        node = self.file(path)
        handle = self.kernel.open(node, os.O_WRONLY)
        self.kernel.get(fuse.FALLOCATE, node, fuse.FALLOCATE_IN.pack(handle, offset, length, mode, 0))
        self.kernel.release(node, handle)
        return 0

    def seek(self, path: str, offset: int, whence: int) -> object:
        node = self.file(path)
        handle = self.kernel.open(node)
        try:
            return fuse.LSEEK_OUT.unpack(self.kernel.get(fuse.LSEEK, node, fuse.LSEEK_IN.pack(handle, offset, whence, 0)))[0]
        finally:
            self.kernel.release(node, handle)

    def copy(self, source: str, offset: int, target: str, to: int, length: int) -> object:
        node, other = self.file(source), self.file(target)
        handle, out = self.kernel.open(node), self.kernel.open(other, os.O_WRONLY)
        try:
            body = fuse.COPY_FILE_RANGE_IN.pack(handle, offset, other, out, to, length, 0)
            return fuse.SIZE_OUT.unpack(self.kernel.get(fuse.COPY_FILE_RANGE, node, body))[0]
        finally:
            self.kernel.release(node, handle)
            self.kernel.release(other, out)

    def list(self, path: str) -> object:
        node = self.kernel.walk(path)
        if not stat.S_ISDIR(unpack_mode(self.kernel, node)):
            raise NotADirectoryError(errno.ENOTDIR, path)
        found = self.kernel.listing(node, 1024)
        return sorted((name, entry.mode, entry.nlink) for name, entry in found.items())

    def snapshot(self) -> None:
        self.kernel.opened.overlay.snapshots.create("main")

    def forget(self) -> None:
        """The kernel may forget whatever it likes, but no open file and no directory above one; here: all that it may."""
        for number, node in sorted(self.kernel.connection.nodes._nodes.items(), reverse=True):
            if number != ROOT and not (self.kept and isinstance(node, DirNode)):
                held = any(number == kept for kept, _ in self.kept)
                self.kernel.forget(number, node.lookups - held)


def unpack_mode(kernel: FakeKernel, node: int) -> int:
    mode: int = fuse.ATTR_OUT.unpack(kernel.get(fuse.GETATTR, node, fuse.GETATTR_IN.pack(0, 0, 0)))[12]
    return mode


def outcome(work: Callable[..., object], *arguments: object) -> object:
    try:
        return work(*arguments)
    except OSError as exc:
        return errno.errorcode.get(exc.errno or 0)


def run(kernel: FakeKernel, plain: Plain, sequence: list[tuple[Any, ...]]) -> None:
    native = Native(kernel)
    for name, *arguments in sequence:
        if not hasattr(plain, name):
            getattr(native, name)(*arguments)
            continue
        wanted, found = (outcome(getattr(side, name), *arguments) for side in (plain, native))
        assert found == wanted, (name, arguments)
    assert native.held() == plain.held()
    for path in PATHS:
        for name, *more in (("look",), ("read", 0, 1 << 18), ("list",)):
            wanted, found = (outcome(getattr(side, name), path, *more) for side in (plain, native))
            assert found == wanted, (name, path)


def check(io: IoMode, sequence: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as name:
        base = Path(name)
        for place in ("lower", "plain"):
            seed(base / place)
        kernel, plain = FakeKernel(base, io).begin(), Plain(base / "plain")
        try:
            run(kernel, plain, sequence)
            assert kernel.opened.overlay.fsck() == []
            assert (base / "lower" / "a").read_bytes() == b"lower a\n"
        finally:
            kernel.close()
            plain.close()


@pytest.mark.sample(1)
@pytest.mark.parametrize("io", ["cached", "zero-message"])
@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(sequence=st.lists(steps, max_size=25))
def test_requests_do_what_the_calls_do_in_a_plain_directory(io: IoMode, sequence: list[tuple[Any, ...]]) -> None:
    check(io, sequence)


@pytest.mark.sample(1)
@pytest.mark.parametrize("io", ["cached", "zero-message"])
@settings(max_examples=LIVES, deadline=None, derandomize=True, database=None)
@given(pairs=st.lists(st.tuples(deaths, steps), min_size=10, max_size=20))
def test_they_do_so_although_the_daemon_is_killed_again_and_again(io: IoMode, pairs: list[tuple[Any, ...]]) -> None:
    check(io, [step for pair in pairs for step in pair])


@pytest.mark.parametrize(
    "sequence",
    [
        [("unlink", "a"), ("hold", "d/a"), ("die",)],  # names of one file of the lower
        [("look", "d/a"), ("dies_at", 4, "before"), ("forget",), ("read", "a", 0, 1)],
        [("list", "d"), ("hold", "a"), ("unlink", "d/a"), ("dies_at", 4, "after"), ("unlink", "f")],
        [("hold", "d/a"), ("dies_at", 1, "before"), ("held",), ("dies_at", 3, "after"), ("add", 6000), ("forget",)],
        [("dies_at", 2, "after"), ("mkdir", "new"), ("hold", "b"), ("dies_at", 1, "after"), ("rename", "d", "f/new", 0)],
    ],
)
@pytest.mark.parametrize("io", ["cached", "zero-message"])
def test_what_such_histories_have_shown(io: IoMode, sequence: list[tuple[Any, ...]]) -> None:
    check(io, sequence)


@pytest.mark.parametrize("io", ["cached", "zero-message"])
def test_content_of_a_removed_file_outlives_the_daemon_while_it_is_open(io: IoMode) -> None:
    check(io, [("write", "a", 0, 4096), ("hold", "a"), ("unlink", "a"), ("unlink", "d/a"), ("die",), ("add", 7), ("die",)])


@pytest.mark.parametrize("opcode", [fuse.READDIR, fuse.READDIRPLUS])
@pytest.mark.parametrize("io", ["cached", "zero-message"])
def test_listing_that_a_kill_cuts_short_counts_no_look_up_twice(tmp_path: Path, io: IoMode, opcode: int) -> None:
    kernel = FakeKernel(tmp_path, io).begin()
    try:
        nodes = [kernel.create(ROOT, b"name%d" % number) for number in range(20)]
        handle = fuse.OPEN_OUT.unpack(kernel.get(fuse.OPENDIR, ROOT, fuse.OPEN_IN.pack(0, 0)))[0] if kernel.opens else 0
        for _ in range(3):
            kernel.dies_at(1, "after")
            body = kernel.get(opcode, ROOT, fuse.READ_IN.pack(handle, 0, 700, 0, 0, 0, 0))
        plus = opcode == fuse.READDIRPLUS
        listed = [entry.node for entry, _, _ in plus_entries(body)] if plus else []
        assert not plus or 0 < len(listed) < len(nodes)
        for node in nodes:
            found = kernel.connection.nodes[node]
            assert isinstance(found, FileNode)
            assert found.lookups == 1 + 3 * (node in listed)
    finally:
        kernel.close()
