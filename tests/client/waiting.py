"""Waits for what another process or thread does."""

from collections.abc import Callable

import anyio

WAIT_S = 20


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(WAIT_S):
        while not holds():  # noqa: ASYNC110 - what another process or thread does
            await anyio.sleep(0.001)
