"""The items of one type in a session, and the reducers that change them. It knows no other slice."""

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
        """From now on *reducer* does what events of that type, and of types below it, do to this slice."""
        self._reducers[event] = reducer

    def append(self, item: T) -> None:
        """As the reducer for its type has it; without one it is added at the end. TypeError for what does not belong here."""
        if not isinstance(item, self._kind):
            raise TypeError(f"the slice of {self._kind.__name__} does not take a {type(item).__name__}")
        if not self.dispatch(item):
            self._items = append_all(self._items, item)

    def dispatch(self, event: object) -> bool:
        """Whether there is a reducer for *event*, which then has done its work; on this slice alone."""
        reduced = self.reduced(event)
        if reduced is None:
            return False
        self._items = reduced
        return True

    def reduced(self, event: object) -> tuple[T, ...] | None:
        """What the items would be after *event*; None where there is no reducer for its type or one above it."""
        reducer = next((self._reducers[base] for base in type(event).__mro__ if base in self._reducers), None)
        return None if reducer is None else tuple(reducer(self._items, event))

    def all(self) -> tuple[T, ...]:
        return self._items

    def latest(self) -> T | None:
        return self._items[-1] if self._items else None

    def where(self, wanted: Callable[[T], bool]) -> tuple[T, ...]:
        return tuple(item for item in self._items if wanted(item))

    def seed(self, items: T | Iterable[T]) -> None:
        """These items (or this one) in place of all there are, past the reducers."""
        if isinstance(items, self._kind):
            self._items = (items,)
        else:
            self._items = tuple(items)  # type: ignore[arg-type]  # one that is not of the kind is several

    def put(self, items: tuple[T, ...]) -> None:
        """As seed(), for exactly these."""
        self._items = items

    def clear(self) -> None:
        self._items = ()
