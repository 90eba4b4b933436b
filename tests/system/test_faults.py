"""What goes wrong around the daemon: after each fault the state is intact, the message clear, and a remount works."""

import contextlib
import errno
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_host import mount_table
from tests.mounted import AGENTFSD, Mounted, agentfsd, kill_for_good, needs_root

Make = Callable[..., Mounted]
FUSECTL = Path("/sys/fs/fuse/connections")


@pytest.fixture
def used(mounted: Mounted) -> Mounted:
    """A mount in which main and the branch one hold changes."""
    mounted.cli("branch create", "one")
    (mounted.path / "kept").write_bytes(b"kept in main")
    (mounted.subtree("one") / "kept").write_bytes(b"kept in one")
    mounted.cli("snapshot create", "point")
    (mounted.path / "file").write_bytes(b"changed after the snapshot")
    return mounted


def check_intact(mounted: Mounted) -> None:
    assert (mounted.path / "kept").read_bytes() == b"kept in main"
    assert (mounted.path / "file").read_bytes() == b"changed after the snapshot"
    assert (mounted.subtree("one") / "kept").read_bytes() == b"kept in one"
    assert (mounted.path / ".agentfs" / "snapshots" / "point" / "file").read_bytes() == b"lower\n"
    assert mounted.fsck() == []
    (mounted.path / "works").write_bytes(b"again")
    assert (mounted.path / "works").read_bytes() == b"again"


def await_end(mounted: Mounted) -> None:
    deadline = time.monotonic() + 20
    while mounted.record().alive():
        assert time.monotonic() < deadline, "the daemon does not end"
        time.sleep(0.02)


