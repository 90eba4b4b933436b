"""What every strategy can do: keep the state of a directory, say what it held, give contents back."""

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
    """``home`` is the directory with index, records and lock. A *ref* is the strategy's own name of a snapshot.

    ``is_exact``: the name of a content depends on it alone, so that different names mean different contents.
    """

    kind: ClassVar[SnapshotStrategy]
    is_exact: ClassVar[bool]
    home: str

    @abstractmethod
    def take(self, root: str, snapshot_id: UUID, tag: str | None) -> tuple[str, list[SnapshotEntry]]:
        """The new snapshot's ref and what it holds. An error leaves nothing behind."""

    @abstractmethod
    def restore(self, root: str, ref: str) -> None:
        """SnapshotRestoreError or OSError, and the root is as it was, unless the message says otherwise."""

    @abstractmethod
    def known(self, beneath: Descent) -> dict[bytes, SnapshotEntry]:
        """What is known of the root from when it was last looked at."""

    @abstractmethod
    def load(self, ref: str) -> list[SnapshotEntry]:
        """SnapshotNotFoundError where it is not kept here (any more)."""

    def reading(self, ref: str) -> contextlib.AbstractContextManager[None]:
        """Has the contents of a snapshot at hand."""
        return contextlib.nullcontext()

    @abstractmethod
    def fill(self, ref: str, files: Sequence[SnapshotEntry], into: Into) -> None:
        """Writes the content of each of *files*, in any order. SnapshotRestoreError or OSError where it is damaged."""

    @abstractmethod
    def holds(self, ref: str, entry: SnapshotEntry, fd: int) -> bool:
        """Whether an entry's content is that of an open file of the same size, which stands at its beginning."""

    @abstractmethod
    def is_same(self, ref: str, entry: SnapshotEntry, other_ref: str, other: SnapshotEntry) -> bool:
        """Whether two files of the same size in two snapshots have the same content."""

    @abstractmethod
    def delete(self, ref: str, remaining: Iterable[str]) -> None:
        """*remaining*: refs of the snapshots that stay."""

    def close(self) -> None:  # noqa: B027  # most have nothing to undo
        """Undoes what the strategy did to the directory itself."""
