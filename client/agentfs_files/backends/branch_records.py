"""Translate the daemon's snapshots and errors into the records and sentences of a file system."""

import os
from datetime import UTC, datetime
from uuid import UUID

from agentfs_client import wire
from agentfs_client.errors import AgentFSError
from agentfs_files.filesystem.filesystem_errors import SnapshotIncompatibleError
from agentfs_files.filesystem.records import FilesystemSnapshot

BACKEND = "branch"
_ID_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def record_of(snapshot: wire.BranchSnapshot, parent: str, root: str) -> FilesystemSnapshot:
    """Return the record of a snapshot. ``commit_ref`` is the snapshot's id, which every agentfsd command accepts."""
    return FilesystemSnapshot(
        uuid_of(snapshot.id), datetime.fromtimestamp(snapshot.created_ns / 1e9, UTC), snapshot.id, root, tag=snapshot.tag or None,
        parent_id=uuid_of(parent) if parent else None, backend=BACKEND, strategy="layer",
    )  # fmt: skip


def uuid_of(number: str) -> UUID:
    """Return the id of a snapshot or branch, 26 characters for 128 bits, as a UUID."""
    value = 0
    for letter in number:
        value = value << 5 | _ID_ALPHABET.index(letter)
    return UUID(int=value)


def check_ours(snapshot: FilesystemSnapshot) -> None:
    if snapshot.backend not in ("", BACKEND):
        raise SnapshotIncompatibleError(
            f"{snapshot.commit_ref} is a snapshot of another kind of file system ({snapshot.backend}), not of a branch"
        )


def paths(names: list[wire.PathName]) -> tuple[str, ...]:
    return tuple(sorted(os.fsdecode(name.path_bytes) for name in names))


def sentence(what: str, exc: AgentFSError) -> str:
    return f"{what}: {exc.message}" + (f" ({exc.hint})" if exc.hint else "")
