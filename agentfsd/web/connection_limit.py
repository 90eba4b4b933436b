"""Connections on which nothing is asked make room for others when there are too many. It knows no page.

Otherwise whoever can connect would keep the owner out, by connecting often and saying nothing.
"""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class LimitedConnection(H11Protocol):
    """A connection, one of ``limit_concurrency`` at most."""

    begun_s = 0.0  # on the loop's clock

    @property
    def is_silent(self) -> bool:
        """Whether no request has come as a whole, or the last one was answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.begun_s = self.loop.time()
        others = [other for other in self.connections if isinstance(other, LimitedConnection) and other is not self]
        if self.limit_concurrency is not None and len(others) + 1 >= self.limit_concurrency:
            silent = [other for other in others if other.is_silent and not other.transport.is_closing()]
            if silent:
                min(silent, key=lambda other: other.begun_s).transport.abort()
