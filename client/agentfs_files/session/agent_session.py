"""What an agent knows, as slices: for each type a tuple of items, which only reducers change. It knows nothing of files.

A snapshot shares the tuples, so its cost depends only on the number of types.
"""

import weakref
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID, uuid4

from agentfs_files.filesystem.filesystem_errors import SnapshotIncompatibleError, SnapshotNotFoundError
from agentfs_files.session.event_bus import EventBus, InProcessEventBus
from agentfs_files.session.session_slices import Slice
from agentfs_files.session.session_snapshot import Snapshot

T = TypeVar("T")


class Session:
    """The state of an agent.

    ``tags`` describe it; ``session_id`` is added to them if it is missing. Events published on ``bus`` are dispatched here. Items
    should be immutable (frozen dataclasses, msgspec Structs), because snapshots share them.
    """

    def __init__(
        self,
        bus: EventBus | None = None,
        *,
        tags: Mapping[str, str] | None = None,
        parent: "Session | None" = None,
        session_id: UUID | None = None,
        created_at: datetime | None = None,
    ) -> None:
        self._id = session_id or uuid4()
        self._created_at = created_at or datetime.now(UTC)
        own = {"session_id": str(self._id)} | ({"parent_session_id": str(parent.session_id)} if parent is not None else {})
        self._tags = MappingProxyType(own | dict(tags or {}))
        self._bus: EventBus = bus or (parent.bus if parent is not None else InProcessEventBus())
        self._slices: dict[type[Any], Slice[Any]] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._parent = parent
        self._children: list[Session] = []
        if parent is not None:
            parent._children.append(self)  # noqa: SLF001  # a session, too
        self._listen()

    def _listen(self) -> None:
        """Subscribe to the bus. The subscription holds only a weak reference, because the bus may live longer."""
        here = weakref.ref(self)

        def forward(event: object) -> None:
            session = here()
            if session is not None:
                session.dispatch(event)

        self._bus.subscribe(object, forward)
        weakref.finalize(self, self._bus.unsubscribe, object, forward)

    @property
    def session_id(self) -> UUID:
        return self._id

    @property
    def created_at(self) -> datetime:
        return self._created_at

    @property
    def tags(self) -> Mapping[str, str]:
        return self._tags

    @property
    def bus(self) -> EventBus:
        return self._bus

    @property
    def parent(self) -> "Session | None":
        return self._parent

    @property
    def children(self) -> "tuple[Session, ...]":
        return tuple(self._children)

    def __getitem__(self, kind: type[T]) -> Slice[T]:
        section = self._slices.get(kind)
        if section is None:
            section = self._slices[kind] = Slice(kind)
        return section

    def mutate(self, kind: type[T]) -> Slice[T]:
        """Return a slice, like indexing. Use this name to make changes stand out."""
        return self[kind]

    def dispatch(self, event: object) -> int:
        """Pass *event* to the reducers for its type in all slices, and return their number. If one raises, nothing
        has changed.
        """
        reduced = [(slice_, slice_.reduced(event)) for slice_ in self._slices.values()]
        changes = [(slice_, items) for slice_, items in reduced if items is not None]
        for slice_, items in changes:
            slice_.put(items)
        return len(changes)

    # -- snapshots

    def snapshot(self, snapshot_id: str | None = None) -> Snapshot:
        """Take a snapshot and keep it under its name. It replaces an earlier one of the same name."""
        snapshot = self.capture(snapshot_id)
        self._snapshots[snapshot.snapshot_id] = snapshot
        return snapshot

    def capture(self, snapshot_id: str | None = None) -> Snapshot:
        """Take a snapshot like snapshot(), but do not keep it."""
        slices = MappingProxyType({kind: slice_.all() for kind, slice_ in self._slices.items() if slice_.all()})
        parent_id = None if self._parent is None else self._parent.session_id
        name = snapshot_id or str(uuid4())
        return Snapshot(name, datetime.now(UTC), self._id, self._created_at, parent_id, self._tags, slices)

    def rollback(self, snapshot: Snapshot | str) -> None:
        """Restore a snapshot, or the one that is kept under a name. Raises SnapshotNotFoundError (a KeyError) for an unknown
        name.
        """
        self.restore(self.get_snapshot(snapshot) if isinstance(snapshot, str) else snapshot)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore every slice; slices that are not in the snapshot become empty. Reducers and other snapshots stay.

        Raises:
            SnapshotIncompatibleError: this is not a snapshot of a session.
        """
        if not isinstance(snapshot, Snapshot):
            raise SnapshotIncompatibleError(f"a session is restored from its own kind of snapshot, not from {snapshot!r}")
        for kind in self._slices.keys() | snapshot.slices.keys():
            self[kind].put(snapshot.slices.get(kind, ()))

    def get_snapshot(self, snapshot_id: str) -> Snapshot:
        try:
            return self._snapshots[snapshot_id]
        except KeyError:
            known = ", ".join(self._snapshots) or "none"
            raise SnapshotNotFoundError(f"Snapshot not found: {snapshot_id}; this session has {known}") from None

    def list_snapshots(self) -> tuple[Snapshot, ...]:
        """Return the snapshots in the order in which they were taken."""
        return tuple(sorted(self._snapshots.values(), key=lambda snapshot: snapshot.created_at))
