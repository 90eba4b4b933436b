"""Room taken in advance: there when the disk is full, and never in the way of a start."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agentfs_client.registry import DaemonRecord
from agentfsd.backstore.free_space import FreeSpace
from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.metadata import database, inspection
from agentfsd.metadata.reserve import Reserve
from agentfsd.metadata.row_store import Store
from agentfsd.state.daemon_records import publish
from agentfsd.state.state_directory import StateDirectory
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
    wanted = room.f_bavail * room.f_frsize - keep_bytes
    with (where / "filler").open("ab") as file:
        if wanted > 0:
            os.posix_fallocate(file.fileno(), file.tell(), wanted)


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
                store.put_value(f"fact {number}", "x" * 200)
        fill(small)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    store = Store.open(str(small / "meta.db"), "/l")
    assert store.value("fact 1999") == "x" * 200
    store.close()


def test_a_database_that_was_closed_on_a_full_disk_opens_there(small: Path) -> None:
    store = Store.open(str(small / "meta.db"), "/l")
    with store.transaction():
        store.put_value("a", "b")
    assert store.reserve.use()
    fill(small)
    store.close()
    fill(small)
    store = Store.open(str(small / "meta.db"), "/l")
    with store.transaction():
        store.put_value("c", "d")
    store.close()
    fill(small)
    store = Store.open(str(small / "meta.db"), "/l")
    assert (store.value("a"), store.value("c")) == ("b", "d")
    store.close()


@pytest.mark.parametrize("has_reserve", [True, False])
@pytest.mark.parametrize("value_bytes", [200, 1000])  # with the smaller ones the log fits into the journal's room
def test_a_log_that_no_room_is_left_to_take_up_is_no_damage(small: Path, value_bytes: int, has_reserve: bool) -> None:
    path = str(small / "meta.db")
    store = Store.open(path, "/l")
    for number in range(1600):
        with store.transaction():
            store.put_value(f"fact {number}", "x" * value_bytes)
    store.commit()
    if not has_reserve:
        assert store.reserve.use()
    fill(small)
    store.close()
    found = inspection.inspect(path)
    assert (found.damage, found.notes) == ([], [])
    assert os.path.exists(path + database.JOURNAL) == (not has_reserve)
    store = Store.open(path, "/l")
    assert all(store.value(f"fact {number}") == "x" * value_bytes for number in range(1600))
    store.close()


def test_a_daemon_tells_of_itself_on_a_full_disk(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    record = DaemonRecord(
        pid=1, start_ticks=1, lower="/l" * 99, mountpoint="/m", socket="/s", state=str(small), started_ns=1, hidden=False
    )
    publish(record)
    fill(small)
    publish(msgspec.structs.replace(record, lower="/l", pid=2))
    found = StateDirectory(str(small)).last_record()
    assert found is not None
    assert (found.pid, found.lower) == (2, "/l")
    assert sorted(os.listdir(small)) == ["daemon.json", "filler"]


def test_full_is_told_once_and_its_end_once(small: Path) -> None:
    backstore = HostBackstore(str(small / "objects"))
    room = FreeSpace(backstore)
    assert (room.has_changed(), room.is_full) == (False, False)
    fill(small)
    assert (room.has_changed(), room.is_full) == (True, True)
    assert not room.has_changed()
    os.truncate(small / "filler", (small / "filler").stat().st_size - MIB - MIB // 2)
    assert (room.has_changed(), room.is_full) == (False, True)
    os.truncate(small / "filler", 0)
    assert (room.has_changed(), room.is_full) == (True, False)
    backstore.close()


def test_a_database_for_which_there_is_no_room_is_not_called_damaged(small: Path) -> None:
    fill(small)
    with pytest.raises(OSError) as caught:
        Store.open(str(small / "meta.db"), "/l")
    assert caught.value.errno == errno.ENOSPC
    assert "no room" in str(caught.value)
