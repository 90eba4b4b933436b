"""The items of one type in a session, and the reducers that change them. A slice knows no other slice."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from agentfs_files.session.reducers import Reducer, append_all

T = TypeVar("T")
E = TypeVar("E")


class Slice(Generic[T]):
    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._items: tuple[T, ...] = ()
        self._reducers: dict[type[Any], Reducer[T, Any]] = {}

    def register(self, event: type[E], reducer: Reducer[T, E]) -> None:
        """Let *reducer* handle events of this type and its subclasses in this slice."""
        self._reducers[event] = reducer

    def append(self, item: T) -> None:
        """Add an item with the reducer for its type; without one, append it. Raises TypeError for an item of another type."""
        if not isinstance(item, self._kind):
            raise TypeError(f"the slice of {self._kind.__name__} does not take a {type(item).__name__}")
        if not self.dispatch(item):
            self._items = append_all(self._items, item)

    def dispatch(self, event: object) -> bool:
        """Apply the reducer for *event* to this slice only. Return whether there is one."""
        reduced = self.reduced(event)
        if reduced is None:
            return False
        self._items = reduced
        return True

    def reduced(self, event: object) -> tuple[T, ...] | None:
        """Return the items after *event*; None if there is no reducer for its type or a base class of it."""
        reducer = next((self._reducers[base] for base in type(event).__mro__ if base in self._reducers), None)
        return None if reducer is None else tuple(reducer(self._items, event))

    def all(self) -> tuple[T, ...]:
        return self._items

    def latest(self) -> T | None:
        return self._items[-1] if self._items else None

    def where(self, wanted: Callable[[T], bool]) -> tuple[T, ...]:
        return tuple(item for item in self._items if wanted(item))

    def seed(self, items: T | Iterable[T]) -> None:
        """Replace all items by these (or this one), without reducers."""
        if isinstance(items, self._kind):
            self._items = (items,)
        else:
            self._items = tuple(items)  # type: ignore[arg-type]  # a value of another type is an iterable of items

    def put(self, items: tuple[T, ...]) -> None:
        """Replace all items by exactly this tuple."""
        self._items = items

    def clear(self) -> None:
        self._items = ()
