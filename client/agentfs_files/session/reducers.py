"""Reducers: functions that return the new items of a slice from its present items and an event."""

from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar

T = TypeVar("T")
E_contra = TypeVar("E_contra", contravariant=True)


class Reducer(Protocol[T, E_contra]):
    def __call__(self, items: tuple[T, ...], event: E_contra, /) -> tuple[T, ...]: ...


def append_all(items: tuple[T, ...], event: T, /) -> tuple[T, ...]:
    """Append the event and keep every item."""
    return (*items, event)


def replace_latest(items: tuple[T, ...], event: T, /) -> tuple[T, ...]:
    """Keep only the event."""
    return (event,)


def upsert_by(key: Callable[[T], Hashable]) -> Reducer[T, T]:
    """Return a reducer that keeps one item for each *key*: a new item replaces the old one with the same key."""

    def upsert(items: tuple[T, ...], event: T, /) -> tuple[T, ...]:
        wanted = key(event)
        for index, item in enumerate(items):
            if key(item) == wanted:
                return (*items[:index], event, *items[index + 1 :])
        return (*items, event)

    return upsert
