"""The audit trail on disk: what is asked for comes in order, the oldest go first, and a broken file is no obstacle."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfsd.telemetry.audit_database import KILLED, LOST, UNREADABLE, AuditDatabase, AuditQuery, AuditRecord

SOME_BYTES = 1 << 18
ALL = AuditQuery()


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[AuditDatabase]:
    made = AuditDatabase(str(tmp_path / "audit.db"), SOME_BYTES)
    yield made
    made.close()


def record(number: int, **other: object) -> AuditRecord:
    return AuditRecord(number, "id", "one", 0, 7, "sh", "created", b"f%d" % number, b"", "")._replace(**other)  # type: ignore[arg-type]


def times(trail: AuditDatabase, question: AuditQuery = ALL, limit: int = 1000) -> list[int]:
    return [found.time_ns for found in trail.read(question, lambda _: True, limit)]


def test_the_last_come_in_the_order_in_which_they_happened(trail: AuditDatabase) -> None:
    trail.write([record(number) for number in range(1, 3001)], {})
    assert times(trail, limit=3) == [2998, 2999, 3000]
    assert len(times(trail, limit=2500)) == 2500
    seen = trail.read(AuditQuery(), lambda _: True, 10)
    assert times(trail, AuditQuery(after=seen[-2].id)) == [3000]


def test_only_what_is_asked_for_comes(trail: AuditDatabase) -> None:
    others = [record(2, pid=8), record(3, kind="deleted"), record(4, branch_id="other", branch="two"), record(5)]
    trail.write([record(1), *others], {})
    assert times(trail, AuditQuery(pid=8)) == [2]
    assert times(trail, AuditQuery(kind="deleted")) == [3]
    assert times(trail, AuditQuery(branch="two")) == [4]
    assert times(trail, AuditQuery(branch_id="id", since_ns=3)) == [3, 5]
    assert [found.time_ns for found in trail.read(AuditQuery(), lambda one: one.path == b"f4", 10)] == [4]


def test_a_span_of_time_has_two_ends(trail: AuditDatabase) -> None:
    trail.write([record(number) for number in range(1, 10)], {})
    assert times(trail, AuditQuery(since_ns=3, until_ns=5)) == [3, 4, 5]


def test_times_far_beyond_all_that_was_kept(trail: AuditDatabase) -> None:
    kept = times(trail)
    assert times(trail, AuditQuery(since_ns=1 << 70)) == []
    assert times(trail, AuditQuery(since_ns=-(1 << 70), until_ns=1 << 70)) == kept
    assert times(trail, AuditQuery(pid=1 << 70)) == []
    assert times(trail, AuditQuery(after=1 << 70)) == []


def test_who_asks_for_a_part_is_told_that_some_is_missing(trail: AuditDatabase) -> None:
    trail.write([record(1), record(2, kind=LOST, branch_id="", branch="", pid=0, name="7"), record(3, branch_id="other")], {})
    assert times(trail, AuditQuery(branch_id="id")) == [1, 2]
    assert times(trail, AuditQuery(pid=7, since_ns=2)) == [2, 3]
    assert times(trail, AuditQuery(until_ns=1)) == [1]
    assert times(trail, AuditQuery(kind="created")) == [1, 3]
    assert [found.time_ns for found in trail.read(AuditQuery(), lambda one: False, 10)] == [2]


def test_it_stays_within_its_bounds_and_keeps_the_newest(trail: AuditDatabase, tmp_path: Path) -> None:
    for begin in range(0, 20_000, 1000):
        trail.write([record(number, path=b"p" * 100) for number in range(begin, begin + 1000)], {"id": begin})
        assert trail.size_bytes() <= SOME_BYTES
    found = times(trail, limit=20_000)
    assert found == list(range(found[0], 20_000))
    assert 500 < len(found) < 3000
    assert sum(path.stat().st_size for path in tmp_path.glob("audit.db*")) < 2 * SOME_BYTES
    assert trail.changed() == {"id": 19_000}


def test_less_room_takes_effect_at_the_next_write(trail: AuditDatabase, tmp_path: Path) -> None:
    trail.write([record(number) for number in range(2000)], {})
    trail.max_bytes = 1 << 16
    trail.write([record(2000)], {})
    assert os.path.getsize(tmp_path / "audit.db") <= 1 << 16
    assert times(trail)[-1] == 2000


def test_what_cannot_be_read_is_moved_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.db"
    path.write_bytes(b"no database" * 1000)
    trail = AuditDatabase(str(path), SOME_BYTES)
    trail.write([record(1)], {})
    assert times(trail) == [1]
    trail.close()
    assert trail.gap == UNREADABLE
    assert "moved aside" in caplog.text
    assert (tmp_path / "audit.db.unreadable").read_bytes().startswith(b"no database")


@pytest.mark.parametrize("use", [times, lambda trail: trail.write([record(2)], {}), AuditDatabase.changed])
def test_damage_within_is_an_error_once_and_then_a_gap(use: Callable[[AuditDatabase], object], tmp_path: Path) -> None:
    trail = AuditDatabase(str(tmp_path / "audit.db"), SOME_BYTES)
    trail.write([record(number) for number in range(1000)], {"id": 7})
    trail.close()
    with open(tmp_path / "audit.db", "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    trail = AuditDatabase(str(tmp_path / "audit.db"), SOME_BYTES)
    with pytest.raises(sqlite3.DatabaseError):
        use(trail)
    trail.write([record(3)], {})
    assert [(found.kind, found.name) for found in trail.read(ALL, lambda _: True, 10)] == [(LOST, UNREADABLE), ("created", "")]
    trail.close()


def test_what_was_written_is_there_after_a_kill(tmp_path: Path) -> None:
    """Whoever is killed closes nothing: its log is read by the next."""
    trail = AuditDatabase(str(tmp_path / "audit.db"), SOME_BYTES)
    trail.write([record(1)], {})
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in tmp_path.glob("audit.db*"):
        (copy / path.name).write_bytes(path.read_bytes())
    again = AuditDatabase(str(copy / "audit.db"), SOME_BYTES)
    assert times(again) == [1]
    assert (trail.gap, again.gap) == ("", KILLED)
    again.close()
    trail.close()
    ended = AuditDatabase(str(copy / "audit.db"), SOME_BYTES)
    assert ended.gap == ""
    ended.close()


def test_a_failed_write_leaves_no_half_of_it(trail: AuditDatabase) -> None:
    with pytest.raises(sqlite3.Error):
        trail.write([record(1), record(2, kind=None)], {})
    assert times(trail) == []
    trail.write([record(3)], {})
    assert times(trail) == [3]
