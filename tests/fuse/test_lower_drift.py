"""The lower changes under open handles and standing processes: what is read is the lower's or an error, never a hang."""

import errno
import mmap
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import Mounted

pytestmark = pytest.mark.sample(1)

SETTLED_S = 1.2  # what follows the lower is cached for a second
GONE = (errno.ENOENT, errno.ESTALE)


@pytest.fixture(params=["caller", "subtree"])
def root(mounted: Mounted, request: pytest.FixtureRequest) -> Path:
    """The tree in either view, main or a branch of its own."""
    if request.param == "caller":
        return mounted.path
    mounted.cli("branch create", "one")
    return mounted.subtree("one")


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def no_complaint(mounted: Mounted) -> None:
    """The daemon lives, is sound and has logged no traceback."""
    assert mounted.record().alive()
    assert mounted.fsck() == []
    assert "Error" not in Path(mounted.state, "daemon.log").read_text()


def test_content_that_changes_shows_to_whoever_has_it_open(mounted: Mounted, root: Path) -> None:
    with (root / "file").open("rb", buffering=0) as reader:
        assert reader.read() == b"lower\n"
        (mounted.lower / "file").write_bytes(b"LOWER, longer\n")
        eventually(lambda: os.fstat(reader.fileno()).st_size == 14 and os.pread(reader.fileno(), 100, 0) == b"LOWER, longer\n")
    no_complaint(mounted)


def test_file_that_shrinks_gives_what_is_left(mounted: Mounted, root: Path) -> None:
    (mounted.lower / "long").write_bytes(b"x" * 100_000)
    with (root / "long").open("rb", buffering=0) as reader, mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[99_999] == ord("x")
        os.truncate(mounted.lower / "long", 10)
        eventually(lambda: os.fstat(reader.fileno()).st_size == 10)
        assert os.pread(reader.fileno(), 100, 0) == b"x" * 10
        assert os.pread(reader.fileno(), 100, 50_000) == b""
        assert mapped[:10] == b"x" * 10
    no_complaint(mounted)


def test_writing_copies_what_is_there_now(mounted: Mounted, root: Path) -> None:
    with (root / "file").open("r+b", buffering=0) as writer:
        assert writer.read() == b"lower\n"
        (mounted.lower / "file").write_bytes(b"abc")
        time.sleep(SETTLED_S)
        os.pwrite(writer.fileno(), b"Z", 1)
        assert os.pread(writer.fileno(), 10, 0) == b"aZc"
    assert (root / "file").read_bytes() == b"aZc"
    assert (mounted.lower / "file").read_bytes() == b"abc"
    no_complaint(mounted)


@pytest.mark.sample(3)
@pytest.mark.parametrize("act", ["unlink", "replace", "directory"])
def test_file_that_goes_stays_readable_where_it_is_open(mounted: Mounted, root: Path, act: str) -> None:
    reader = os.open(root / "file", os.O_RDONLY)
    lower = mounted.lower / "file"
    if act == "replace":
        (mounted.lower / "other").write_bytes(b"other\n")
        (mounted.lower / "other").rename(lower)
    else:
        lower.unlink()
        if act == "directory":
            lower.mkdir()
            (lower / "inside").touch()
    time.sleep(SETTLED_S)
    assert os.pread(reader, 10, 0) == b"lower\n"
    assert os.fstat(reader).st_size == 6
    os.close(reader)
    if act == "unlink":
        assert not (root / "file").exists()
    elif act == "replace":
        assert (root / "file").read_bytes() == b"other\n"
    else:
        assert [path.name for path in (root / "file").iterdir()] == ["inside"]
    no_complaint(mounted)


@pytest.mark.sample(2)
@pytest.mark.parametrize("act", ["unlink", "directory"])
def test_write_to_a_file_that_has_gone_is_a_stale_handle_or_kept(mounted: Mounted, root: Path, act: str) -> None:
    writer = os.open(root / "file", os.O_RDWR)
    (mounted.lower / "file").unlink()
    if act == "directory":
        (mounted.lower / "file").mkdir()
    time.sleep(SETTLED_S)
    try:
        os.pwrite(writer, b"LOW", 0)
        assert os.pread(writer, 10, 0) == b"LOWer\n"
    except OSError as exc:
        assert exc.errno == errno.ESTALE
    os.close(writer)
    no_complaint(mounted)


def test_directory_that_goes_under_a_listing_and_a_process(mounted: Mounted, root: Path) -> None:
    directory = os.open(root / "sub", os.O_RDONLY | os.O_DIRECTORY)
    assert sorted(os.listdir(directory)) == ["deep", "inner"]
    shutil.rmtree(mounted.lower / "sub")
    (mounted.lower / "sub").write_bytes(b"a file now")
    time.sleep(SETTLED_S)
    try:
        assert os.listdir(directory) == []
    except OSError as exc:
        assert exc.errno in (*GONE, errno.ENOTDIR)
    with pytest.raises(OSError) as caught:
        os.stat("inner", dir_fd=directory)
    assert caught.value.errno in (*GONE, errno.ENOTDIR)
    os.close(directory)
    assert (root / "sub").read_bytes() == b"a file now"
    no_complaint(mounted)


def test_directory_that_goes_while_a_branch_has_changes_in_it(mounted: Mounted, root: Path) -> None:
    (root / "sub" / "new").write_bytes(b"the branch's own")
    (root / "sub" / "inner").write_bytes(b"changed")
    shutil.rmtree(mounted.lower / "sub")
    time.sleep(SETTLED_S)
    assert sorted(os.listdir(root / "sub")) == ["inner", "new"]
    assert (root / "sub" / "inner").read_bytes() == b"changed"
    (root / "sub" / "more").write_bytes(b"more")
    assert not (root / "sub" / "deep").exists()
    no_complaint(mounted)


def test_unreadable_lower_is_an_error_and_nothing_else(mounted: Mounted, root: Path) -> None:
    (mounted.lower / "loop").symlink_to("loop")
    (mounted.lower / "pipe").unlink(missing_ok=True)
    os.mkfifo(mounted.lower / "pipe")
    assert os.readlink(root / "loop") == "loop"
    assert (root / "pipe").is_fifo()
    (mounted.lower / "pipe").unlink()
    (mounted.lower / "pipe").write_bytes(b"a file now")
    eventually(lambda: (root / "pipe").is_file())
    assert (root / "pipe").read_bytes() == b"a file now"
    no_complaint(mounted)
