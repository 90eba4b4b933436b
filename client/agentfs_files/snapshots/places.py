"""A directory for each snapshot, named by its id, with a manifest in it: for strategies that store files."""

import contextlib
import os
from collections.abc import Iterator
from uuid import UUID

import msgspec

from agentfs_files.filesystem.filesystem_errors import SnapshotNotFoundError, SnapshotRestoreError
from agentfs_files.snapshots.index import decode, encode, write_file
from agentfs_files.snapshots.snapshot_tree import SnapshotEntry
from agentfs_host.tree_removal import remove_tree


@contextlib.contextmanager
def new_place(home: str, snapshot_id: UUID) -> Iterator[str]:
    """Yield a new directory, and delete it after an error."""
    place = os.path.join(home, str(snapshot_id))
    os.mkdir(place, 0o700)
    try:
        yield place
    except BaseException:
        remove_tree(place)
        raise


def write_manifest(place: str, entries: list[SnapshotEntry]) -> None:
    """Write the manifest. This comes last: without a manifest there is no snapshot."""
    write_file(os.path.join(place, "manifest"), encode(entries))


def read_manifest(home: str, place: str) -> list[SnapshotEntry]:
    """Read a manifest.

    Raises:
        SnapshotNotFoundError: there is none in *home*.
        SnapshotRestoreError: it is damaged.
    """
    if not is_place(home, place):
        raise SnapshotNotFoundError(f"there is no snapshot {place} in {home}")
    try:
        with open(os.path.join(place, "manifest"), "rb") as file:
            return decode(file.read())
    except FileNotFoundError as exc:
        raise SnapshotNotFoundError(f"{place} is no longer kept") from exc
    except (ValueError, msgspec.MsgspecError) as exc:
        raise SnapshotRestoreError(f"the manifest of {place} is damaged: {exc}") from exc


def remove_place(home: str, place: str) -> None:
    """Delete a snapshot's directory, but nothing else in *home*, whatever a record says."""
    if is_place(home, place):
        remove_tree(place)


def all_places(home: str) -> list[str]:
    return [place for name in os.listdir(home) if is_place(home, place := os.path.join(home, name))]


def is_place(home: str, place: str) -> bool:
    try:
        UUID(os.path.basename(place))
    except ValueError:
        return False
    return os.path.dirname(place) == home
