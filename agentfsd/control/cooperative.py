"""Long work that does not make others wait: a little at a time in the event loop, or in a thread. It never knows a request.

In the loop, work is a generator: between two of its steps others change what they like. Where the client goes away, the
generator is closed at its last step, and a thread is told by cancelled().
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
        steps: The work; each of its steps is atomic.
        context: The request whose client is told of the progress; None: nobody is.

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
    """Say whether the request was cancelled for which this thread of trio.to_thread.run_sync works."""
    try:
        trio.from_thread.check_cancelled()
    except trio.Cancelled:
        return True
    return False
