"""Serves all native connections of a daemon in one task of its event loop.

When requests follow each other at once, it reads them without the event loop, whose round costs more than an answer.
"""

import os
import select
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from agentfsd.fuse.native.native_session import NativeSession

_LINGER_S = 0.001  # how long we wait for a further request before the event loop does
_SOON_S = 0.0002  # a request that came this soon after an answer will be followed by another
_LOOKS = 30  # for that one, some 40 us in all
_TURN_S = 0.002  # how long others may have to wait while requests keep coming


class Reactor:
    """Serves native sessions, which may be added and removed meanwhile."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._sessions: dict[int, NativeSession] = {}
        self._nursery: trio.Nursery | None = None
        self._early: list[tuple[Callable[..., Awaitable[None]], tuple[Any, ...]]] = []
        self._tasks = 0
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._waker, select.EPOLLIN)

    def __len__(self) -> int:
        return len(self._sessions)

    def sessions(self) -> list[NativeSession]:
        """Return the sessions that it serves now."""
        return list(self._sessions.values())

    def add(self, session: NativeSession) -> None:
        """Begin to serve a session. Call in the event loop."""
        session.begin()
        self._sessions[session.fd] = session
        self._epoll.register(session.fd, select.EPOLLIN)

    def remove(self, session: NativeSession) -> None:
        """Stop serving a session and end it."""
        if self._sessions.pop(session.fd, None) is not None:
            self._epoll.unregister(session.fd)
            session.end()
            self.wake()

    def wake(self) -> None:
        """Make serve() check again whether to end."""
        os.eventfd_write(self._waker, 1)

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Start a task for a request that waits; while one runs, the loop gives the others their turn."""
        assert self._nursery is not None
        self._tasks += 1
        self._nursery.start_soon(self._run, work, arguments)

    def start_aside(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Start a task that may wait long, which the loop does not poll for. Before serve() it waits for that."""
        if self._nursery is not None:
            self._nursery.start_soon(work, *arguments)
        else:
            self._early.append((work, arguments))

    async def _run(self, work: Callable[..., Awaitable[None]], arguments: tuple[Any, ...]) -> None:
        try:
            await work(*arguments)
        finally:
            self._tasks -= 1

    async def serve(self, until: Callable[[], bool]) -> None:
        """Serve until *until* returns True."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for work, arguments in self._early:
                nursery.start_soon(work, *arguments)
            self._early.clear()
            await self._loop(until)  # after an exception the next daemon goes on with the sessions
            for session in list(self._sessions.values()):
                self.remove(session)
            self._nursery = None
            nursery.cancel_scope.cancel()

    def _answer(self, session: NativeSession, *, alone: bool, turn_ends: float) -> None:
        """Answer one request; if they follow each other at once, poll for the next, since being woken costs more."""
        patience = _LOOKS if alone and time.monotonic() - session.answered_s < _SOON_S else 0
        session.step()
        looks = patience
        while looks and not self._tasks:
            if not session.step():
                looks -= 1
            elif time.monotonic() < turn_ends:
                looks = patience
            else:
                break
        session.answered_s = time.monotonic()

    async def _loop(self, until: Callable[[], bool]) -> None:
        turn_ends = time.monotonic() + _TURN_S
        while not until():
            ready = self._epoll.poll(0 if self._tasks else _LINGER_S)
            if not ready:  # tasks, if any, wait for something else
                await trio.lowlevel.wait_readable(self._epoll)
                turn_ends = time.monotonic() + _TURN_S
                continue
            for fd, _ in ready:
                session = self._sessions.get(fd)
                if session is not None:
                    self._answer(session, alone=len(ready) == 1, turn_ends=turn_ends)
                elif fd == self._waker:
                    os.eventfd_read(fd)
            if self._tasks or time.monotonic() >= turn_ends:
                await trio.lowlevel.checkpoint()
                turn_ends = time.monotonic() + _TURN_S
