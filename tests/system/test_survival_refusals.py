"""Daemons that cannot be replaced, or whose keeper has ended meanwhile: what is said, and that nothing is lost."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounted import AGENTFSD, Mounted, needs_root
from tests.system.survival.killing import has_keeper, kill_daemon, until


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    needs_root()
    where = tmp_path / "small"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", where], check=True)
    yield where
    subprocess.run(["umount", "--lazy", where], check=True)


def fill(where: Path) -> None:
    with contextlib.suppress(OSError), (where / "filler").open("ab", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_full_disk_refuses_an_update_and_outlives_a_kill(small: Path, tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    mounted.state = small / "state"
    mounted.mount()
    try:
        before = has_keeper(mounted)
        for number in range(100):
            (mounted.path / f"file{number}").write_text(f"{number}\n")
        with (mounted.path / "unlinked").open("w+") as held:
            held.write("held\n")
            held.flush()
            (mounted.path / "unlinked").unlink()
            os.kill(before.pid, signal.SIGSTOP)
            (mounted.state / "meta.db-reserve").unlink()
            fill(small)
            os.kill(before.pid, signal.SIGCONT)
            refused = mounted.cli("restart", check=False)
            assert (refused.returncode, mounted.record()) == (1, before)
            assert "the metadata cannot be committed: database or disk is full" in refused.stderr
            os.kill(before.pid, signal.SIGKILL)
            assert (mounted.path / "file99").read_text() == "99\n"
            with pytest.raises(OSError, match="No space left"):
                (mounted.path / "new").write_text("new")
            until(lambda: "no room is left where contents are kept" in mounted.cli("status").stdout)
            (small / "filler").unlink()
            mounted.cli("restart")
            (mounted.path / "new").write_text("new")
            assert os.pread(held.fileno(), 9, 0) == b"held\n"
        assert [(mounted.path / f"file{number}").read_text() for number in range(100)] == [f"{n}\n" for n in range(100)]
        assert mounted.fsck() == []
    finally:
        mounted.end()


def children(parent: int) -> list[int]:
    """Of a process, those that run a daemon."""
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in found if b"agentfsd.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def is_waiting(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "S"


def test_keeper_that_is_killed_once_it_has_started_a_daemon_is_replaced(make_mount: Callable[..., Mounted]) -> None:
    mounted = make_mount()
    (mounted.path / "file").write_text("kept\n")
    with open(mounted.path / "file") as held:
        before = has_keeper(mounted)
        os.kill(before.pid, signal.SIGKILL)
        until(lambda: children(before.keeper) != [] and is_waiting(before.keeper))  # all is handed over
        os.kill(before.keeper, signal.SIGKILL)
        assert held.read() == "kept\n"
        until(lambda: mounted.record().keeper not in (0, before.keeper))
        kill_daemon(mounted)
        assert os.pread(held.fileno(), 9, 0) == b"kept\n"


def test_two_updates_at_once_are_one(make_mount: Callable[..., Mounted]) -> None:
    mounted = make_mount()
    has_keeper(mounted)
    command = [*AGENTFSD, "restart", "-m", str(mounted.path)]
    updates = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    said = [update.communicate(timeout=100) for update in updates]
    assert sorted(update.returncode for update in updates)[0] == 0
    for update, (_, refused) in zip(updates, said, strict=True):
        assert update.returncode == 0 or "this daemon is being replaced already" in refused
