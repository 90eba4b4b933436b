"""Events within one process. A subscriber to a type gets events of that type and its subclasses, at once and in order."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

E = TypeVar("E")


class EventBus(Protocol):
    def subscribe(self, kind: type[E], handler: Callable[[E], object]) -> None: ...

    def unsubscribe(self, kind: type[E], handler: Callable[[E], object]) -> None: ...

    def publish(self, event: object) -> int: ...


class InProcessEventBus:
    def __init__(self) -> None:
        self._handlers: list[tuple[type[Any], Callable[[Any], object]]] = []

    def subscribe(self, kind: type[E], handler: Callable[[E], object]) -> None:
        self._handlers.append((kind, handler))

    def unsubscribe(self, kind: type[E], handler: Callable[[E], object]) -> None:
        """Remove a subscription. Does nothing if there is none."""
        if (kind, handler) in self._handlers:
            self._handlers.remove((kind, handler))

    def publish(self, event: object) -> int:
        """Call all handlers and return their number. An exception of a handler ends the publishing and reaches the caller."""
        wanted = [handler for kind, handler in self._handlers if isinstance(event, kind)]
        for handler in wanted:
            handler(event)
        return len(wanted)
