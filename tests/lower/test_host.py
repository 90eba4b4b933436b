"""The host directory as a lower: what is shown, what drifts, and what is held open."""

import errno
import gc
import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentfsd.lower.host_lower import CACHE_S, CACHE_SIZE, HostLower
from tests.mounted import needs_root

NOBODY = 65534
OLD_NS = 1_000_000_000  # long before any mtime: `relatime` would renew such an atime at the first read


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "dir" / "sub").mkdir(parents=True)
    (root / "file").write_bytes(b"content")
    (root / "dir" / "sub" / "leaf").write_bytes(b"leaf")
    (root / "link").symlink_to("file")
    return root


@pytest.fixture
def lower(root: Path) -> Iterator[HostLower]:
    made = HostLower(str(root))
    yield made
    made.close()


def read(lower: HostLower, path: bytes) -> bytes:
    fd = lower.open(path)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_shows_what_is_there(lower: HostLower, root: Path) -> None:
    assert lower.description == str(root)
    assert stat.S_ISDIR(lower.stat(b"").st_mode)
    assert lower.stat(b"dir/sub/leaf") == (root / "dir/sub/leaf").stat()
    assert stat.S_ISLNK(lower.stat(b"link").st_mode)
    assert lower.readlink(b"link") == b"file"
    assert read(lower, b"dir/sub/leaf") == b"leaf"
    assert lower.readdir(b"dir")[0].ino == (root / "dir/sub").stat().st_ino
    assert lower.statvfs().f_blocks == os.statvfs(root).f_blocks


def test_a_listing_says_what_each_name_is(lower: HostLower, root: Path) -> None:
    os.mkfifo(root / "fifo")
    assert {(entry.name, entry.type) for entry in lower.readdir(b"")} == {
        (b"dir", stat.S_IFDIR), (b"file", stat.S_IFREG), (b"link", stat.S_IFLNK), (b"fifo", 0),
    }  # fmt: skip


