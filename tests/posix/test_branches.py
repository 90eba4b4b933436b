"""What the suite cannot ask of a plain file system: branches side by side, read-only views, and a backstore that is full."""

import errno
import fcntl
import mmap
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounted import Mounted
from tests.posix.places import SEED_BYTES, errno_of, needs_root_for, seed
from tests.posix.test_locks import IN_CREATE, Watch

Make = Callable[..., Mounted]


@pytest.fixture
def two(tmp_path: Path, make_mount: Make) -> Mounted:
    """A mount over the seed with the branches one and two."""
    seed(tmp_path / "seeded")
    mounted = make_mount(tmp_path / "seeded")
    mounted.cli("branch create", "one")
    mounted.cli("branch create", "two")
    return mounted


def test_locks_of_two_branches_do_not_conflict(two: Mounted) -> None:
    for lock in (fcntl.flock, fcntl.lockf):
        with (two.subtree("one") / "file").open("r+b") as one, (two.subtree("two") / "file").open("r+b") as other:
            lock(one, fcntl.LOCK_EX)
            lock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with (two.subtree("one") / "file").open("r+b") as same, (two.path / "file").open("r+b") as main:
                if lock is fcntl.flock:
                    assert errno_of(lambda: fcntl.flock(same, fcntl.LOCK_EX | fcntl.LOCK_NB)) == errno.EWOULDBLOCK
                lock(main, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_locks_in_the_pid_view_belong_to_the_branch(two: Mounted) -> None:
    script = "exec 9<>file; flock -n 9 || exit 7; echo held; read line <&8"
    held = two.start("one", "bash", "-c", f"exec 8<&0; {script}", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert held.stdout is not None
    assert held.stdout.readline() == "held\n"
    assert two.run("two", "bash", "-c", "exec 9<>file; flock -n 9", view="pid", check=False).returncode == 0
    assert two.run("one", "bash", "-c", "exec 9<>file; flock -n 9", view="pid", check=False).returncode == 1
    held.communicate("done\n")


def test_one_path_in_two_states_is_two_files_and_in_one_state_one(two: Mounted) -> None:
    two.cli("snapshot create", "-b", "one", "then")
    two.sh("one", "echo changed >file")
    now, then = two.subtree("one") / "file", two.path / ".agentfs" / "snapshots" / "then" / "file"
    assert not os.path.samefile(now, then)
    assert not os.path.samefile(now, two.path / "file")
    assert os.path.samefile(two.subtree("main") / "file", two.path / "file")
    assert subprocess.run(["diff", "-rq", two.subtree("one"), then.parent], capture_output=True, check=False).returncode == 1
    assert two.sh("one", "cp .agentfs/snapshots/then/file file; cmp file .agentfs/snapshots/then/file && echo same") == "same\n"
    subprocess.run(["cp", two.path / "file", now], check=True)
    with os.scandir(now.parent) as entries:
        assert all(entry.inode() == entry.stat(follow_symlinks=False).st_ino for entry in entries)


def test_mappings_of_two_branches_are_apart(two: Mounted) -> None:
    with (
        (two.subtree("one") / "big").open("r+b") as one, (two.subtree("two") / "big").open("r+b") as other,
        mmap.mmap(one.fileno(), 0) as here, mmap.mmap(other.fileno(), 0) as there,
    ):  # fmt: skip
        here[:3] = b"ONE"
        there[:3] = b"TWO"
        assert (here[:4], there[:4]) == (b"ONE3", b"TWO3")
    assert (two.path / "big").read_bytes() == SEED_BYTES
    assert (two.lower / "big").read_bytes() == SEED_BYTES


def test_inotify_in_a_branch_of_its_own_view_hears_nothing_of_others(two: Mounted) -> None:
    watch = Watch(two.subtree("one"), IN_CREATE)
    (two.subtree("two") / "secret").touch()
    (two.path / "of-main").touch()
    (two.subtree("one") / "own").touch()
    assert watch.events() == [(IN_CREATE, "own")]
    watch.close()


def test_a_snapshot_is_read_only_in_every_way(two: Mounted) -> None:
    two.cli("snapshot create", "-b", "one", "point")
    root = two.path / ".agentfs" / "snapshots" / "point"
    assert (root / "file").read_bytes() == b"seed\n"
    changes: list[Callable[[], object]] = [
        lambda: os.open(root / "file", os.O_WRONLY),
        lambda: os.open(root / "file", os.O_RDONLY | os.O_TRUNC),
        lambda: os.open(root / "new", os.O_CREAT | os.O_WRONLY),
        lambda: os.truncate(root / "file", 0),
        lambda: os.unlink(root / "file"),
        lambda: os.mkdir(root / "new"),
        lambda: os.rmdir(root / "void"),
        lambda: os.rename(root / "file", root / "new"),
        lambda: os.link(root / "file", root / "new"),
        lambda: os.symlink("x", root / "new"),
        lambda: os.chmod(root / "file", 0o600),
        lambda: os.utime(root / "file", (1, 1)),
        lambda: os.setxattr(root / "file", "user.x", b""),
        lambda: os.mkfifo(root / "new"),
    ]
    assert [errno_of(change) for change in changes] == [errno.EROFS] * len(changes)


# -- no room


@pytest.fixture
def small_state(tmp_path: Path) -> Iterator[Path]:
    """A state directory on a file system of 24 MiB."""
    needs_root_for("a small tmpfs")
    where = tmp_path / "small"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", where], check=True)
    yield where
    subprocess.run(["umount", "-l", where], check=True)


def fill(path: Path, limit: int = 64 << 20) -> tuple[int, int]:
    """Writes until it fails: (errno, bytes that were acknowledged)."""
    done = 0
    with path.open("wb", buffering=0) as file:
        try:
            while done < limit:
                done += file.write(os.urandom(1 << 16))
        except OSError as exc:
            return exc.errno or -1, done
    return 0, done


def test_full_backstore_gives_enospc_and_goes_on_when_there_is_room(tmp_path: Path, small_state: Path) -> None:
    mounted = Mounted(tmp_path)
    seed(mounted.lower / "d")
    (mounted.lower / "large").write_bytes(bytes(1 << 20) * 40 + b"end")
    with (mounted.lower / "large").open("r+b") as file:
        file.write(os.urandom(40 << 20))
    mounted.state = small_state / "state"
    try:
        mounted.mount()
        (mounted.path / "kept").write_bytes(b"kept")
        code, written = fill(mounted.path / "filler")
        assert code == errno.ENOSPC
        assert (mounted.path / "filler").stat().st_size == written
        fd = os.open(mounted.path / "large", os.O_RDWR)
        assert errno_of(lambda: os.write(fd, b"x")) == errno.ENOSPC
        assert os.pread(fd, 3, 40 << 20) == b"end"
        os.close(fd)
        _exhaust_names(mounted.path)
        assert (mounted.path / "kept").read_bytes() == b"kept"
        assert mounted.fsck() == []
        os.truncate(mounted.path / "filler", 0)
        (mounted.path / "filler").unlink()
        (mounted.path / "after").write_bytes(bytes(1 << 20))
        mounted.kill()
        mounted.mount()
        assert (mounted.path / "kept").read_bytes() == b"kept"
        assert (mounted.path / "after").stat().st_size == 1 << 20
        assert mounted.fsck() == []
    finally:
        mounted.end()


def _exhaust_names(where: Path) -> None:
    """Until the database has no room either; every failure is ENOSPC and leaves nothing behind."""
    made = 0
    try:
        for number in range(20_000):
            os.symlink("x" * 200, where / f"s{number}")
            made += 1
    except OSError as exc:
        assert exc.errno == errno.ENOSPC
    assert len([name for name in os.listdir(where) if name.startswith("s")]) == made


def test_a_quota_of_the_backstore_gives_edquot(tmp_path: Path) -> None:
    needs_root_for("a btrfs loop mount with a quota")
    if shutil.which("mkfs.btrfs") is None:
        pytest.skip("mkfs.btrfs is not installed: apt-get install btrfs-progs")
    image, where = tmp_path / "btrfs.img", tmp_path / "btrfs"
    where.mkdir()
    with image.open("wb") as file:
        file.truncate(512 << 20)
    subprocess.run(["mkfs.btrfs", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, where], check=True)
    mounted = Mounted(tmp_path)
    mounted.state = where / "limited" / "state"
    try:
        for command in (
            ["subvolume", "create", where / "limited"],
            ["quota", "enable", where],
            ["qgroup", "limit", "32M", where / "limited"],
        ):
            subprocess.run(["btrfs", *command], check=True, stdout=subprocess.DEVNULL)
        mounted.mount()
        (mounted.path / "kept").write_bytes(b"kept")
        code, _ = fill(mounted.path / "filler", 128 << 20)
        assert code == errno.EDQUOT
        (mounted.path / "filler").unlink()
        assert (mounted.path / "kept").read_bytes() == b"kept"
        assert mounted.fsck() == []
    finally:
        mounted.end()
        subprocess.run(["umount", "-l", where], check=True)
