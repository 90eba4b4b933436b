"""What goes beyond plain reading and writing, in the main mount and in runs: ioctl, birth times, O_TMPFILE, holes, copies."""

import errno
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentfsd.fuse.native.control_ioctl import CONTROL
from tests.mounted import AGENTFSD, Mounted, needs_fuse, needs_namespaces
from tests.system.stepper import COMMAND, PIPES, Stepper

PLACES = ["main", "pid", "zero-message", "passthrough", "cached"]
ROOM = 16384  # of the request's and the reply's buffer
PAGE = 4096
KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE = 1, 2, 8, 16, 32


@pytest.fixture(scope="module")
def one_mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    with pytest.MonkeyPatch.context() as environment:
        base = tmp_path_factory.mktemp("ioctl")
        for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
            environment.setenv(name, str(base / name))
        mounted = Mounted(base)
        mounted.mount()
        mounted.cli("branch create", "b")
        mounted.cli("branch create", "other")
        yield mounted
        try:
            assert mounted.fsck() == []
            assert "Error" not in Path(mounted.state, "daemon.log").read_text()
        finally:
            mounted.end()


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def process(one_mount: Mounted, place: str) -> Iterator[Stepper]:
    """In main, unbound, or in the branch b, bound."""
    arguments: list[str] = []
    if place != "main":
        if place != "pid":
            needs_namespaces()
        options = ["--no-namespace"] if place == "pid" else ["--io", place]
        arguments = [*AGENTFSD, "run", "-m", str(one_mount.path), "-b", "b", *options, "--"]
    base = one_mount.path.parent
    env = os.environ | {name: str(base / name) for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR")}
    started = subprocess.Popen([*arguments, *COMMAND], text=True, cwd=one_mount.path, env=env, **PIPES)
    one_mount.started.append(started)
    yield Stepper(started)
    assert started.stdin is not None
    started.stdin.close()
    started.wait(20)


_numbers = itertools.count(1)


class Here:
    """The process, standing in a directory of its own for each test: ``lower`` and ``tree`` are that directory outside."""

    def __init__(self, mounted: Mounted, place: str, process: Stepper) -> None:
        name = f"d{next(_numbers)}"
        self.lower = mounted.lower / name
        (self.lower / "sub").mkdir(parents=True)
        (self.lower / "file").write_text("lower\n")
        (self.lower / "sub" / "inner").write_text("inner\n")
        self.tree = (mounted.path if place == "main" else mounted.subtree("b")) / name
        self.call, self.fails, self.pid = process, process.fails, process.pid
        self.root = str(mounted.path)
        process("chdir", str(mounted.path / name))

    def __call__(self, name: str, *arguments: object) -> Any:
        return self.call(name, *arguments)


@pytest.fixture
def here(one_mount: Mounted, place: str, process: Stepper) -> Here:
    return Here(one_mount, place, process)


# -- the control request


def framed(request: bytes, length: int | None = None) -> str:
    return ((len(request) if length is None else length).to_bytes(4, "little") + request).decode("latin-1")


def control(here: Here, **fields: object) -> Any:
    _, found = here("ioctl", here.root, CONTROL, framed(json.dumps(fields).encode()), ROOM)
    raw = found.encode("latin-1")
    return json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])


def test_control_request_by_ioctl(here: Here, place: str) -> None:
    assert control(here, op="hello")["branch"] == ("main" if place == "main" else "b")
    made = control(here, op="snapshot.create", name=f"s-{place}")
    assert made["snapshot"]["branch"] == ("main" if place == "main" else "b")
    assert control(here, op="no-such-thing")["op"] == "error"
    refused = [control(here, op="branch.show", ref="other"), control(here, op="branch.create", name="new")]
    if place == "main":
        assert [found["op"] == "error" for found in refused] == [False] * 2
    else:
        refused.append(control(here, op="branch.bind", pid=here.pid, branch="other"))
        assert {found["code"] for found in refused} == {"outside-branch"}
        assert control(here, op="restore", ref=f"s-{place}")["op"] != "error"


def test_control_request_of_a_wrong_form(here: Here) -> None:
    request = b'{"op":"hello"}'
    for sent in (framed(request, 0), framed(request, 16377), framed(request, 2**32 - 1), ""):
        assert here.fails("ioctl", here.root, CONTROL, sent, ROOM) == errno.EINVAL
    assert here.fails("ioctl", "sub", CONTROL, framed(request), ROOM) == errno.ENOTTY
    assert here.fails("ioctl", "file", CONTROL, framed(request), ROOM) == errno.ENOTTY
    assert here.fails("ioctl", here.root, CONTROL + 1, framed(request), ROOM) == errno.ENOTTY
    assert control(here, op="x" * 16000)["op"] == "error"


def test_control_reply_that_does_not_fit(here: Here, place: str) -> None:
    if place != "main":
        pytest.skip("a bound process gets no list that long")
    for number in range(80):
        assert control(here, op="branch.create", name=f"{number}" + "x" * 110)["op"] != "error"
    assert here.fails("ioctl", here.root, CONTROL, framed(b'{"op":"branch.list"}'), ROOM) == errno.EMSGSIZE
    assert control(here, op="hello")["branch"] == "main"


# -- what else programs ask of files


def test_flags_and_birth_times(here: Here) -> None:
    tree = here.tree
    if shutil.which("lsattr"):
        shown = subprocess.run(
            ["lsattr", "-d", tree / "file", tree / "sub"], capture_output=True, text=True, timeout=20, check=True
        )
        assert [line.split()[0].strip("-") for line in shown.stdout.splitlines()] == ["", ""]
    here("write", "born", "x")
    birth = int(subprocess.run(["stat", "-c", "%W", tree / "born"], capture_output=True, timeout=20, check=True).stdout)
    assert abs(birth - (tree / "born").stat().st_mtime) < 5
    here("utime", "born", 5_000_000_000)
    assert int(subprocess.run(["stat", "-c", "%W", tree / "born"], capture_output=True, timeout=20, check=True).stdout) == birth


