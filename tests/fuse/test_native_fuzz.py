"""Malformed, truncated and absurd requests: each gets its one answer or none, nothing is logged, and the next works as ever."""

import errno
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentfsd.core import data
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.request_table import DECODERS
from tests.compare import describe
from tests.fuse.fake_kernel import ROOT, FakeKernel, plus_entries

SILENT = (fuse.FORGET, fuse.BATCH_FORGET, fuse.INTERRUPT)
BODY_BYTES = {
    **dict.fromkeys((fuse.LOOKUP, fuse.MKNOD, fuse.MKDIR, fuse.SYMLINK, fuse.LINK), 128),
    **dict.fromkeys((fuse.CREATE, fuse.TMPFILE), 144), **dict.fromkeys((fuse.OPEN, fuse.OPENDIR), 16),
    **dict.fromkeys((fuse.GETATTR, fuse.SETATTR), 104), fuse.STATX: 288, fuse.STATFS: 80,
    **dict.fromkeys((fuse.WRITE, fuse.COPY_FILE_RANGE, fuse.COPY_FILE_RANGE_64, fuse.LSEEK), 8),
    **dict.fromkeys((fuse.UNLINK, fuse.RMDIR, fuse.RENAME, fuse.RENAME2, fuse.RELEASE, fuse.RELEASEDIR, fuse.FSYNC), 0),
    **dict.fromkeys((fuse.FSYNCDIR, fuse.SETXATTR, fuse.REMOVEXATTR, fuse.FALLOCATE, fuse.FLUSH, fuse.SETLK, fuse.SETLKW), 0),
    fuse.GETLK: 24,
}  # fmt: skip
SIZED = (fuse.READ, fuse.READDIR, fuse.READDIRPLUS)
BAD_NAMES = (b"", b".", b"..", b"a/b", b"/", b"x" * 256, b"x" * 300)
CANARY = b"what the snapshot holds\n"
QUICK = settings(
    max_examples=150, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


@pytest.fixture(params=["cached", "zero-message"])
def kernel(tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[FakeKernel]:
    """Its first nodes are known: 2 to 7 are a directory, a file, a large one, a symlink, a fifo, and a file of the upper."""
    caplog.set_level(logging.WARNING)
    lower = tmp_path / "lower"
    (lower / "dir" / "inner").mkdir(parents=True)
    (lower / "file").write_bytes(b"lower\n" * 1000)
    (lower / "link").symlink_to("file")
    os.mkfifo(lower / "fifo")
    with (lower / "large").open("wb") as large:
        large.truncate(6 << 20)
    made = FakeKernel(tmp_path, request.param)
    canary = made.opened.write("canary", CANARY)
    made.opened.overlay.snapshots.create("main", "kept")
    assert canary
    made.begin()
    before = describe(lower, times=True)
    assert [made.walk(name) for name in ("dir", "file", "large", "link", "fifo")] == [2, 3, 4, 5, 6]
    assert made.create(ROOT, b"own") == 7
    made.write(7, b"upper\n", 0)
    made.get(fuse.SETXATTR, 7, fuse.SETXATTR_IN.pack(5, 0, 0, 0) + b"user.name\0value")
    made.open(3), made.open(7, os.O_RDWR)  # handles that numbers may hit upon
    yield made
    still_sound(made)
    assert describe(lower, times=True) == before
    made.close()


def still_sound(kernel: FakeKernel) -> None:
    """A snapshot is as it was, and new things can be made."""
    tree = kernel.opened.tree("kept")
    inode = tree.walk(b"canary")
    data.open_(inode, os.O_RDONLY)
    assert data.read(inode, 100, 0) == CANARY
    data.release(inode)
    assert kernel.opened.overlay.fsck() == []
    node = kernel.create(ROOT, b"a fresh name")
    assert kernel.write(node, b"abc", 5) == 3
    assert kernel.read(node) == bytes(5) + b"abc"
    assert kernel.lookup(ROOT, b"a fresh name").size == 8
    kernel.get(fuse.UNLINK, ROOT, b"a fresh name\0")
    with pytest.raises(FileNotFoundError):
        kernel.lookup(ROOT, b"a fresh name")
    assert not {name for name in kernel.listing(ROOT) if name in BAD_NAMES or b"/" in name}


def check(kernel: FakeKernel, caplog: pytest.LogCaptureFixture, opcode: int, unique: int, body: bytes) -> None:
    """The answer to a request with that body, as the kernel would accept it."""
    answer = kernel.reply_to(unique)
    assert caplog.records == [], caplog.text
    assert not kernel.session.ended
    if opcode in SILENT:
        assert answer is None
        return
    if answer is None:
        assert opcode == fuse.SETLKW
        assert unique in kernel.session.requests.waiting
        return
    if answer.code:
        return
    found = answer.body
    if opcode in BODY_BYTES:
        assert len(found) == BODY_BYTES[opcode]
    elif opcode in SIZED:
        assert len(found) <= fuse.READ_IN.unpack_from(body)[2]
    elif opcode in (fuse.GETXATTR, fuse.LISTXATTR):
        size = fuse.GETXATTR_IN.unpack_from(body)[0]
        assert len(found) <= size if size else len(found) == 8
    elif opcode == fuse.IOCTL:
        assert fuse.IOCTL_OUT.size <= len(found) <= fuse.IOCTL_OUT.size + fuse.IOCTL_IN.unpack_from(body)[5]
    elif opcode == fuse.READLINK:
        assert len(found) < 4096
    else:
        raise AssertionError(f"request {opcode} succeeded")
    if opcode == fuse.READDIRPLUS:
        plus_entries(found)


def send(
    kernel: FakeKernel, caplog: pytest.LogCaptureFixture, opcode: int, node: int, body: bytes,
    uid: int | None = None, pid: int | None = None, off_by: int = 0,
) -> None:  # fmt: skip
    unique, message = kernel.message(opcode, node, body, uid, pid, off_by)
    kernel.raw(message)
    check(kernel, caplog, opcode, unique, body)


# -- what numbers and names are made of

numbers64 = st.one_of(
    st.integers(0, 9), st.sampled_from([4095, 4096, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
    st.integers(0, (1 << 64) - 1),
)  # fmt: skip
numbers32 = st.one_of(
    st.integers(0, 9), st.sampled_from([24, 128, 152, 4095, 4096, 1 << 20, 1 << 31, (1 << 32) - 1]), st.integers(0, (1 << 32) - 1)
)  # fmt: skip
nodes = st.one_of(st.integers(0, 12), numbers64)
names = st.one_of(
    st.sampled_from([b"dir", b"file", b"large", b"link", b"fifo", b"own", b"new", b".agentfs", b"status", b"user.name",
    b"user.a/b"]),
    st.sampled_from(BAD_NAMES), st.binary(max_size=12),
)  # fmt: skip
LAYOUTS: dict[int, str] = {
    fuse.LOOKUP: "n", fuse.FORGET: "Q", fuse.GETATTR: "IIQ", fuse.SETATTR: "IIQQQQQQIIIIIIII", fuse.READLINK: "",
    fuse.SYMLINK: "nn",
    fuse.MKNOD: "IIIIn", fuse.MKDIR: "IIn", fuse.UNLINK: "n", fuse.RMDIR: "n", fuse.RENAME: "Nnn", fuse.LINK: "Nn",
    fuse.OPEN: "II", fuse.READ: "QQIIQII", fuse.WRITE: "QQIIQIIn", fuse.STATFS: "", fuse.RELEASE: "QIIQ", fuse.FSYNC: "QII",
    fuse.SETXATTR: "IIIInn", fuse.GETXATTR: "IIn", fuse.LISTXATTR: "II", fuse.REMOVEXATTR: "n", fuse.FLUSH: "QIIQ",
    fuse.OPENDIR: "II", fuse.READDIR: "QQIIQII", fuse.RELEASEDIR: "QIIQ", fuse.FSYNCDIR: "QII", fuse.ACCESS: "II",
    fuse.CREATE: "IIIIn", fuse.INTERRUPT: "Q", fuse.IOCTL: "QIIQIIn", fuse.BATCH_FORGET: "IIQQQQ", fuse.FALLOCATE: "QQQII",
    fuse.READDIRPLUS: "QQIIQII", fuse.RENAME2: "NIInn", fuse.LSEEK: "QQII", fuse.COPY_FILE_RANGE: "QQNQQQQ",
    fuse.GETLK: "QQQQIIII", fuse.SETLK: "QQQQIIII", fuse.SETLKW: "QQQQIIII",
    fuse.TMPFILE: "IIIIn", fuse.STATX: "IIQII", fuse.COPY_FILE_RANGE_64: "QQNQQQQ",
}  # fmt: skip


def test_every_request_that_is_answered_is_tried() -> None:
    assert set(LAYOUTS) == set(DECODERS)


def packed(draw: st.DrawFn, layout: str) -> bytes:
    parts = []
    for letter in layout:
        if letter == "n":
            parts.append(draw(names) + b"\0")
        elif letter == "I":
            parts.append(draw(numbers32).to_bytes(4, "little"))
        else:
            parts.append(draw(nodes if letter == "N" else numbers64).to_bytes(8, "little"))
    return b"".join(parts)


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, int, bytes]:
    """(opcode, node, body) of the right form, with anything in it."""
    opcode = draw(st.sampled_from(sorted(LAYOUTS)))
    return opcode, draw(nodes), packed(draw, LAYOUTS[opcode])


opcodes = st.one_of(st.integers(0, 60), st.sampled_from([4096, 1 << 31, (1 << 32) - 1])).filter(lambda code: code != fuse.INIT)
uids = st.sampled_from([None, 0, 65534, (1 << 32) - 1])
pids = st.sampled_from([None, 0, 1, 4_194_305, (1 << 32) - 1])


@QUICK
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=8))
def test_random_bytes(kernel: FakeKernel, caplog: pytest.LogCaptureFixture, messages: list[bytes]) -> None:
    for message in messages:
        kernel.raw(message)
        found = kernel.replies()
        assert len(found) <= (len(message) >= fuse.IN_HEADER.size)
        for reply in found:
            assert reply[8:16] == message[8:16]
    assert caplog.records == []


@QUICK
@given(st.lists(st.tuples(opcodes, nodes, st.binary(max_size=150), uids, pids), min_size=1, max_size=10))
def test_right_headers_with_random_bodies(
    kernel: FakeKernel, caplog: pytest.LogCaptureFixture, asked: list[tuple[int, int, bytes, int | None, int | None]]
) -> None:
    for opcode, node, body, uid, pid in asked:
        send(kernel, caplog, opcode, node, body, uid, pid)


@pytest.mark.sample(1)
@settings(QUICK, max_examples=800)
@given(st.lists(st.tuples(requests(), uids, pids), min_size=1, max_size=10))
def test_right_forms_with_absurd_values(
    kernel: FakeKernel, caplog: pytest.LogCaptureFixture, asked: list[tuple[tuple[int, int, bytes], int | None, int | None]]
) -> None:
    for (opcode, node, body), uid, pid in asked:
        send(kernel, caplog, opcode, node, body, uid, pid)


@settings(QUICK, max_examples=100)
@given(requests(), st.sampled_from([-80, -40, -1, 1, 1 << 20]))
def test_wrong_length_in_the_header(
    kernel: FakeKernel, caplog: pytest.LogCaptureFixture, asked: tuple[int, int, bytes], off_by: int
) -> None:
    opcode, node, body = asked
    unique, message = kernel.message(opcode, node, body, off_by=off_by)
    kernel.raw(message)
    answer = kernel.reply_to(unique)
    assert answer is None if opcode in SILENT else answer is not None and answer.code
    assert caplog.records == []


VALID: dict[int, tuple[int, bytes]] = {
    fuse.LOOKUP: (ROOT, b"file\0"), fuse.SETATTR: (7, fuse.SETATTR_IN.pack(fuse.FATTR_MODE, *(0,) * 10, 0o600, 0, 0, 0, 0)),
    fuse.SYMLINK: (ROOT, b"to\0file\0"), fuse.MKNOD: (ROOT, fuse.MKNOD_IN.pack(0o100644, 0, 0, 0) + b"node\0"),
    fuse.MKDIR: (ROOT, fuse.MKDIR_IN.pack(0o755, 0) + b"made\0"), fuse.UNLINK: (ROOT, b"own\0"), fuse.RMDIR: (2, b"inner\0"),
    fuse.RENAME: (ROOT, fuse.RENAME_IN.pack(2) + b"own\0moved\0"), fuse.RENAME2: (ROOT,
    fuse.RENAME2_IN.pack(2, 0, 0) + b"own\0moved\0"),
    fuse.LINK: (ROOT, fuse.LINK_IN.pack(7) + b"second\0"), fuse.OPEN: (3, fuse.OPEN_IN.pack(os.O_RDONLY, 0)),
    fuse.READ: (7, fuse.READ_IN.pack(2, 0, 4096, 0, 0, 0, 0)), fuse.WRITE: (7,
    fuse.WRITE_IN.pack(2, 0, 9, 0, 0, 0, 0) + b"something"),
    fuse.RELEASE: (7, fuse.RELEASE_IN.pack(9, 0, 0, 0)), fuse.FSYNC: (7, fuse.FSYNC_IN.pack(2, 0, 0)),
    fuse.SETXATTR: (7, fuse.SETXATTR_IN.pack(5, 0, 0, 0) + b"user.name\0value"),
    fuse.GETXATTR: (7, fuse.GETXATTR_IN.pack(64, 0) + b"user.name\0"), fuse.LISTXATTR: (7, fuse.GETXATTR_IN.pack(64, 0)),
    fuse.REMOVEXATTR: (7, b"user.name\0"), fuse.OPENDIR: (2, fuse.OPEN_IN.pack(0, 0)), fuse.FORGET: (9, fuse.FORGET_IN.pack(1)),
    fuse.READDIR: (ROOT, fuse.READ_IN.pack(3, 0, 4096, 0, 0, 0, 0)), fuse.READDIRPLUS: (ROOT,
    fuse.READ_IN.pack(3, 0, 4096, 0, 0, 0, 0)),
    fuse.CREATE: (ROOT, fuse.CREATE_IN.pack(os.O_CREAT | os.O_RDWR, 0o100644, 0, 0) + b"made too\0"),
    fuse.TMPFILE: (ROOT, fuse.CREATE_IN.pack(os.O_RDWR, 0o100644, 0, 0) + b"#1\0"),
    fuse.IOCTL: (ROOT, fuse.IOCTL_IN.pack(0, 0, 3 << 30 | 16380 << 16 | 0xAF01, 0, 20, 16380) + b'\x0f\0\0\0{"op":"status"}\n'),
    fuse.BATCH_FORGET: (0, fuse.BATCH_FORGET_IN.pack(2, 0) + fuse.FORGET_ONE.pack(90, 1) * 2),
    fuse.FALLOCATE: (7, fuse.FALLOCATE_IN.pack(2, 0, 4096, 1, 0)), fuse.LSEEK: (7, fuse.LSEEK_IN.pack(2, 0, os.SEEK_DATA, 0)),
    fuse.COPY_FILE_RANGE: (3, fuse.COPY_FILE_RANGE_IN.pack(1, 0, 7, 2, 0, 100, 0)), fuse.INTERRUPT: (0, bytes(8)),
    fuse.GETLK: (7, fuse.LK_IN.pack(2, 1, 0, 9, 1, 1, 0, 0)), fuse.SETLK: (7, fuse.LK_IN.pack(2, 1, 0, 9, 1, 1, 0, 0)),
    fuse.SETLKW: (7, fuse.LK_IN.pack(2, 1, 0, 9, 1, 1, 1, 0)), fuse.FLUSH: (7, fuse.FLUSH_IN.pack(2, 0, 0, 1)),
}  # fmt: skip


@pytest.mark.sample(20)
@pytest.mark.parametrize("opcode", sorted(VALID))
def test_valid_requests_cut_at_every_length(kernel: FakeKernel, caplog: pytest.LogCaptureFixture, opcode: int) -> None:
    """The header says the truth about how much there is."""
    node, body = VALID[opcode]
    for length in range(len(body) + 1):
        send(kernel, caplog, opcode, node, body[:length])


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_no_directory_can_hold(kernel: FakeKernel, caplog: pytest.LogCaptureFixture, name: bytes) -> None:
    ending, file = name + b"\0", fuse.MKNOD_IN.pack(stat.S_IFREG | 0o644, 0, 0, 0)
    for opcode, body in (
        (fuse.LOOKUP, ending), (fuse.MKNOD, file + ending), (fuse.MKDIR, fuse.MKDIR_IN.pack(0o755, 0) + ending),
        (fuse.SYMLINK, ending + b"file\0"), (fuse.LINK, fuse.LINK_IN.pack(7) + ending), (fuse.UNLINK, ending),
        (fuse.RMDIR, ending),
        (fuse.RENAME2, fuse.RENAME2_IN.pack(ROOT, 0, 0) + b"own\0" + ending),
        (fuse.CREATE, fuse.CREATE_IN.pack(66, 0o100644, 0, 0) + ending),
    ):  # fmt: skip
        answer = kernel.ask(opcode, 2, body)
        assert answer.code in (errno.EINVAL, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOSYS), (opcode, answer)
    assert caplog.records == []
    assert sorted(kernel.listing(2)) == [b"inner"]
