"""Cancels the daemon's work for a request when the browser closes the connection.

So closing a page cancels the work that the daemon was doing for it. This module knows no page.
"""

import threading
from contextvars import ContextVar

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from agentfs_client.control import ControlClient


class Conversations:
    """The conversations with the daemon that one request has opened. Several threads may use it."""

    def __init__(self) -> None:
        self._clients: list[ControlClient] = []
        self._turn, self._has_ended = threading.Lock(), False

    def add(self, client: ControlClient) -> None:
        """Add a conversation; end it at once if the request has ended."""
        with self._turn:
            self._clients.append(client)
            if self._has_ended:
                client.hang_up()

    def end(self) -> None:
        """End every conversation."""
        with self._turn:
            self._has_ended = True
            for client in self._clients:
                client.hang_up()


CURRENT: ContextVar[Conversations | None] = ContextVar("conversations", default=None)


class CancelOnDisconnect:
    """ASGI middleware that ends the connections of a request when the browser disconnects.

    Code that connects to the daemon for a request adds the connection to ``CURRENT``. A POST is never cancelled: the change that
    the user asked for is made.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "POST":
            await self._app(scope, receive, send)
            return
        conversations = Conversations()
        CURRENT.set(conversations)

        async def watch() -> None:
            try:
                while (await receive())["type"] != "http.disconnect":
                    pass
            finally:
                conversations.end()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await self._app(scope, receive, send)
            tasks.cancel_scope.cancel()
