"""Long work that does not make others wait: a little at a time in the event loop, or in a thread. Knows no request.

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
    """Runs *steps* to their end and returns what they return. *context*: who is told how far they are."""
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
    """In a thread of trio.to_thread.run_sync: whether the request it works for was given up."""
    try:
        trio.from_thread.check_cancelled()
    except trio.Cancelled:
        return True
    return False
