"""Run long work without blocking other requests: as a generator in the event loop, or in a thread. This module sees no request.

Between two steps of a generator, other requests may change anything. When the client goes away, the generator is closed at its
present step; a thread learns of it by cancelled().
"""

import time
from collections.abc import Generator
from typing import TypeVar

import trio
import trio.lowlevel

from agentfsd.control.request_context import RequestContext

_SLICE_S = 0.005  # how long others may have to wait

_T = TypeVar("_T")

Steps = Generator[tuple[int, int, str], None, _T]  # yields (done, total, what): see RequestContext.progress


async def drive(steps: Steps[_T], context: RequestContext | None = None) -> _T:
    """Run a generator to its end, a few milliseconds at a time.

    Args:
        steps: The work. Each of its steps is atomic.
        context: The request whose client gets the progress; None: nobody gets it.

    Returns:
        What the generator returns.
    """
    try:
        while True:
            ends = time.monotonic() + _SLICE_S
            while True:
                at = next(steps)
                if time.monotonic() >= ends:
                    break
            if context is not None:
                context.progress(*at)
            await trio.lowlevel.checkpoint()
    except StopIteration as end:
        result: _T = end.value
        return result
    finally:
        steps.close()


def cancelled() -> bool:
    """Return whether the request was cancelled. Call it in a thread of trio.to_thread.run_sync that works for the request."""
    try:
        trio.from_thread.check_cancelled()
    except trio.Cancelled:
        return True
    return False
