"""What a program in the mount sees, through real system calls: copy-up, handles, identity."""

import errno
import fcntl
import mmap
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import Mounted, needs_root


def test_reading_creates_no_state(mounted: Mounted) -> None:
    assert (mounted.path / "sub" / "deep" / "leaf").read_text() == "leaf\n"
    os.close(os.open(mounted.path / "file", os.O_RDWR))
    assert mounted.json("diff")["changes"] == []
    assert mounted.json("branch show")["changed"] == 0


def test_lower_is_shown_to_the_nanosecond_with_its_inode_numbers(mounted: Mounted) -> None:
    for name in ("file", "link", "sub", "sub/deep/leaf"):
        lower, shown = (mounted.lower / name).lstat(), (mounted.path / name).lstat()
        for field in ("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_mode", "st_nlink", "st_uid"):
            assert getattr(lower, field) == getattr(shown, field), (name, field)


def test_inode_number_survives_copy_up(mounted: Mounted) -> None:
    before = (mounted.path / "file").stat()
    (mounted.path / "file").write_text("changed")
    after = (mounted.path / "file").stat()
    assert (before.st_ino, before.st_dev) == (after.st_ino, after.st_dev)
    assert (mounted.lower / "file").read_text() == "lower\n"


def test_new_inode_numbers_fit_a_double_and_collide_with_nothing(mounted: Mounted) -> None:
    (mounted.path / "new").touch()
    number = (mounted.path / "new").stat().st_ino
    assert 2**52 < number < 2**53


def test_reader_that_opened_before_copy_up_sees_the_write(mounted: Mounted) -> None:
    with open(mounted.path / "file") as reader:
        assert reader.read() == "lower\n"
        (mounted.path / "file").write_text("changed\n")
        reader.seek(0)
        assert reader.read() == "changed\n"


def test_shared_mapping_sees_a_write_after_copy_up(mounted: Mounted) -> None:
    with open(mounted.path / "file", "rb") as reader, mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:5] == b"lower"
        with open(mounted.path / "file", "r+b") as writer:
            writer.write(b"LOWER")
        assert mapped[:5] == b"LOWER"


def test_store_through_a_mapping_is_in_a_snapshot(mounted: Mounted) -> None:
    with open(mounted.path / "file", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:5] = b"MAPPE"
        mounted.cli("snapshot create", "s")
        mapped[:5] = b"after"
    assert (mounted.path / ".agentfs/snapshots/s/file").read_bytes() == b"MAPPE\n"


def test_unlinked_file_stays_readable_and_writable(mounted: Mounted) -> None:
    with open(mounted.path / "file", "r+") as file:
        os.unlink(mounted.path / "file")
        file.write("LOW")
        file.flush()
        file.seek(0)
        assert file.read() == "LOWer\n"
        assert os.fstat(file.fileno()).st_nlink == 0
    assert not (mounted.path / "file").exists()


def test_chmod_copies_no_data(mounted: Mounted) -> None:
    os.chmod(mounted.path / "file", 0o600)
    os.utime(mounted.path / "file", ns=(1, 2))
    os.setxattr(mounted.path / "file", "user.x", b"y")
    shown = (mounted.path / "file").stat()
    assert (stat.S_IMODE(shown.st_mode), shown.st_mtime_ns) == (0o600, 2)
    assert mounted.json("status")["usage"]["objects"] == 0
    assert (mounted.path / "file").read_text() == "lower\n"


def test_lower_hard_links_stay_links(tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "a").write_text("one")
    os.link(lower / "a", lower / "b")
    mounted = make_mount(lower)
    (mounted.path / "a").write_text("two")
    assert (mounted.path / "b").read_text() == "two"
    assert (mounted.path / "a").stat().st_ino == (mounted.path / "b").stat().st_ino
    os.unlink(mounted.path / "a")
    assert (mounted.path / "b").stat().st_nlink == 1


def test_lower_directory_is_renamed_whole(mounted: Mounted) -> None:
    os.rename(mounted.path / "sub", mounted.path / "moved")
    assert (mounted.path / "moved" / "deep" / "leaf").read_text() == "leaf\n"
    assert not (mounted.path / "sub").exists()
    (mounted.path / "sub").mkdir()
    assert os.listdir(mounted.path / "sub") == []