def test_the_root_may_be_given_in_bytes_and_relative(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = root / os.fsdecode(b"\xff")
    odd.mkdir()
    (odd / "inside").touch()
    monkeypatch.chdir(root)
    lower = HostLower(b"\xff")
    assert lower.description == str(odd)
    assert [entry.name for entry in lower.readdir(b"")] == [b"inside"]
    lower.close()


@pytest.mark.parametrize(("name", "number"), [("file", errno.ENOTDIR), ("none", errno.ENOENT)])
def test_a_root_that_is_no_directory_is_an_error(root: Path, name: str, number: int) -> None:
    with pytest.raises(OSError) as caught:
        HostLower(str(root / name))
    assert caught.value.errno == number


def test_missing_names_and_wrong_kinds_are_errors(lower: HostLower, root: Path) -> None:
    for path, number in ((b"none", errno.ENOENT), (b"file/x", errno.ENOTDIR), (b"none/x", errno.ENOENT)):
        with pytest.raises(OSError) as caught:
            lower.stat(path)
        assert caught.value.errno == number
    for path in (b"", b"dir", b"link"):
        with pytest.raises(OSError) as caught:
            lower.open(path)
        assert caught.value.errno == errno.ESTALE
    for path in (b"", b"dir", b"file"):
        with pytest.raises(OSError) as caught:
            lower.readlink(path)
        assert caught.value.errno == errno.EINVAL


def test_a_fifo_is_not_even_opened(lower: HostLower, root: Path) -> None:
    os.mkfifo(root / "fifo")
    writer = threading.Thread(target=lambda: os.close(os.open(root / "fifo", os.O_WRONLY)))
    writer.start()  # waits for a reader
    try:
        time.sleep(0.1)
        for _ in range(100):
            with pytest.raises(OSError) as caught:
                lower.open(b"fifo")
            assert caught.value.errno == errno.ESTALE
        time.sleep(0.1)
        assert writer.is_alive()
    finally:
        os.close(os.open(root / "fifo", os.O_RDONLY | os.O_NONBLOCK))
        writer.join()


def test_reading_leaves_access_times_alone(lower: HostLower, root: Path) -> None:
    for name in ("file", "dir"):
        os.utime(root / name, ns=(OLD_NS, time.time_ns()))
    assert read(lower, b"file") == b"content"
    assert len(lower.readdir(b"dir")) == 1
    assert ((root / "file").stat().st_atime_ns, (root / "dir").stat().st_atime_ns) == (OLD_NS, OLD_NS)


def test_somebody_elses_files_can_be_read(lower: HostLower, root: Path) -> None:
    needs_root()  # only a file's owner may ask for O_NOATIME
    (root / "closed").write_bytes(b"")
    (root / "closed").chmod(0o600)
    for name in ("file", "dir", "dir/sub"):
        (root / name).chmod(0o755)
    os.seteuid(NOBODY)
    try:
        assert read(lower, b"file") == b"content"
        assert [entry.name for entry in lower.readdir(b"dir")] == [b"sub"]
        with pytest.raises(PermissionError) as caught:
            lower.open(b"closed")
        assert caught.value.errno == errno.EACCES
    finally:
        os.seteuid(0)


def test_xattrs_of_files_directories_and_the_root(lower: HostLower, root: Path) -> None:
    for path in (b"file", b"dir", b"dir/sub/leaf", b""):
        os.setxattr(os.path.join(os.fsencode(root), path), "user.k", b"v" + path)
        assert lower.getxattr(path, b"user.k") == b"v" + path
        assert b"user.k" in lower.listxattr(path)
    with pytest.raises(OSError) as caught:
        lower.getxattr(b"file", b"user.none")
    assert caught.value.errno == errno.ENODATA
    assert b"user.k" not in lower.listxattr(b"link")  # the link's own, not its target's


def test_xattrs_of_a_symlink_are_its_own(lower: HostLower, root: Path) -> None:
    needs_root()
    os.setxattr(root / "link", "trusted.k", b"of the link", follow_symlinks=False)
    assert lower.getxattr(b"link", b"trusted.k") == b"of the link"
    assert lower.listxattr(b"link") == [b"trusted.k"]
    assert lower.listxattr(b"file") == []


def test_xattr_names_of_any_bytes(lower: HostLower, root: Path) -> None:
    os.setxattr(root / "file", b"user.\xff\n", b"\0\xff")
    assert lower.listxattr(b"file") == [b"user.\xff\n"]
    assert lower.getxattr(b"file", b"user.\xff\n") == b"\0\xff"


def test_a_file_system_without_xattrs_has_none() -> None:
    lower = HostLower("/proc")
    assert lower.listxattr(b"version") == []
    with pytest.raises(OSError) as caught:
        lower.getxattr(b"version", b"user.k")
    assert caught.value.errno == errno.ENODATA
    lower.close()


@pytest.mark.parametrize("name", [b"\xff\xfe\n\x01", b"new\nline", b" ", b"...", b"-rf", b"\xed\xb2\x80", b"a" * 255])
def test_names_of_any_bytes(lower: HostLower, root: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(root), name)
    os.mkdir(path)
    with open(os.path.join(path, name), "wb") as file:
        file.write(b"odd")
    os.setxattr(os.path.join(path, name), "user.k", b"v")
    assert name in [entry.name for entry in lower.readdir(b"")]
    assert [entry.name for entry in lower.readdir(name)] == [name]
    assert read(lower, name + b"/" + name) == b"odd"
    assert lower.getxattr(name + b"/" + name, b"user.k") == b"v"


# -- the lower changes under us


def test_a_file_that_becomes_a_directory_is_one_at_once(lower: HostLower, root: Path) -> None:
    assert read(lower, b"file") == b"content"
    (root / "file").unlink()
    (root / "file").mkdir()
    assert stat.S_ISDIR(lower.stat(b"file").st_mode)
    with pytest.raises(OSError) as caught:
        lower.open(b"file")
    assert caught.value.errno == errno.ESTALE


def test_a_directory_that_becomes_a_file_shows_within_a_second(lower: HostLower, root: Path) -> None:
    assert read(lower, b"dir/sub/leaf") == b"leaf"
    os.rename(root / "dir" / "sub", root / "old")
    (root / "dir" / "sub").touch()
    time.sleep(CACHE_S + 0.1)
    with pytest.raises(NotADirectoryError):
        lower.stat(b"dir/sub/leaf")


def test_a_replaced_parent_shows_within_a_second_also_when_it_is_in_constant_use(lower: HostLower, root: Path) -> None:
    assert lower.stat(b"dir/sub/leaf").st_size == 4
    os.rename(root / "dir", root / "old")
    (root / "dir" / "sub").mkdir(parents=True)
    (root / "dir" / "sub" / "leaf").write_text("longer")
    end = time.monotonic() + CACHE_S + 0.1
    while time.monotonic() < end:
        lower.stat(b"dir/sub/leaf")
    assert lower.stat(b"dir/sub/leaf").st_size == 6


# -- held descriptors


def test_descriptors_are_bounded_and_given_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfsd.lower.host_lower.CACHE_S", 600.0)
    before = open_descriptors()
    lower = HostLower(str(root))
    for number in range(CACHE_SIZE + 50):
        (root / f"d{number}").mkdir()
        (root / f"d{number}" / "f").touch()
        lower.stat(f"d{number}/f".encode())
    assert before + CACHE_SIZE <= open_descriptors() <= before + CACHE_SIZE + 2
    lower.close()
    assert open_descriptors() == before
    lower.close()
    with pytest.raises(OSError):
        lower.stat(b"file")


def test_errors_hold_nothing_open(lower: HostLower, root: Path) -> None:
    lower.stat(b"dir/sub/leaf")
    before = open_descriptors()
    for path in (b"none", b"file/x", b"link/x", b"dir/none/x", b"dir", b"dir/\0", b"../x"):
        for act in (lower.open, lower.readdir, lower.stat, lower.listxattr):
            try:
                fd = act(path)
            except OSError:
                continue
            assert not isinstance(fd, int)
    assert open_descriptors() <= before + 1  # "dir" itself came into the cache


def test_the_directory_in_use_is_not_the_one_to_go(lower: HostLower, root: Path) -> None:
    lower.stat(b"dir/sub/leaf")
    hot = lower._cache[b"dir/sub"]
    for number in range(CACHE_SIZE + 50):
        (root / f"d{number}").mkdir()
        lower.readdir(f"d{number}".encode())
        if time.monotonic() < hot.until:
            lower.stat(b"dir/sub/leaf")
            assert lower._cache[b"dir/sub"] is hot


def test_a_file_system_within_the_lower_can_be_unmounted(lower: HostLower, root: Path) -> None:
    needs_root()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(root / "dir")], check=True)
    try:
        (root / "dir" / "other").touch()
        assert lower.stat(b"dir/other").st_dev != lower.stat(b"").st_dev
        time.sleep(CACHE_S + 0.1)
        lower.readdir(b"")
        assert lower.stat(b"file").st_size == 7
    finally:
        (root / "away").mkdir()
        lower.readdir(b"away")  # any directory looked up later lets go of what has expired
        subprocess.run(["umount", str(root / "dir")], check=True)


def test_worker_threads_may_use_it_at_once(lower: HostLower, root: Path) -> None:
    count = CACHE_SIZE * 2  # more than is held: descriptors come and go under the threads
    for number in range(count):
        (root / f"d{number}").mkdir()
        (root / f"d{number}" / "f").write_text(f"{number}")

    def work(first: int) -> None:
        for step in range(count):
            number = (first + step) % count
            path = f"d{number}/f".encode()
            assert read(lower, path) == b"%d" % number
            assert lower.stat(path).st_size == len(str(number))
            assert len(lower.readdir(f"d{number}".encode())) == 1

    before = open_descriptors()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(0, count, count // 8)))
    assert open_descriptors() <= before + CACHE_SIZE
