"""Run calls that must not overlap, each in a worker thread of anyio. This module knows no file system."""

import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import ParamSpec, TypeVar

from agentfs_client.extras import needed_for

with needed_for("awaiting needs", "async"):
    import anyio
    import anyio.to_thread

_P = ParamSpec("_P")
_T = TypeVar("_T")


class OneAtATime:
    """Run one call at a time.

    The limiter makes other tasks wait in the event loop. The lock makes a call wait for a thread that no task waits for any more:
    an abandoned one, or one whose task asyncio's own ``cancel()`` ended, against which no shield helps.
    """

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(1)
        self._lock = threading.Lock()

    async def run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a function and wait for its end even if the task is cancelled, so that its result is not lost."""
        return await anyio.to_thread.run_sync(self._alone(function, *args, **kwargs), limiter=self._limiter)

    async def run_abandonable(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a function that changes nothing. If the task is cancelled, only the next call waits for its end."""
        call = self._alone(function, *args, **kwargs)
        return await anyio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)

    def _alone(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Callable[[], _T]:
        def call() -> _T:
            with self._lock:
                return function(*args, **kwargs)

        return call

    @contextlib.asynccontextmanager
    async def hold(self, make: Callable[[], AbstractContextManager[_T, None]]) -> AsyncIterator[_T]:
        """Enter a context manager, and leave it at the end. If an exception arrives while a thread is still entering it, leave it
        with that exception.
        """
        stack = contextlib.ExitStack()
        gone = False

        def enter() -> _T:
            if gone:
                raise RuntimeError("cancelled before it was opened")
            return stack.enter_context(make())

        try:
            yield await self.run(enter)
            await self.run(stack.__exit__, None, None, None)
        except BaseException as exc:
            gone = True
            with anyio.CancelScope(shield=True):
                await self.run(stack.__exit__, type(exc), exc, exc.__traceback__)
            raise
