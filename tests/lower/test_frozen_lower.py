"""A frozen lower shows what the original showed, whatever happens to that."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentfsd.domain_errors import DamagedContent
from agentfsd.lower import frozen_lower
from agentfsd.lower.host_lower import HostLower
from tests.disks import make_subvolume, reflinking_disk
from tests.lower.frozen_trees import Freezer, as_seen, closing, different, errno_of, make_every_kind
from tests.mounted import needs_open_checkout, needs_root


@pytest.fixture
def freezer(tmp_path: Path) -> Iterator[Freezer]:
    (tmp_path / "root").mkdir()
    with closing(tmp_path) as made:
        yield made


@pytest.fixture
def mount() -> Iterator[Callable[[Path], None]]:
    """Mounts an empty file system at a directory."""
    needs_root()
    with ExitStack() as mounted:

        def at(path: Path) -> None:
            subprocess.run(["mount", "-t", "tmpfs", "none", str(path)], check=True)
            mounted.callback(subprocess.run, ["umount", "--lazy", str(path)], check=True)

        yield at


def test_it_is_as_the_original_was(disk: Path) -> None:
    make_every_kind(disk / "root")
    with closing(disk) as freezer:
        before = as_seen(freezer.lower)
        assert len(before) > 90
        frozen = freezer.freeze()
        assert different(as_seen(frozen), before) == []
        assert (frozen.device(), frozen.description) == (freezer.lower.device(), freezer.lower.description)
        shutil.rmtree(freezer.root / "new")
        for path in freezer.root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.write_bytes(b"changed")
                path.chmod(0o600)
        (freezer.root / "anew").rename(freezer.root / "renamed")
        assert different(as_seen(frozen), before) == []
        frozen.close()
        assert different(as_seen(freezer.bases.open("one")), before) == []


def test_as_a_snapshot_of_the_file_system_too(tmp_path: Path) -> None:
    with reflinking_disk(tmp_path, "btrfs") as disk:
        make_subvolume(disk / "root")
        with closing(disk) as freezer:
            check_snapshot(freezer)


def check_snapshot(freezer: Freezer) -> None:
    make_every_kind(freezer.root / "in")
    before = as_seen(freezer.lower)
    frozen = freezer.freeze()
    assert freezer.bases.records()[0].way == "snapshot"
    (freezer.root / "in" / "one").write_text("changed")
    (freezer.root / "in" / "stays").unlink()
    assert different(as_seen(frozen), before) == []
    assert different(as_seen(freezer.bases.open("one")), before) == []
    frozen.close()
    freezer.bases.remove("one")
    assert list(freezer.place.iterdir()) == []


def test_it_fails_as_the_original_does(freezer: Freezer) -> None:
    (freezer.root / "dir").mkdir()
    (freezer.root / "dir" / "file").write_text("x")
    (freezer.root / "link").symlink_to("dir")
    frozen = freezer.freeze()
    paths = [
        b"none", b"none/none", b"dir/none", b"dir/file/none", b"link/file", b"/dir", b"dir/", b"dir//file", b".", b"dir/..",
        b"dir/../dir", b"a\0b", b"dir/" + b"n" * 256, b"dir", b"link", b"dir/file", b"",
    ]  # fmt: skip
    for path in paths:
        for name in ("stat", "open", "readdir", "readlink", "listxattr"):
            expected = errno_of(lambda path=path, name=name: _released(getattr(freezer.lower, name)(path)))  # type: ignore[misc]
            got = errno_of(lambda path=path, name=name: _released(getattr(frozen, name)(path)))  # type: ignore[misc]
            assert (path, name, got) == (path, name, expected)
    assert errno_of(lambda: frozen.getxattr(b"dir", b"user.none")) == errno.ENODATA
    assert errno_of(lambda: frozen.open_to_give(b"dir/file", os.O_RDONLY)) == errno.EPERM


def _released(result: object) -> None:
    if isinstance(result, int):
        os.close(result)


def test_what_the_mount_covers_is_reached_beneath_it(freezer: Freezer, mount: Callable[[Path], None]) -> None:
    (freezer.root / "dir" / "point" / "deep").mkdir(parents=True)
    (freezer.root / "dir" / "point" / "deep" / "leaf").write_text("leaf")
    (freezer.root / "dir" / "point" / "leaf").write_text("covered")
    freezer.lower.mask(b"dir/point")
    mount(freezer.root / "dir" / "point")
    (freezer.root / "dir" / "point" / "foreign").write_text("of the mount")
    before = as_seen(freezer.lower)
    assert b"dir/point/deep/leaf" in before
    assert different(as_seen(freezer.freeze()), before) == []


def test_what_is_mounted_in_the_lower_belongs_to_it(freezer: Freezer, mount: Callable[[Path], None]) -> None:
    (freezer.root / "point").mkdir()
    mount(freezer.root / "point")
    (freezer.root / "point" / "leaf").write_text("of the mount")
    (freezer.root / "point" / "dir").mkdir()
    before = as_seen(freezer.lower)
    frozen = freezer.freeze()
    assert different(as_seen(frozen), before) == []
    assert frozen.stat(b"point/leaf").st_dev == (freezer.root / "point").stat().st_dev != frozen.device()


def test_an_open_file_shows_the_attributes_of_the_original(freezer: Freezer) -> None:
    (freezer.root / "file").write_text("x")
    before = (freezer.root / "file").stat()
    frozen = freezer.freeze()
    (freezer.root / "file").unlink()
    fd = frozen.open(b"file")
    assert frozen.stat_open(b"file", fd) == before
    assert os.fstat(fd).st_ino != before.st_ino
    os.close(fd)


def test_few_directories_are_kept_in_memory_and_all_are_right(freezer: Freezer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_lower, "_CACHED_ENTRIES", 20)
    for number in range(12):
        (freezer.root / f"{number}").mkdir()
        for name in range(9):
            (freezer.root / f"{number}" / f"{name}").write_text(f"{number}.{name}")
    before = as_seen(freezer.lower)
    frozen = freezer.freeze()
    failed: list[str] = []
    threads = [threading.Thread(target=lambda: failed.extend(different(as_seen(frozen), before))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(frozen._parts) <= 3  # type: ignore[attr-defined]


def test_a_large_directory_is_read_in_parts(freezer: Freezer) -> None:
    for number in range(3000):
        (freezer.root / f"{number * 7919 % 3000}").touch()
    before = as_seen(freezer.lower)
    frozen = freezer.freeze()
    assert frozen.stat(b"1234") == freezer.lower.stat(b"1234")
    assert len(next(iter(frozen._parts.values())).entries) < 300  # type: ignore[attr-defined]
    assert different(as_seen(frozen), before) == []
    for name in (b"!", b"1234x", b"\xff"):
        assert errno_of(lambda name=name: frozen.stat(name)) == errno.ENOENT  # type: ignore[misc]


def test_paths_that_are_longer_than_the_kernel_takes(freezer: Freezer) -> None:
    os.chdir(freezer.root)
    try:
        for _ in range(60):
            os.mkdir("d" * 90)
            os.chdir("d" * 90)
        Path("leaf").write_text("leaf")
        os.link("leaf", "second")
    finally:
        os.chdir("/")
    before = as_seen(freezer.lower)
    assert max(map(len, before)) > 5000
    assert different(as_seen(freezer.freeze()), before) == []
    assert different(as_seen(freezer.freeze("two")), before) == []
    for base_id in ("one", "two"):
        freezer.bases.remove(base_id)
    assert list(freezer.place.iterdir()) == []


@pytest.mark.parametrize("harm", ["no index", "short index", "no clone", "torn record", "no record"])
def test_a_damaged_base_is_refused_with_a_sentence(freezer: Freezer, harm: str) -> None:
    (freezer.root / "file").write_text("x" * 100)
    freezer.freeze().close()
    base = freezer.place / "one"
    if harm == "no index":
        (base / "index").unlink()
    elif harm == "short index":
        os.truncate(base / "index", 50)
    elif harm == "no clone":
        shutil.rmtree(base / "tree")
    elif harm == "torn record":
        (base / "base.msgpack").write_bytes(b"\x97")
    else:
        (base / "base.msgpack").unlink()
    with pytest.raises(OSError) as caught:
        freezer.bases.open("one")
    missing = harm == "no record"
    assert caught.value.errno == (errno.ENOENT if missing else errno.EIO)
    assert ("no frozen base named 'one'" if missing else f"{base}") in str(caught.value)
    freezer.bases.freeze("two")  # the next one does without it
    freezer.bases.remove("one")
    assert not base.exists()


def test_a_file_that_is_missing_from_the_clone_is_damage(freezer: Freezer) -> None:
    (freezer.root / "file").write_text("x")
    frozen = freezer.freeze()
    (freezer.place / "one" / "tree" / "file").unlink()
    with pytest.raises(DamagedContent, match="'file' is missing from the frozen base"):
        frozen.open(b"file")


AS_NOBODY = """
import os, sys
from pathlib import Path
from tests.disks import make_subvolume, reflinking_disk
from tests.lower.frozen_trees import *
os.setgroups([]); os.setgid(65534); os.setuid(65534)
freezer = Freezer(Path(sys.argv[1]))
frozen = freezer.freeze()
assert {entry.name for entry in frozen.readdir(b"")} == {entry.name for entry in freezer.lower.readdir(b"")}
paths = [b"group/leaf", b"mine/leaf", b"listed/leaf", *(entry.name for entry in freezer.lower.readdir(b""))]
for path in paths:
    for name in ("stat", "open", "readdir", "listxattr"):
        got, expected = (errno_of(lambda: getattr(each, name)(path)) for each in (frozen, freezer.lower))
        assert got == expected, (path, name, got, expected)
    if not errno_of(lambda: freezer.lower.stat(path)):
        assert frozen.stat(path) == freezer.lower.stat(path), path
