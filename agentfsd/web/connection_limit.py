"""Closes silent connections to make room for new ones when there are too many. It knows no page.

Without this, any local user could keep the owner out by opening many connections and sending nothing.
"""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class LimitedConnection(H11Protocol):
    """A connection of a server with at most ``limit_concurrency`` connections."""

    begun_s = 0.0  # by the clock of the event loop

    @property
    def is_silent(self) -> bool:
        """No whole request has arrived, or the last one is answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.begun_s = self.loop.time()
        others = [other for other in self.connections if isinstance(other, LimitedConnection) and other is not self]
        if self.limit_concurrency is not None and len(others) + 1 >= self.limit_concurrency:
            silent = [other for other in others if other.is_silent and not other.transport.is_closing()]
            if silent:
                min(silent, key=lambda other: other.begun_s).transport.abort()