def refused_mount(mounted: Mounted) -> str:
    done = agentfsd("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state), check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


# -- the database


def test_database_that_is_locked_names_the_trouble(used: Mounted) -> None:
    agentfsd("umount", str(used.path))
    holder = sqlite3.connect(used.state / "meta.db", isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    assert "is held by another process" in refused_mount(used)
    holder.close()
    used.mount()
    check_intact(used)


@pytest.mark.parametrize(("harm", "said_of"), [("gone", "missing"), ("emptied", "empty")])
def test_database_that_is_missing_is_not_silently_made_anew(used: Mounted, harm: str, said_of: str) -> None:
    agentfsd("umount", str(used.path))
    database, backup = used.state / "meta.db", used.state / "backup.db"
    database.rename(backup)
    if harm == "emptied":
        database.touch()
    for _ in range(2):
        said = refused_mount(used)
        assert f"is {said_of}, though contents of branches are there" in said
        assert "restore it from a backup" in said
    backup.rename(database)
    used.mount()
    check_intact(used)


def test_damage_inside_the_database_is_reported_and_nothing_is_thrown_away(used: Mounted) -> None:
    for number in range(300):
        (used.path / f"filler-{number}").symlink_to("x" * 200)
    agentfsd("umount", str(used.path))
    database = used.state / "meta.db"
    sound = database.read_bytes()
    damaged = bytearray(sound)
    for page in range(2, len(sound) // 4096, 2):
        damaged[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    database.write_bytes(damaged)
    done = agentfsd("mount", str(used.lower), str(used.path), "--state", str(used.state), check=False)
    assert "Traceback" not in done.stderr
    if done.returncode == 0:
        for name in os.listdir(used.lower):
            try:
                os.lstat(used.path / name)
            except OSError as exc:
                assert exc.errno == errno.EIO
        assert used.cli("fsck", check=False).returncode == 1
        assert used.record().alive()
        used.kill()
    else:
        assert "is damaged" in done.stderr
    for path in used.state.glob("meta.db-*"):
        path.unlink()
    database.write_bytes(sound)
    used.mount()
    check_intact(used)


# -- a daemon that is killed


def test_a_mount_whose_daemon_dies_while_it_is_asked_is_dead(used: Mounted) -> None:
    shown = mount_table.mount_at(str(used.path))
    assert shown is not None
    record = used.record()
    os.kill(record.pid, signal.SIGSTOP)  # the question waits for an answer
    killer = threading.Timer(0.3, kill_for_good, (record,))
    killer.start()
    assert mount_table.is_dead(shown)
    killer.join()
    used.mount()
    check_intact(used)


def test_mount_right_after_a_kill_waits_for_what_is_left_of_the_daemon(used: Mounted) -> None:
    for _ in range(3):
        kill_for_good(used.record())
        used.mount()
    check_intact(used)


# -- the daemon's own limits


def test_without_descriptors_opening_fails_and_the_rest_goes_on(used: Mounted) -> None:
    for number in range(200):
        (used.path / f"f{number}").write_bytes(b"content")
    resource.prlimit(used.record().pid, resource.RLIMIT_NOFILE, (90, 90))
    opened, failures = [], set()
    for number in range(200):
        try:
            opened.append(os.open(used.path / f"f{number}", os.O_RDWR))
        except OSError as exc:
            failures.add(exc.errno)
    assert failures == {errno.EMFILE}
    assert os.pread(opened[0], 7, 0) == b"content"
    with pytest.raises(OSError, match="Too many open files"):
        (used.path / "new").touch()
    for fd in opened:
        os.close(fd)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:  # the kernel's RELEASE comes a moment after close
        try:
            (used.path / "new").write_bytes(b"new")
            break
        except OSError:
            time.sleep(0.05)
    check_intact(used)


def test_the_daemon_takes_as_many_descriptors_as_it_may(used: Mounted) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert resource.prlimit(used.record().pid, resource.RLIMIT_NOFILE)[0] >= hard


def test_memory_backstore_without_room_says_enospc_and_keeps_what_it_has(tmp_path: Path) -> None:
    needs_root()
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", small], check=True)
    mounted = Mounted(tmp_path, None, "--backstore", "memory", "--memory-limit", "4", "--memory-object-limit", "2")
    mounted.state = small / "state"
    try:
        mounted.mount()
        (mounted.path / "kept").write_bytes(b"k" * 100_000)
        written = 0
        with pytest.raises(OSError) as caught, (mounted.path / "large").open("wb", buffering=0) as file:
            while written < 64 << 20:
                written += file.write(os.urandom(1 << 16))
        assert caught.value.errno == errno.ENOSPC
        assert written > 4 << 20
        assert (mounted.path / "large").stat().st_size == written
        assert (mounted.path / "kept").read_bytes() == b"k" * 100_000
        (mounted.path / "large").unlink()
        (mounted.path / "after").write_bytes(b"a" * 1_000_000)
        assert mounted.fsck() == []
    finally:
        mounted.end()
        subprocess.run(["umount", "-l", small], check=True)


# -- ends and interruptions

WRITER = """
import os, sys
fd = os.open("written", os.O_CREAT | os.O_WRONLY)
number = 0
try:
    while True:
        os.write(fd, b"%07d\\n" % number)
        number += 1
        if number == 10: print("started", flush=True)
except OSError:
    pass
print(number, flush=True)
"""


def start_writer(mounted: Mounted) -> subprocess.Popen[str]:
    writer = subprocess.Popen([sys.executable, "-c", WRITER], cwd=mounted.path, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "started\n"
    return writer


@pytest.mark.sample(3)
@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "SIGKILL", "abort", "umount -l", "umount -f"])
def test_every_end_with_a_file_open_keeps_what_was_written(used: Mounted, end: str) -> None:
    if not end.startswith("SIG"):
        needs_root()
    writer = start_writer(used)
    if end == "abort":
        abort(used)
    elif end.startswith("umount"):
        subprocess.run([*end.split(), used.path], check=False, stderr=subprocess.DEVNULL)
        if end == "umount -l":
            writer.kill()  # it would go on in the detached mount, as on any file system
        else:
            with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                used.kill()
    elif end == "SIGKILL":
        used.kill()
    else:
        os.kill(used.record().pid, getattr(signal, end))
    said = writer.communicate(timeout=30)[0]
    await_end(used)
    used.mount()
    check_intact(used)
    lines = (used.path / "written").read_bytes().splitlines()
    assert lines == [b"%07d" % number for number in range(len(lines))]
    assert len(lines) >= (int(said) if said else 10)


MAPPER = """
import mmap, sys
file = open("file", "r+b"); mapped = mmap.mmap(file.fileno(), 0); file.close()
mapped[:7] = b"CHANGED"
print("stored", flush=True); sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["SIGTERM", "umount --lazy"])
def test_an_orderly_end_keeps_what_was_stored_through_a_mapping(used: Mounted, end: str) -> None:
    mapper = subprocess.Popen(
        [sys.executable, "-c", MAPPER], cwd=used.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert mapper.stdout is not None
    assert mapper.stdout.readline() == "stored\n"
    if end == "SIGTERM":
        os.kill(used.record().pid, signal.SIGTERM)
        await_end(used)
    else:
        agentfsd("umount", "--lazy", str(used.path))
    mapper.communicate("end\n")
    await_end(used)
    used.mount()
    assert (used.path / "file").read_bytes() == b"CHANGED after the snapshot"


def abort(mounted: Mounted) -> None:
    """Breaks the connection, as an administrator would whose daemon hangs."""
    if not any(FUSECTL.iterdir()):
        subprocess.run(["mount", "-t", "fusectl", "none", FUSECTL], check=True)
    found = FUSECTL / str(os.minor(mounted.path.stat().st_dev)) / "abort"
    found.write_text("1")


@pytest.fixture(autouse=True)
def _leave_no_fusectl() -> Iterator[None]:
    had = mount_table.mount_at(str(FUSECTL))
    yield
    if had is None and mount_table.mount_at(str(FUSECTL)) is not None:
        subprocess.run(["umount", FUSECTL], check=True)


def test_stopped_daemon_goes_on_where_it_was(used: Mounted) -> None:
    os.kill(used.record().pid, signal.SIGSTOP)
    try:
        reader = subprocess.Popen(["cat", used.path / "kept"], stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            reader.wait(0.5)
    finally:
        os.kill(used.record().pid, signal.SIGCONT)
    assert reader.communicate(timeout=20)[0] == b"kept in main"
    check_intact(used)


def test_a_stopped_daemon_does_not_hang_whoever_is_killed(used: Mounted) -> None:
    os.kill(used.record().pid, signal.SIGSTOP)
    try:
        reader = subprocess.Popen(["cat", used.path / "kept"], stdout=subprocess.DEVNULL)
        time.sleep(0.3)
        reader.kill()
        reader.wait(10)
    finally:
        os.kill(used.record().pid, signal.SIGCONT)
    check_intact(used)


def test_mount_point_that_is_busy_is_told_and_stays(used: Mounted) -> None:
    inside = subprocess.Popen(["sleep", "60"], cwd=used.path)
    try:
        done = agentfsd("umount", str(used.path), check=False)
        assert done.returncode == 1
        assert f"is in use by process {inside.pid} sleep" in done.stderr
        assert "--lazy" in done.stderr
    finally:
        inside.kill()
        inside.wait()
    check_intact(used)
    agentfsd("umount", str(used.path))


def test_mounting_twice_at_once_gives_one_mount(used: Mounted) -> None:
    agentfsd("umount", str(used.path))
    command = [*AGENTFSD, "mount", str(used.lower), str(used.path), "--state", str(used.state)]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=60)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1, 1]
    assert not any("Traceback" in text for text in said)
    assert len([mount for mount in mount_table.mount_table() if mount.mountpoint == os.path.realpath(used.path)]) == 1
    check_intact(used)
