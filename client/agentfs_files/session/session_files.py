"""Store a tree of sessions as a file of JSON lines, the root first, and the file system beside it as a ZIP."""

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from agentfs_files.filesystem.filesystem_protocol import ArchivableFilesystem, Filesystem
from agentfs_files.session.agent_session import Session
from agentfs_files.session.event_bus import EventBus
from agentfs_files.session.session_snapshot import SessionFormatError, Snapshot


class HasFilesystem(Protocol):
    @property
    def filesystem(self) -> Filesystem: ...


def dump_session_tree(session: Session, target: Path, *, filesystem_section: HasFilesystem | None = None) -> Path | None:
    """Write ``ID.jsonl``, and with a section ``ID.fs.zip`` beside it. ID is the session's tag ``session_id``.

    Args:
        session: the root of the tree.
        target: a directory, or a file in it.
        filesystem_section: the section whose file system is written.

    Returns:
        The path of the sessions' file; None if all sessions are empty.
    """
    directory = target if target.is_dir() or not target.suffix else target.parent
    directory.mkdir(parents=True, exist_ok=True)
    name = _file_name(session)
    if filesystem_section is not None:
        filesystem = filesystem_section.filesystem
        if not isinstance(filesystem, ArchivableFilesystem):
            raise TypeError(f"{type(filesystem).__name__} has no export_archive(), so it cannot be written beside the session")
        filesystem.export_archive(directory / f"{name}.fs.zip")
    snapshots = [each.capture() for each in _tree(session)]
    if not any(snapshot.slices for snapshot in snapshots):
        return None
    path = directory / f"{name}.jsonl"
    _replace(path, b"".join(snapshot.to_json() + b"\n" for snapshot in snapshots))
    return path


def load_session(path: Path | str, *, types: Iterable[type[Any]] = (), bus: EventBus | None = None) -> Session:
    """Read a tree of sessions and return its root. Reducers and named snapshots are not restored.

    Args:
        types: types of items that cannot be found by name.

    Raises:
        SessionFormatError: the file is not a valid tree of sessions.
    """
    types = tuple(types)
    known: dict[uuid.UUID, Session] = {}
    for line in Path(path).read_bytes().splitlines():
        snapshot = Snapshot.from_json(line, types)
        parent = None if snapshot.parent_session_id is None else known.get(snapshot.parent_session_id)
        if known and parent is None:
            raise SessionFormatError(f"{path}: the session {snapshot.session_id} stands before the one that it belongs to")
        session = Session(
            bus, tags=snapshot.tags, parent=parent, session_id=snapshot.session_id, created_at=snapshot.session_created_at
        )
        session.restore(snapshot)
        known[snapshot.session_id] = session
    if not known:
        raise SessionFormatError(f"{path} holds no session")
    return next(iter(known.values()))


def _tree(session: Session) -> Iterator[Session]:
    yield session
    for child in session.children:
        yield from _tree(child)


def _file_name(session: Session) -> str:
    name = session.tags["session_id"]
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise ValueError(f"the tag session_id, {name!r}, cannot be the name of a file")
    return name


def _replace(path: Path, data: bytes) -> None:
    """Write a file completely or not at all."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
