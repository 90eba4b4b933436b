"""Events within one process: whoever subscribed to a type, or to one above it, gets what is published, at once and in order."""

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
        """Does nothing where there is no such subscription."""
        if (kind, handler) in self._handlers:
            self._handlers.remove((kind, handler))

    def publish(self, event: object) -> int:
        """How many handlers got it. What one of them raises ends the publishing and is the caller's."""
        wanted = [handler for kind, handler in self._handlers if isinstance(event, kind)]
        for handler in wanted:
            handler(event)
        return len(wanted)
