"""How an event changes a slice: functions from the items that there are and the event to the items that there will be."""

from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar

T = TypeVar("T")
E_contra = TypeVar("E_contra", contravariant=True)


class Reducer(Protocol[T, E_contra]):
    def __call__(self, items: tuple[T, ...], event: E_contra, /) -> tuple[T, ...]: ...


def append_all(items: tuple[T, ...], event: T, /) -> tuple[T, ...]:
    """Keeps every item."""
    return (*items, event)


def replace_latest(items: tuple[T, ...], event: T, /) -> tuple[T, ...]:
    """Keeps the last item alone."""
    return (event,)


def upsert_by(key: Callable[[T], Hashable]) -> Reducer[T, T]:
    """Keeps one item for each *key*: a new one takes the place of the old one with the same key."""

    def upsert(items: tuple[T, ...], event: T, /) -> tuple[T, ...]:
        wanted = key(event)
        for index, item in enumerate(items):
            if key(item) == wanted:
                return (*items[:index], event, *items[index + 1 :])
        return (*items, event)

    return upsert
