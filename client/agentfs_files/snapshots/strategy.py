"""The interface of every strategy: save the state of a directory, list what it held, return contents."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar
from uuid import UUID

from agentfs_files.filesystem.records import SnapshotStrategy
from agentfs_files.snapshots.build import Into
from agentfs_files.snapshots.snapshot_tree import SnapshotEntry
from agentfs_host.descent import Descent


class Strategy(ABC):
    """A way to keep snapshots.

    ``home`` is the directory with index, records and lock. A *ref* is the strategy's own name of a snapshot. ``is_exact`` means
    that the name of a content depends on the content alone, so different names mean different contents.
    """

    kind: ClassVar[SnapshotStrategy]
    is_exact: ClassVar[bool]
    home: str

    @abstractmethod
    def take(self, root: str, snapshot_id: UUID, tag: str | None) -> tuple[str, list[SnapshotEntry]]:
        """Take a snapshot, and return its ref and entries. An error leaves nothing behind."""

    @abstractmethod
    def restore(self, root: str, ref: str) -> None:
        """Restore a snapshot. After SnapshotRestoreError or OSError the root is unchanged, unless the message says otherwise."""

    @abstractmethod
    def known(self, beneath: Descent) -> dict[bytes, SnapshotEntry]:
        """Return what was known of the root at the last look."""

    @abstractmethod
    def load(self, ref: str) -> list[SnapshotEntry]:
        """Return the entries of a snapshot. Raises SnapshotNotFoundError if it is not kept here."""

    def reading(self, ref: str) -> contextlib.AbstractContextManager[None]:
        """Keep the contents of a snapshot accessible inside the context."""
        return contextlib.nullcontext()

    @abstractmethod
    def fill(self, ref: str, files: Sequence[SnapshotEntry], into: Into) -> None:
        """Write the content of each of *files*, in any order. Raises SnapshotRestoreError or OSError if a content is damaged."""

    @abstractmethod
    def holds(self, ref: str, entry: SnapshotEntry, fd: int) -> bool:
        """Tell whether an entry has the content of an open file of the same size, which is at offset 0."""

    @abstractmethod
    def is_same(self, ref: str, entry: SnapshotEntry, other_ref: str, other: SnapshotEntry) -> bool:
        """Tell whether two files of the same size in two snapshots have the same content."""

    @abstractmethod
    def delete(self, ref: str, remaining: Iterable[str]) -> None:
        """Delete a snapshot. *remaining* are the refs of all others."""

    def close(self) -> None:  # noqa: B027  # most have nothing to undo
        """Undo what the strategy did to the directory itself."""