assert errno_of(lambda: frozen.stat(b"shut/leaf")) == 13  # nobody could list it
assert os.pread(frozen.open(b"group/leaf"), 9, 0) == b"leaf"
freezer.bases.freeze("two")
freezer.bases.remove("one"); freezer.bases.remove("two")
assert os.listdir(freezer.place) == []
print("fine")
"""


def test_an_ordinary_user_meets_the_same_locks() -> None:
    needs_root()
    needs_open_checkout()
    base = Path(tempfile.mkdtemp())
    root = base / "root"
    try:
        for name in ("shut", "group", "listed", "mine"):
            (root / name).mkdir(parents=True)
            (root / name / "leaf").write_text("leaf")
        (root / "secret").write_text("secret")
        (root / "secret").chmod(0o600)
        (root / "shut").chmod(0o711)
        (root / "listed").chmod(0o744)
        os.chown(root / "group", 0, 65534)
        (root / "group").chmod(0o070)
        os.chown(root / "group" / "leaf", 0, 65534)
        (root / "group" / "leaf").chmod(0o040)
        os.chown(root / "mine", 65534, 65534)
        (root / "mine").chmod(0o555)
        os.mknod(root / "null", 0o020666, os.makedev(1, 3))
        os.mkfifo(root / "fifo")
        os.chown(base, 65534, 65534)
        command = [sys.executable, "-c", AS_NOBODY, str(base)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
        assert done.stdout == "fine\n", done.stderr
    finally:
        shutil.rmtree(base)


def test_a_lower_that_is_closed_twice(freezer: Freezer) -> None:
    frozen = freezer.freeze()
    frozen.close()
    frozen.close()
    assert isinstance(freezer.lower, HostLower)
