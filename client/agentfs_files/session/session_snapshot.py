"""A snapshot of a session, and its form as JSON.

Types are stored by name. Reading looks for them among the types of modules that the program has already imported; it never
imports a module because a file names it.
"""

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec

Slices = Mapping[type[Any], tuple[Any, ...]]


class SessionFormatError(ValueError):
    """The data are not a session, or hold items of unknown types."""


@dataclass(slots=True, frozen=True)
class Snapshot:
    """A state of a session. ``slices`` holds the items of each type that has any; the other fields describe the session."""

    snapshot_id: str
    created_at: datetime
    session_id: UUID
    session_created_at: datetime
    parent_session_id: UUID | None
    tags: Mapping[str, str]
    slices: Slices

    def to_json(self) -> bytes:
        """Return the snapshot as one line. Raises TypeError, with the type, for items that msgspec cannot encode."""
        slices = [_SliceRecord(_name(kind), _builtins(kind, items)) for kind, items in self.slices.items()]
        return msgspec.json.encode(
            _Record(
                self.snapshot_id, self.created_at, self.session_id, self.session_created_at, self.parent_session_id,
                dict(self.tags), slices,
            )
        )  # fmt: skip

    @classmethod
    def from_json(cls, data: bytes | str, types: Iterable[type[Any]] = ()) -> "Snapshot":
        """Read a snapshot.

        Args:
            types: types that cannot be found by name, because they are local to a function or were moved.

        Raises:
            SessionFormatError: the data are not a valid snapshot.
        """
        try:
            record = msgspec.json.decode(data, type=_Record)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise SessionFormatError(f"this is not a snapshot of a session: {exc}") from exc
        known = {_name(kind): kind for kind in types}
        slices = dict(_items(slice_record, known) for slice_record in record.slices)
        return cls(
            record.snapshot_id, record.created_at, record.session_id, record.session_created_at, record.parent_session_id,
            MappingProxyType(record.tags), MappingProxyType(slices),
        )  # fmt: skip


class _SliceRecord(msgspec.Struct, frozen=True):
    type: str
    items: list[Any]


class _Record(msgspec.Struct, frozen=True, tag_field="format", tag="agentfs-session-1"):
    snapshot_id: str
    created_at: datetime
    session_id: UUID
    session_created_at: datetime
    parent_session_id: UUID | None
    tags: dict[str, str]
    slices: list[_SliceRecord]


def _name(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _builtins(kind: type[Any], items: tuple[Any, ...]) -> list[Any]:
    try:
        return [msgspec.to_builtins(item, str_keys=True) for item in items]
    except TypeError as exc:
        raise TypeError(f"an item of {_name(kind)} cannot be written as JSON: {exc}") from exc


def _items(record: _SliceRecord, known: dict[str, type[Any]]) -> tuple[type[Any], tuple[Any, ...]]:
    kind = known.get(record.type) or _find(record.type)
    try:
        return kind, tuple(msgspec.convert(item, kind) for item in record.items)
    except msgspec.ValidationError as exc:
        raise SessionFormatError(f"an item of {record.type} is not as that type is now: {exc}") from exc


def _find(name: str) -> type[Any]:
    module, _, qualified = name.partition(":")
    item: Any = sys.modules.get(module)
    for part in qualified.split("."):
        item = getattr(item, part, None)
    if isinstance(item, type) and _name(item) == name and _holds_data(item):
        return item
    raise SessionFormatError(f"the type {name} is not known here; import {module} first, or give the type in types=")


def _holds_data(kind: type[Any]) -> bool:
    return dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct | tuple | str | int | float | dict)
