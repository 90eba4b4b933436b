"""What one watcher makes of what it hears: writes are put together, memory is bounded, a gap is where it belongs."""

import time
from collections.abc import Iterator

import pytest
import trio

from agentfs_client import wire
from agentfsd.control.event_stream import LIMIT, EventWatcher
from agentfsd.core import directory_entries
from agentfsd.core.branch_events import BranchEvent, EventKind
from agentfsd.core.tree import Inode
from tests.overlays import Opened

QUIET_S = 0.2


@pytest.fixture
def watcher(opened: Opened) -> Iterator[EventWatcher]:
    made = EventWatcher(opened.overlay, None)
    made.start()
    yield made
    made.stop()
    assert opened.overlay.events.listeners == []


def tell(opened: Opened, kind: EventKind, inode: Inode | None = None, path: bytes | None = None, old_path: bytes = b"") -> None:
    opened.overlay.events.publish(BranchEvent(kind, opened.overlay.default_id, 7, inode, path, old_path))


def take(watcher: EventWatcher, for_s: float = 0.0) -> list[wire.Event]:
    """All that is told now, or within that time."""

    async def collect() -> list[wire.Event]:
        found: list[wire.Event] = []
        with trio.move_on_after(for_s):
            while True:
                found += await watcher.take()
        return found

    return trio.run(collect)


def words(events: list[wire.Event]) -> list[str]:
    return [f"{event.kind} {event.path}".rstrip() for event in events]


def test_writes_are_told_at_once_and_then_together(opened: Opened, watcher: EventWatcher) -> None:
    file = opened.write("f", b"x")
    for _ in range(1000):
        tell(opened, "modified", file)
    assert words(take(watcher)) == ["modified f"]
    assert words(take(watcher, 2 * QUIET_S)) == ["modified f"]
    assert take(watcher, 2 * QUIET_S) == []
    tell(opened, "modified", file)
    assert words(take(watcher)) == ["modified f"]
    assert words(take(watcher, 3 * QUIET_S)) == []


def test_a_write_is_told_under_the_name_that_the_file_had(opened: Opened, watcher: EventWatcher) -> None:
    file = opened.write("f", b"x")
    tell(opened, "modified", file)
    tell(opened, "modified", file)
    directory_entries.rename(opened.tree(), opened.tree().root, b"f", opened.tree().root, b"g")
    tell(opened, "renamed", file, b"g", b"f")
    tell(opened, "modified", file)
    assert words(take(watcher, 2 * QUIET_S)) == ["modified f", "modified f", "renamed g", "modified g"]


def test_writes_to_what_was_deleted_are_told_no_more(opened: Opened, watcher: EventWatcher) -> None:
    file = opened.write("f", b"x")
    tell(opened, "modified", file)
    tell(opened, "modified", file)
    opened.unlink("f")
    tell(opened, "deleted", file, b"f")
    assert words(take(watcher, 2 * QUIET_S)) == ["modified f", "deleted f"]


def test_a_snapshot_comes_after_what_was_written_before(opened: Opened, watcher: EventWatcher) -> None:
    file = opened.write("f", b"x")
    tell(opened, "modified", file)
    tell(opened, "modified", file)
    tell(opened, "snapshot")
    assert words(take(watcher, 2 * QUIET_S)) == ["modified f", "modified f", "snapshot"]


def test_a_gap_is_told_where_it_is(opened: Opened, watcher: EventWatcher) -> None:
    file = opened.write("f", b"x")
    for number in range(LIMIT + 5):
        tell(opened, "created", file, b"%d" % number)
    first = trio.run(watcher.take)
    tell(opened, "created", file, b"after")
    rest = take(watcher)
    found = first + rest
    assert words(found[:LIMIT]) == [f"created {number}" for number in range(LIMIT)]
    assert [(event.kind, event.count) for event in found[LIMIT:]] == [("lost", 5), ("created", 0)]


def test_memory_is_bounded_however_much_is_written(opened: Opened, watcher: EventWatcher) -> None:
    root = opened.tree().root
    for _ in range(LIMIT + 5):
        tell(opened, "modified", Inode(opened.tree(), root, b"f"))
    found = take(watcher)
    assert [(event.kind, event.count) for event in found[LIMIT:]] == [("lost", 5)]


def test_another_branch_is_not_heard(opened: Opened) -> None:
    branch = opened.overlay.branches.create("one")
    watcher = EventWatcher(opened.overlay, branch.id)
    watcher.start()
    tell(opened, "snapshot")
    opened.overlay.events.publish(BranchEvent("snapshot", branch.id, name="s"))
    assert [(event.branch, event.name) for event in take(watcher)] == [("one", "s")]
    watcher.stop()


def test_events_say_when_and_who(opened: Opened, watcher: EventWatcher) -> None:
    before = time.time_ns()
    tell(opened, "created", opened.mkdir("d"))
    (event,) = take(watcher)
    assert (event.pid, event.branch, event.is_dir) == (7, "main", True)
    assert before <= event.time_ns <= time.time_ns()
