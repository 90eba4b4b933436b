"""Slices, reducers, snapshots of a session, and its tree as a file."""

import gc
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.filesystem_errors import SnapshotIncompatibleError, SnapshotNotFoundError
from agentfs_files.filesystem.records import FilesystemSnapshot
from agentfs_files.session.agent_session import Session
from agentfs_files.session.event_bus import InProcessEventBus
from agentfs_files.session.reducers import append_all, replace_latest, upsert_by
from agentfs_files.session.session_files import dump_session_tree, load_session
from agentfs_files.session.session_snapshot import SessionFormatError, Snapshot


@dataclass(slots=True, frozen=True)
class Note:
    key: str
    text: str = ""


@dataclass(slots=True, frozen=True)
class Progress:
    done: int = 0


class Step(msgspec.Struct, frozen=True):
    by: int = 1


class BigStep(Step, frozen=True):
    pass


def advance(items: tuple[Progress, ...], event: Step) -> tuple[Progress, ...]:
    return (Progress((items[-1].done if items else 0) + event.by),)


def test_items_are_kept_by_type_in_order() -> None:
    session = Session()
    assert session[Note].latest() is None
    session[Note].append(Note("a"))
    session[Note].append(Note("b"))
    session[Progress].append(Progress(1))
    assert session[Note].all() == (Note("a"), Note("b"))
    assert session[Note].latest() == Note("b")
    assert session[Note].where(lambda note: note.key == "a") == (Note("a"),)
    assert session[Progress].all() == (Progress(1),)
    session[Note].clear()
    assert session[Note].all() == ()
    session[Note].seed([Note("c"), Note("d")])
    session[Progress].seed(Progress(7))
    assert (session[Note].all(), session[Progress].all()) == ((Note("c"), Note("d")), (Progress(7),))
    with pytest.raises(TypeError, match="Note does not take a Progress"):
        session[Note].append(Progress(1))  # type: ignore[arg-type]


def test_reducers_decide_what_an_event_does() -> None:
    session = Session()
    session[Progress].register(Step, advance)
    session[Note].register(Note, upsert_by(lambda note: note.key))
    assert session.dispatch(Step(2)) == 1
    assert session.dispatch(BigStep(40)) == 1
    assert session[Progress].all() == (Progress(42),)
    for note in (Note("a", "1"), Note("b", "1"), Note("a", "2")):
        session[Note].append(note)
    assert session[Note].all() == (Note("a", "2"), Note("b", "1"))
    session[Note].register(Note, replace_latest)
    session[Note].append(Note("z"))
    assert session[Note].all() == (Note("z"),)
    assert session.dispatch("an event that nobody knows") == 0
    session.mutate(Progress).dispatch(Step(1))
    assert session.mutate(Progress).latest() == Progress(43)


def test_event_that_one_reducer_refuses_changes_no_slice() -> None:
    def refuse(items: tuple[Note, ...], event: Step) -> tuple[Note, ...]:
        raise ValueError("not now")

    session = Session()
    session[Progress].register(Step, advance)
    session[Note].register(Step, refuse)
    with pytest.raises(ValueError, match="not now"):
        session.dispatch(Step())
    assert session[Progress].all() == ()


def test_sessions_hear_what_is_published_and_end_without_the_bus() -> None:
    bus = InProcessEventBus()
    session, seen = Session(bus=bus), list[Step]()
    child = Session(parent=session)
    for each in (session, child):
        each[Progress].register(Step, advance)
    bus.subscribe(Step, seen.append)
    bus.publish(BigStep(5))
    assert (session[Progress].latest(), child[Progress].latest(), seen) == (Progress(5), Progress(5), [BigStep(5)])
    bus.unsubscribe(Step, seen.append)
    del session, child, each
    gc.collect()
    assert bus.publish(Step()) == 0


def test_rollback_brings_every_slice_back() -> None:
    session = Session()
    session[Progress].register(Step, advance)
    session.dispatch(Step())
    before = session.snapshot("before")
    session.dispatch(Step())
    session[Note].append(Note("later"))
    after = session.snapshot()
    session.rollback("before")
    assert (session[Progress].all(), session[Note].all()) == ((Progress(1),), ())
    session.rollback(after.snapshot_id)
    assert (session[Progress].all(), session[Note].all()) == ((Progress(2),), (Note("later"),))
    session.restore(before)
    session.dispatch(Step())
    assert session[Progress].all() == (Progress(2),)  # the reducer is still there
    assert before.slices == {Progress: (Progress(1),)}
    assert session.list_snapshots() == (before, after)


