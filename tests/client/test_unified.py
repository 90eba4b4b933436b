"""A session and a file system go back together, or not at all."""

from dataclasses import dataclass

import pytest

from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.filesystem_errors import SnapshotRestoreError
from agentfs_files.filesystem.records import FilesystemSnapshot
from agentfs_files.session.agent_session import Session
from agentfs_files.session.reducers import append_all
from agentfs_files.session.session_snapshot import Snapshot
from agentfs_files.session.unified import (
    FilesystemSnapshotRef,
    create_unified_snapshot,
    restore_unified_snapshot,
    rollback_to,
)


@dataclass(frozen=True)
class Turn:
    number: int


class Stubborn(Session):
    def restore(self, snapshot: Snapshot) -> None:
        raise RuntimeError("no way back")


def test_both_are_taken_and_brought_back() -> None:
    session, filesystem = Session(), InMemoryFilesystem({"a": "1"})
    session[Turn].append(Turn(1))
    taken, fs_taken = create_unified_snapshot(session, filesystem, "vfs.tools")
    assert taken.slices[FilesystemSnapshotRef] == (FilesystemSnapshotRef("vfs.tools", fs_taken.snapshot_id, "in_memory"),)
    session[Turn].append(Turn(2))
    filesystem.write("a", "2")
    filesystem.write("b", "2")
    restore_unified_snapshot(session, filesystem, taken, fs_taken)
    assert session[Turn].all() == (Turn(1),)
    assert filesystem.read("a").content == "1"
    assert not filesystem.exists("b")
    assert filesystem.current_snapshot_id == fs_taken.snapshot_id


def test_rollback_to_the_filesystem_that_the_session_had() -> None:
    session, filesystem = Session(), InMemoryFilesystem({"a": "1"})
    session[FilesystemSnapshot].register(FilesystemSnapshot, append_all)
    before = session.snapshot()
    session[FilesystemSnapshot].append(filesystem.snapshot(tag="first"))
    first = session.snapshot()
    filesystem.write("a", "2")
    session[FilesystemSnapshot].append(filesystem.snapshot(tag="second"))
    filesystem.write("a", "3")
    rollback_to(session, first, filesystem)
    assert filesystem.read("a").content == "1"
    assert [snapshot.tag for snapshot in session[FilesystemSnapshot].all()] == ["first"]
    rollback_to(session, before, filesystem)
    assert filesystem.read("a").content == "1"
    assert session[FilesystemSnapshot].all() == ()


def test_filesystem_is_as_it_was_when_the_session_cannot_follow() -> None:
    session, filesystem = Stubborn(), InMemoryFilesystem({"a": "1"})
    taken, fs_taken = create_unified_snapshot(session, filesystem, "key")
    filesystem.write("a", "2")
    with pytest.raises(RuntimeError, match="no way back"):
        restore_unified_snapshot(session, filesystem, taken, fs_taken)
    assert filesystem.read("a").content == "2"


def test_session_stays_when_the_filesystem_cannot_go_back() -> None:
    session, filesystem = Session(), InMemoryFilesystem({"a": "1"})
    foreign = InMemoryFilesystem().snapshot()
    taken = session.snapshot()
    session[Turn].append(Turn(1))
    with pytest.raises(SnapshotRestoreError):
        restore_unified_snapshot(session, filesystem, taken, foreign)
    assert session[Turn].all() == (Turn(1),)
    assert filesystem.read("a").content == "1"