def test_sparse_file_stays_sparse_after_copy_up(tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    lower = tmp_path / "lower"
    lower.mkdir()
    with open(lower / "sparse", "wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"middle")
    mounted = make_mount(lower)
    with open(mounted.path / "sparse", "r+b") as file:
        file.write(b"start")
        file.seek(1 << 39)
        assert file.read(6) == b"middle"
    shown = (mounted.path / "sparse").stat()
    assert shown.st_size == 1 << 40
    assert shown.st_blocks * 512 < 1 << 20


def test_large_copy_up_does_not_hold_up_others(tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    lower = tmp_path / "lower"
    lower.mkdir()
    with open(lower / "large", "wb") as file:
        for _ in range(512):
            file.write(os.urandom(1 << 16) * 16)
    (lower / "small").write_text("small")
    mounted = make_mount(lower)
    code = f"f = open({str(mounted.path / 'large')!r}, 'r+b'); f.write(b'x')"
    began, answers = time.monotonic(), 0
    writer = subprocess.Popen([sys.executable, "-c", code])
    while writer.poll() is None:
        os.stat(mounted.path / "small")
        answers += 1
    assert writer.returncode == 0
    # A stat got through again and again while 512 MiB were copied; where blocks are shared, there is nothing to wait for.
    assert answers > 50 or time.monotonic() - began < 0.5
    assert (mounted.path / "large").stat().st_size == 512 << 20


def test_special_files_symlinks_and_odd_names(mounted: Mounted) -> None:
    os.mkfifo(mounted.path / "pipe", 0o600)
    os.symlink("some/where", mounted.path / "sym")
    odd = os.fsencode(mounted.path) + b"/\xff\n\x01name"
    with open(odd, "w") as file:
        file.write("odd")
    assert stat.S_ISFIFO((mounted.path / "pipe").lstat().st_mode)
    assert os.readlink(mounted.path / "sym") == "some/where"
    assert b"\xff\n\x01name" in os.listdir(os.fsencode(mounted.path))
    assert any(change.get("raw_path") for change in mounted.json("diff")["changes"])


def test_device_node_is_kept_but_not_usable(mounted: Mounted) -> None:
    needs_root()
    os.mknod(mounted.path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert (mounted.path / "null").stat().st_rdev == os.makedev(1, 3)
    with pytest.raises(PermissionError):
        (mounted.path / "null").open("wb").close()


def test_listing_has_dots_and_hides_the_control_directory(mounted: Mounted) -> None:
    shown = subprocess.run(["ls", "-a"], cwd=mounted.path, capture_output=True, text=True, check=True).stdout.split()
    assert shown == [".", "..", "file", "link", "sub"]
    assert sorted(os.listdir(mounted.path / ".agentfs")) == ["branches", "control", "snapshots", "status", "status.json"]
    with pytest.raises(FileExistsError):
        os.mkdir(mounted.path / ".agentfs")
    with pytest.raises(PermissionError):
        os.rmdir(mounted.path / ".agentfs")
    with pytest.raises(PermissionError):
        (mounted.path / ".agentfs" / "new").touch()


def test_locks_do_not_conflict_between_branches(mounted: Mounted) -> None:
    mounted.cli("branch create", "one")
    with (
        open(mounted.path / "file") as mine,
        open(mounted.subtree("one") / "file") as theirs,
        open(mounted.path / "file") as again,
    ):
        fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError):
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_memory_backstore_spills_and_keeps_nothing(tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    mounted = make_mount(None, "--backstore", "memory", "--memory-limit", "4", "--memory-object-limit", "1")
    for number in range(8):
        (mounted.path / f"f{number}").write_bytes(os.urandom(1 << 10) * 900)
    (mounted.path / "large").write_bytes(b"x" * (3 << 20))
    usage = mounted.json("status")["usage"]
    assert usage["spilled_objects"] >= 2
    assert (mounted.path / "large").read_bytes() == b"x" * (3 << 20)
    mounted.cli("snapshot create", "s")
    (mounted.path / "large").write_bytes(b"y")
    assert (mounted.path / ".agentfs/snapshots/s/large").stat().st_size == 3 << 20
    assert mounted.fsck() == []
    mounted.end()
    mounted.mount()
    assert os.listdir(mounted.path) == []


def test_names_that_are_too_long_are_told_so(mounted: Mounted) -> None:
    (mounted.path / "new").mkdir()
    for directory in (mounted.path, mounted.path / "new", mounted.subtree("main") / "new"):
        (directory / ("x" * 255)).touch()
        for act in (lambda path: path.touch(), lambda path: path.stat(), lambda path: os.rename(path.with_name("x" * 255), path)):
            with pytest.raises(OSError) as caught:
                act(directory / ("x" * 256))
            assert caught.value.errno == errno.ENAMETOOLONG


def test_a_branch_is_not_discarded_under_its_processes(mounted: Mounted) -> None:
    mounted.cli("branch create", "one")
    script = "echo ready; read go; cat file; echo mine > new; cat new"
    process = mounted.start("one", "sh", "-c", script, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    refused = mounted.cli("discard", "one", check=False)
    assert refused.returncode == 1
    assert "in use by" in refused.stderr
    said, _ = process.communicate("go\n", timeout=20)
    assert said == "lower\nmine\n"
    mounted.cli("discard", "one")
    assert not (mounted.path / ".agentfs" / "branches" / "one").exists()