def test_snapshot_cannot_be_changed() -> None:
    session = Session(tags={"for": "test"})
    session[Note].append(Note("a"))
    snapshot = session.snapshot()
    with pytest.raises(TypeError):
        snapshot.slices[Note] = ()  # type: ignore[index]
    with pytest.raises(TypeError):
        snapshot.tags["for"] = "else"  # type: ignore[index]
    session[Note].append(Note("b"))
    assert snapshot.slices[Note] == (Note("a"),)


def test_unknown_snapshot_is_named_and_nothing_changes() -> None:
    session = Session()
    session[Note].append(Note("a"))
    session.snapshot("known")
    with pytest.raises(SnapshotNotFoundError, match="Snapshot not found: other; this session has known"):
        session.rollback("other")
    with pytest.raises(KeyError):
        session.rollback("other")
    with pytest.raises(SnapshotIncompatibleError):
        session.rollback(InMemoryFilesystem().snapshot())  # type: ignore[arg-type]
    assert session[Note].all() == (Note("a"),)


def test_snapshot_travels_as_json() -> None:
    session = Session(tags={"agent": "coder"})
    taken = InMemoryFilesystem({"a": "x"}).snapshot(tag="t")
    session[FilesystemSnapshot].register(FilesystemSnapshot, append_all)
    session[FilesystemSnapshot].append(taken)
    session[Note].append(Note("a", "ü\n"))
    session[Step].append(BigStep(3))
    snapshot = session.snapshot("s")
    read = Snapshot.from_json(snapshot.to_json())
    assert (read.snapshot_id, read.session_id, read.tags, read.created_at) == (
        "s", session.session_id, session.tags, snapshot.created_at,
    )  # fmt: skip
    assert dict(read.slices) == {FilesystemSnapshot: (taken,), Note: (Note("a", "ü\n"),), Step: (Step(3),)}
    assert b"\n" not in snapshot.to_json()


def test_types_of_a_function_are_given_by_hand_and_strange_ones_refused() -> None:
    @dataclass(frozen=True)
    class Local:
        x: int

    session = Session()
    session[Local].append(Local(1))
    written = session.snapshot().to_json()
    with pytest.raises(SessionFormatError, match="give the type in types="):
        Snapshot.from_json(written)
    assert Snapshot.from_json(written, types=[Local]).slices == {Local: (Local(1),)}
    with pytest.raises(SessionFormatError, match="is not known here"):
        Snapshot.from_json(written.replace(Local.__qualname__.encode(), b"subprocess.Popen"))
    with pytest.raises(SessionFormatError, match="not as that type is now"):
        Snapshot.from_json(written.replace(b'{"x":1}', b'{"x":"?"}'), types=[Local])
    for other in (b"{}", b'{"sn\xafpshot_id": 1}', b'{"snapshot_id": "\xaf"}'):
        with pytest.raises(SessionFormatError, match="not a snapshot of a session"):
            Snapshot.from_json(other)
    session[object].append(object())
    with pytest.raises(TypeError, match="object cannot be written as JSON"):
        session.snapshot().to_json()


def test_tree_of_sessions_is_dumped_and_loaded(tmp_path: Path) -> None:
    root = Session(tags={"agent": "root"})
    child, other = Session(parent=root), Session(parent=root, tags={"agent": "other"})
    grandchild = Session(parent=child)
    root[Note].append(Note("root"))
    grandchild[Note].append(Note("deep"))
    path = dump_session_tree(root, tmp_path)
    assert path == tmp_path / f"{root.session_id}.jsonl"
    assert len(path.read_text().splitlines()) == 4
    loaded = load_session(path)
    assert (loaded.session_id, loaded.tags, loaded.created_at) == (root.session_id, root.tags, root.created_at)
    assert [each.session_id for each in loaded.children] == [child.session_id, other.session_id]
    assert loaded.children[0].children[0][Note].all() == (Note("deep"),)
    assert loaded.children[0].parent is loaded
    assert loaded.children[0].tags["parent_session_id"] == str(root.session_id)
    assert sorted(tmp_path.iterdir()) == [path]


def test_where_a_session_is_dumped(tmp_path: Path) -> None:
    session = Session(tags={"session_id": "abc123"})
    assert dump_session_tree(session, tmp_path) is None
    assert isinstance(session.session_id, UUID)
    session[Note].append(Note("a"))
    assert dump_session_tree(session, tmp_path / "some.jsonl") == tmp_path / "abc123.jsonl"
    assert dump_session_tree(session, tmp_path / "new" / "place") == tmp_path / "new" / "place" / "abc123.jsonl"
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        dump_session_tree(Session(tags={"session_id": "../up"}), tmp_path)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(SessionFormatError, match="holds no session"):
        load_session(empty)
