"""The host directory as a lower: what is shown, and that nothing outside its root ever is."""

import errno
import gc
import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.lower import openat2
from agentfsd.lower.host import CACHE_SIZE, HostLower
from tests.mounted import needs_root

LOWER_ERRORS = (errno.ENOTDIR, errno.ENOENT, errno.ELOOP, errno.EACCES, errno.ESTALE, errno.EINVAL)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "dir" / "sub").mkdir(parents=True)
    (root / "file").write_bytes(b"content")
    (root / "dir" / "sub" / "leaf").write_bytes(b"leaf")
    (root / "link").symlink_to("file")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
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


def test_shows_what_is_there(lower: HostLower, root: Path) -> None:
    assert lower.description == str(root)
    assert stat.S_ISDIR(lower.stat(b"").st_mode)
    assert lower.stat(b"dir/sub/leaf") == (root / "dir/sub/leaf").stat()
    assert stat.S_ISLNK(lower.stat(b"link").st_mode)
    assert lower.readlink(b"link") == b"file"
    assert read(lower, b"dir/sub/leaf") == b"leaf"
    assert {(entry.name, entry.type) for entry in lower.readdir(b"")} == {
        (b"dir", stat.S_IFDIR), (b"file", stat.S_IFREG), (b"link", stat.S_IFLNK),
    }  # fmt: skip
    assert lower.readdir(b"dir")[0].ino == (root / "dir/sub").stat().st_ino


def test_missing_names_and_wrong_kinds_are_errors(lower: HostLower) -> None:
    for path, number in ((b"none", errno.ENOENT), (b"file/x", errno.ENOTDIR), (b"none/x", errno.ENOENT)):
        with pytest.raises(OSError) as caught:
            lower.stat(path)
        assert caught.value.errno == number
    for path in (b"dir", b"link"):
        with pytest.raises(OSError) as caught:
            lower.open(path)
        assert caught.value.errno == errno.ESTALE


def test_a_fifo_does_not_hang(lower: HostLower, root: Path) -> None:
    os.mkfifo(root / "fifo")
    with pytest.raises(OSError) as caught:
        lower.open(b"fifo")
    assert caught.value.errno == errno.ESTALE


def test_xattrs_of_files_directories_and_the_root(lower: HostLower, root: Path) -> None:
    for path in (b"file", b"dir", b"dir/sub/leaf", b""):
        os.setxattr(os.path.join(os.fsencode(root), path), "user.k", b"v" + path)
        assert lower.getxattr(path, b"user.k") == b"v" + path
        assert b"user.k" in lower.listxattr(path)
    with pytest.raises(OSError) as caught:
        lower.getxattr(b"file", b"user.none")
    assert caught.value.errno == errno.ENODATA
    assert b"user.k" not in lower.listxattr(b"link")  # the link's own, not its target's


def test_names_of_any_bytes(lower: HostLower, root: Path) -> None:
    name = b"\xff\xfe\n\x01"
    (root / os.fsdecode(name)).write_bytes(b"odd")
    assert name in [entry.name for entry in lower.readdir(b"")]
    assert read(lower, name) == b"odd"


@pytest.mark.parametrize(
    "path", [b"..", b"../outside/secret", b"dir/../../outside/secret", b"/etc/passwd", b"up/secret", b"abs/secret",
             b"magic/outside/secret"]
)  # fmt: skip
@pytest.mark.parametrize("fallback", [False, True])
def test_nothing_leads_out(lower: HostLower, root: Path, path: bytes, fallback: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if fallback:
        monkeypatch.setattr(openat2, "_SYS_OPENAT2", 1 << 20)  # a kernel without openat2
    (root / "up").symlink_to("../outside")
    (root / "abs").symlink_to(root.parent / "outside")
    (root / "magic").symlink_to(f"/proc/self/cwd/{root.parent}")
    for act in (lower.stat, lower.open, lower.readlink, lower.readdir, lower.listxattr):
        with pytest.raises(OSError) as caught:
            act(path)
        assert caught.value.errno in LOWER_ERRORS


def test_a_directory_swapped_for_a_symlink_during_look_ups_leads_nowhere(root: Path) -> None:
    stop = threading.Event()
    (root / "dir" / "sub" / "secret").write_text("harmless")

    def swap() -> None:
        while not stop.is_set():
            os.rename(root / "dir" / "sub", root / "dir" / "away")
            os.symlink(root.parent / "outside", root / "dir" / "sub")
            os.unlink(root / "dir" / "sub")
            os.rename(root / "dir" / "away", root / "dir" / "sub")

    thread = threading.Thread(target=swap)
    thread.start()
    found = set()
    try:
        for _ in range(3000):
            lower = HostLower(str(root))  # nothing cached
            try:
                found.add(read(lower, b"dir/sub/secret"))
            except OSError as exc:
                assert exc.errno in LOWER_ERRORS
            lower.close()
    finally:
        stop.set()
        thread.join()
    assert found == {b"harmless"}


def test_a_replaced_directory_shows_within_a_second(lower: HostLower, root: Path) -> None:
    assert lower.stat(b"dir/sub/leaf").st_size == 4
    os.rename(root / "dir", root / "old")
    (root / "dir" / "sub").mkdir(parents=True)
    (root / "dir" / "sub" / "leaf").write_text("longer")
    time.sleep(1.1)
    assert lower.stat(b"dir/sub/leaf").st_size == 6


def test_descriptors_are_bounded_and_given_back(root: Path) -> None:
    gc.collect()  # what earlier tests left
    before = len(os.listdir("/proc/self/fd"))
    lower = HostLower(str(root))
    for number in range(CACHE_SIZE + 50):
        (root / f"d{number}").mkdir()
        (root / f"d{number}" / "f").touch()
        lower.stat(f"d{number}/f".encode())
    assert len(os.listdir("/proc/self/fd")) <= before + CACHE_SIZE + 2
    lower.close()
    del lower
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("covered", ["", "dir"])
def test_what_a_later_mount_covers_is_still_seen(root: Path, covered: str) -> None:
    needs_root()
    lower = HostLower(str(root))
    if covered:
        lower.mask(covered.encode())
    subprocess.run(["mount", "-t", "tmpfs", "none", str(root / covered)], check=True)
    try:
        assert read(lower, b"dir/sub/leaf") == b"leaf"
        assert b"sub" in [entry.name for entry in lower.readdir(b"dir")]
        assert lower.stat(b"dir").st_dev == lower.stat(b"").st_dev
        assert lower.listxattr(b"dir") == []
    finally:
        subprocess.run(["umount", str(root / covered)], check=True)
        lower.close()
