"""The way back to the client while the daemon works on its request: it sends progress, and notices when the client leaves.

Only conversations over the socket have one. This module sees no request.
"""

import os
import select
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
import trio.lowlevel

from agentfs_client import wire

_PROGRESS_EVERY_S = 0.1
_WHAT_CHARACTERS = 500  # so that a message goes whole or not at all

_T = TypeVar("_T")


class ClientGone(Exception):
    """The client has closed its end of the socket."""


class ProgressChannel:
    """The channel of one request."""

    def __init__(self, stream: trio.SocketStream, as_json: bool) -> None:
        self._stream, self._as_json = stream, as_json
        self._next_progress_s = 0.0

    def progress(self, done: int, total: int, what: str) -> None:
        """Tell the client that *done* of *total* steps of *what* are done, at most ten times a second.

        It never waits and may be called in any thread.
        """
        now = time.monotonic()
        if now < self._next_progress_s:
            return
        self._next_progress_s = now + _PROGRESS_EVERY_S
        message = wire.Progress(done=done, total=total, what=what[:_WHAT_CHARACTERS])
        try:
            os.write(self._stream.socket.fileno(), wire.frame(wire.encode(message, json=self._as_json)))
        except OSError:
            pass  # it does not read, or has gone: progress is all that it misses

    async def send(self, *messages: wire.Reply) -> None:
        """Send messages before the reply. It waits until the client reads, so call it within hold(). Raises ClientGone."""
        frames = b"".join(wire.frame(wire.encode(message, json=self._as_json)) for message in messages)
        try:
            await self._stream.send_all(frames)
        except trio.BrokenResourceError:
            raise ClientGone from None

    async def hold(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Run *work*, and cancel it when the client closes its end.

        Returns:
            What *work* returns.

        Raises:
            ClientGone: The client closed its end first.
        """
        done: list[_T] = []
        failure: Exception | None = None
        with select.epoll() as hangup:
            hangup.register(self._stream.socket.fileno(), 0)  # EPOLLHUP is always told; a client may shut down its sending half
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_readable, hangup, nursery.cancel_scope)
                try:
                    done.append(await work())
                except Exception as exc:  # noqa: BLE001 - raised below: the nursery would put it into a group
                    failure = exc
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if not done:
            raise ClientGone
        return done[0]


async def _cancel_when_readable(poll: select.epoll, scope: trio.CancelScope) -> None:
    await trio.lowlevel.wait_readable(poll)
    scope.cancel()
