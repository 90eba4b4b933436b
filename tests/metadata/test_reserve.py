"""Room taken in advance: there when the disk is full, and never in the way of a start."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.metadata.reserve import Reserve
from agentfsd.metadata.store import Store
from tests.mounted import needs_root

MIB = 1 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    needs_root()
    where = tmp_path / "small"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", where], check=True)
    yield where
    subprocess.run(["umount", "--lazy", where], check=True)


def fill(where: Path, keep_bytes: int = 0) -> None:
    room = os.statvfs(where)
    with (where / "filler").open("ab") as file:
        os.posix_fallocate(file.fileno(), file.tell(), room.f_bavail * room.f_frsize - keep_bytes)


def test_a_full_disk_has_it_once(small: Path) -> None:
    reserve = Reserve(str(small / "reserve"))
    reserve.keep()
    assert reserve.size_bytes == 4 * MIB
    fill(small)
    assert reserve.use()
    assert os.statvfs(small).f_bavail * os.statvfs(small).f_frsize == 4 * MIB
    assert (reserve.use(), reserve.size_bytes) == (False, 0)


def test_it_takes_less_where_there_is_little_and_more_later(small: Path) -> None:
    fill(small, 2 * MIB)
    reserve = Reserve(str(small / "reserve"))
    reserve.keep()
    assert reserve.size_bytes == MIB
    os.truncate(small / "filler", 0)
    reserve.keep()
    assert reserve.size_bytes == 4 * MIB == os.stat(small / "reserve").st_blocks * 512


def test_none_is_kept_where_there_is_no_room(small: Path) -> None:
    fill(small)
    reserve = Reserve(str(small / "reserve"))
    reserve.keep()
    assert (reserve.size_bytes, os.path.exists(small / "reserve")) == (0, False)


def test_a_database_on_a_full_disk_opens_with_what_a_killed_daemon_had_kept(small: Path) -> None:
    pid = os.fork()
    if pid == 0:
        store = Store.open(str(small / "meta.db"), "/l")
        for number in range(2000):
            with store.transaction():
                store.put_fact(f"fact {number}", "x" * 200)
        fill(small)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    store = Store.open(str(small / "meta.db"), "/l")
    assert store.fact("fact 1999") == "x" * 200
    store.close()


def test_a_database_for_which_there_is_no_room_is_not_called_damaged(small: Path) -> None:
    fill(small)
    with pytest.raises(OSError) as caught:
        Store.open(str(small / "meta.db"), "/l")
    assert caught.value.errno == errno.ENOSPC
    assert "no room" in str(caught.value)
