"""The daemon takes process events while nobody asks anything of it."""

import socket
from types import SimpleNamespace
from typing import cast

import trio

from agentfsd.binding.table import Bindings
from agentfsd.daemon.housekeeping import follow_forks


def test_events_are_taken_soon_after_they_come() -> None:
    """The buffer of most users holds 450, so half a second would be too late."""
    ours, kernels = socket.socketpair()
    taken: list[float] = []

    def drain() -> None:
        ours.recv(100)
        taken.append(trio.current_time())

    async def follow() -> None:
        bindings = SimpleNamespace(forks_fd=ours.fileno(), drain=drain)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow_forks, cast(Bindings, bindings))
            await trio.sleep(0.3)
            assert taken == []  # nothing to do costs nothing
            kernels.send(b"event")
            asked = trio.current_time()
            while not taken:
                assert trio.current_time() < asked + 10
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()

    with ours, kernels:
        trio.run(follow)
