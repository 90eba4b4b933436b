"""What the audit trail makes of what it hears, without a mount."""

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from agentfsd.binding.table import Bindings
from agentfsd.core.branch_events import BranchEvent, EventKind
from agentfsd.telemetry import audit_trail as auditing
from agentfsd.telemetry.audit_database import AuditQuery, AuditRecord
from agentfsd.telemetry.audit_trail import AuditTrail
from agentfsd.telemetry.process_identity import ProcessIdentifier
from agentfsd.types import Caller
from tests.overlays import Opened


@pytest.fixture
def audit(opened: Opened, tmp_path: Path) -> Iterator[AuditTrail]:
    bindings = Bindings()
    made = AuditTrail(opened.overlay, ProcessIdentifier(bindings, opened.overlay), str(tmp_path / "audit.db"))
    made.set(enabled=True, max_bytes=1 << 20)
    yield made
    made.close()
    bindings.close()
    assert opened.overlay.events.listeners == []


def tell(opened: Opened, kind: EventKind, path: bytes, pid: int = os.getpid()) -> None:
    opened.overlay.events.publish(BranchEvent(kind, opened.overlay.default_id, pid, opened.tree().root, path))


def records(audit: AuditTrail) -> list[AuditRecord]:
    return trio.run(audit.read, AuditQuery(), lambda _: True, 1000)


def test_each_record_says_who_and_where(audit: AuditTrail, opened: Opened) -> None:
    tell(opened, "created", b"d/f")
    (found,) = records(audit)
    assert (found.branch, found.kind, found.path) == ("main", "created", b"d/f")
    assert (found.pid, found.uid) == (os.getpid(), os.geteuid())
    assert found.command == Path("/proc/self/comm").read_text().strip()
    assert audit.changed == {opened.overlay.default_id: found.time_ns}


def test_writes_to_one_file_are_one_record_for_each_process(audit: AuditTrail, opened: Opened) -> None:
    other = subprocess.Popen(["sleep", "60"])
    for _ in range(100):
        tell(opened, "modified", b"f")
        tell(opened, "modified", b"f", other.pid)
    other.kill()
    other.wait()
    assert sorted(found.pid for found in records(audit)) == sorted([os.getpid(), other.pid])
    tell(opened, "modified", b"f")  # after it was written down
    assert len(records(audit)) == 3


def test_a_watcher_hears_of_each_write_though_the_trail_needs_one(audit: AuditTrail, opened: Opened) -> None:
    """Overlay.last_write spares a single listener what it knows."""
    inode, heard = opened.write("f", b"x"), list[BranchEvent]()

    def write() -> None:
        if opened.overlay.events.is_news((inode.tree.id, inode.ino, os.getpid())):
            opened.overlay.events.publish(BranchEvent("modified", inode.tree.id, os.getpid(), inode))

    write()
    assert opened.overlay.events.last_write is not None
    opened.overlay.events.listeners.append(heard.append)
    write()
    write()
    opened.overlay.events.listeners.remove(heard.append)
    assert (len(heard), len(records(audit))) == (2, 1)
    assert opened.overlay.events.last_write is None
    write()
    assert len(records(audit)) == 2


def test_a_binding_is_of_whoever_asked_for_it(audit: AuditTrail, opened: Opened) -> None:
    other = subprocess.Popen(["sleep", "60"])
    while Path(f"/proc/{other.pid}/comm").read_text() != "sleep\n":
        time.sleep(0.01)
    opened.overlay.events.publish(BranchEvent("bound", opened.overlay.default_id, other.pid, by=os.getpid()))
    opened.overlay.events.publish(BranchEvent("bound", opened.overlay.default_id, os.getpid(), by=os.getpid()))
    other.kill()
    other.wait()
    assert [(found.pid, found.name) for found in records(audit)] == [
        (os.getpid(), f"process {other.pid} sleep"),
        (os.getpid(), ""),
    ]


def test_who_cannot_be_seen_here_has_at_least_a_user(audit: AuditTrail) -> None:
    audit.note("policy", Caller(0, 1234, 0), name="a = b")
    (found,) = records(audit)
    assert (found.pid, found.uid, found.command, found.branch, found.name) == (0, 1234, "", "", "a = b")


def test_what_is_too_much_is_counted(audit: AuditTrail, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "WAITING_MAX", 2)
    for number in range(5):
        tell(opened, "created", b"%d" % number)
    assert [(found.kind, found.name) for found in records(audit)] == [("created", ""), ("created", ""), ("lost", "3")]
    assert audit.lost == 3


def test_a_disk_that_is_full_for_a_while_loses_records_and_says_so(
    audit: AuditTrail, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    trail = audit._trail
    assert trail is not None
    trail._database.execute("PRAGMA max_page_count = 1")
    for turn in (1, 2):
        for number in range(2000):
            tell(opened, "created", b"%d" % number)
        assert [(found.kind, found.name) for found in records(audit)] == [("lost", str(turn * 2000))]
    assert caplog.text.count("cannot be written") == 1
    trail._database.execute("PRAGMA max_page_count = 100000")
    tell(opened, "created", b"after")
    found = records(audit)
    assert (found[-2].path, found[-1].kind, int(found[-1].name)) == (b"after", "lost", 4000)
    assert audit.lost == 4000


def test_switched_off_nothing_listens_and_what_was_written_stays(audit: AuditTrail, opened: Opened, tmp_path: Path) -> None:
    tell(opened, "created", b"f")
    audit.set(enabled=False, max_bytes=1 << 20)
    assert opened.overlay.events.listeners == []
    with sqlite3.connect(tmp_path / "audit.db") as database:
        assert database.execute("SELECT path FROM record").fetchall() == [(b"f",)]
    database.close()
    audit.set(enabled=True, max_bytes=1 << 20)
    assert [found.path for found in records(audit)] == [b"f"]


def test_trail_that_is_damaged_within_is_no_reason_not_to_begin(audit: AuditTrail, opened: Opened, tmp_path: Path) -> None:
    tell(opened, "created", b"f")
    audit.close()
    path = tmp_path / "audit.db"
    path.write_bytes(path.read_bytes()[:4096] + b"\xa5" * (path.stat().st_size - 4096))
    audit.set(enabled=True, max_bytes=1 << 20)
    tell(opened, "created", b"g")
    assert [(found.kind, found.name or found.path) for found in records(audit)] == [("lost", "unreadable"), ("created", b"g")]