def test_extended_attribute_with_a_slash_in_its_name(here: Here) -> None:
    path = here.tree / "file"
    os.setxattr(path, "user.a/b", b"slash")
    assert os.getxattr(path, "user.a/b") == b"slash"
    os.removexattr(path, "user.a/b")
    assert os.listxattr(path) == []


@pytest.mark.parametrize("second", [99_999_999_999, -99_999_999_999, 4_000_000_000])
def test_times_far_away_are_kept_or_clamped_as_ext4_has_it(here: Here, second: int) -> None:
    here("write", "own", "own")
    for path in ("file", "own", "sub"):
        here("utime", path, second * 10**9)
        assert (here("stat", path)[4] > 2**31 * 10**9) == (second > 0)
    here("append", "file", "more")
    assert here("read", "file") == "lower\nmore"


def test_nameless_file_gets_a_name(here: Here) -> None:
    here("open", "t", "sub", os.O_TMPFILE | os.O_RDWR)
    here("pwrite", "t", "nameless", 0)
    assert here("fstat", "t")[1:] == [0, 8]
    assert here("names", "sub") == ["inner"]
    here("give_name", "t", "sub/named")
    assert here("read", "sub/named") == "nameless"
    here("pwrite", "t", "NAME", 0)
    here("close", "t")
    assert (here.tree / "sub" / "named").read_text() == "NAMEless"
    here("open", "t", "sub", os.O_TMPFILE | os.O_RDWR | os.O_EXCL)
    here("pwrite", "t", "x" * 100_000, 0)
    assert here("pread", "t", 3, 99_998) == "xx"
    here("close", "t")


@pytest.mark.parametrize("name", ["big", "own"])
def test_allocating_punching_and_zeroing(here: Here, name: str) -> None:
    (here.lower / "big").write_text("a" * 8 * PAGE)
    here("write", "own", "a" * 8 * PAGE)
    here("open", "f", name, os.O_RDWR)
    assert here("pread", "f", 3, 0) == "aaa"
    here("map", "f", False)
    assert here("peek", "f", 3, 2 * PAGE) == "aaa"
    here("fallocate", "f", PUNCH_HOLE | KEEP_SIZE, 2 * PAGE, 2 * PAGE)
    assert here("pread", "f", 2, 2 * PAGE - 1) == here("peek", "f", 2, 2 * PAGE - 1) == "a\0"
    assert here("seek", "f", 0, os.SEEK_HOLE) in (2 * PAGE, 3 * PAGE)  # on tmpfs the page that was looked at is there again
    assert here("seek", "f", 3 * PAGE, os.SEEK_DATA) == 4 * PAGE
    here("fallocate", "f", ZERO_RANGE, 7 * PAGE, 3 * PAGE)
    assert here("fstat", "f")[2] == 10 * PAGE
    assert here("pread", "f", 2, 7 * PAGE - 1) == "a\0"
    here("fallocate", "f", KEEP_SIZE, 10 * PAGE, 4 * PAGE)
    assert here("fstat", "f")[2] == 10 * PAGE
    here("fallocate", "f", 0, 0, 12 * PAGE)
    assert here("fstat", "f")[2] == here("stat", name)[2] == 12 * PAGE
    assert here.fails("fallocate", "f", COLLAPSE_RANGE, 0, PAGE) == errno.EOPNOTSUPP
    assert here.fails("fallocate", "f", INSERT_RANGE, 0, PAGE) == errno.EOPNOTSUPP
    for offset in (12 * PAGE, 1 << 40):
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            assert here.fails("seek", "f", offset, whence) == errno.ENXIO
    wanted = "a" * 2 * PAGE + "\0" * 2 * PAGE + "a" * 3 * PAGE + "\0" * 5 * PAGE
    assert here("read", name) == (here.tree / name).read_text() == wanted
    assert (here.lower / "big").read_text() == "a" * 8 * PAGE


def test_copying_ranges_between_files(here: Here) -> None:
    (here.lower / "source").write_text("".join(f"{number:7}\n" for number in range(4000)))
    text = (here.lower / "source").read_text()
    here("open", "source", "source", os.O_RDONLY)
    here("open", "new", "new", os.O_RDWR | os.O_CREAT)
    assert here("copy_range", "source", 0, "new", 0, len(text)) == len(text)
    assert here("pread", "new", 1 << 20, 0) == here("read", "new") == text
    here("open", "file", "file", os.O_RDWR)
    assert here("pread", "file", 9, 0) == "lower\n"
    assert here("copy_range", "source", 8, "file", 3, 16) == 16
    assert here("pread", "file", 99, 0) == here("read", "file") == "low" + text[8:24]
    assert here("stat", "file")[2] == 19
    here("pwrite", "new", "written", 0)
    assert here("copy_range", "new", 0, "file", 0, 7) == 7
    assert here("read", "file")[:7] == "written"
    assert here("copy_range", "new", 0, "new", 10_000, 100) == 100
    assert here("pread", "new", 7, 10_000) == "written"
    assert here("copy_range", "source", 1 << 30, "new", 0, 10) == 0
    assert here.fails("copy_range", "new", 0, "new", 10, 100) == errno.EINVAL
    assert here.fails("copy_range", "new", 0, "source", 0, 10) == errno.EBADF
    assert (here.tree / "file").read_text() == here("read", "file")
    assert (here.lower / "source").read_text() == text
