"""What a daemon does again and again while it serves: it frees what nothing refers to, and looks after runs and processes."""

import logging
import sqlite3

import trio
import trio.lowlevel

from agentfsd.backstore.free_space import FreeSpace
from agentfsd.binding.table import Bindings
from agentfsd.core.overlay import Overlay
from agentfsd.daemon.base_making import BaseMaking
from agentfsd.daemon.succession import Succession
from agentfsd.fuse.home_mounts import HomeMounts
from agentfsd.fuse.mount import FuseMount
from agentfsd.fuse.run_overlays import RunOverlays
from agentfsd.handoff.descriptor_forwarding import Forwarding
from agentfsd.handoff.interpose_server import InterposeServer
from agentfsd.state.home_layer_store import aside

log = logging.getLogger("agentfsd")

_EVERY_S = 0.5
_FORKS_EVERY_S = 0.04  # most systems let an ordinary user have 450 process events wait: as many as 225 processes
_AGAIN_S = 10.0  # after a failure


class Housekeeping:
    """Sweeps what ended without telling, twice a second. The arguments are what it sweeps."""

    def __init__(
        self, overlay: Overlay, room: FreeSpace, bindings: Bindings, mount: FuseMount, overlays: RunOverlays, homes: HomeMounts,
        forwarding: Forwarding, doorway: InterposeServer, succession: Succession, bases: BaseMaking,
    ) -> None:  # fmt: skip
        self._overlay, self._room, self._bindings, self._mount = overlay, room, bindings, mount
        self._overlays, self._homes, self._forwarding, self._doorway = overlays, homes, forwarding, doorway
        self._succession, self._bases = succession, bases

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await trio.sleep(_EVERY_S)
            self._bindings.drain()
            self._mount.unite()
            self._mount.runs.sweep()
            await self._overlays.sweep()
            await self._homes.sweep(self._home_layers_to_keep)
            self._forwarding.sweep()
            self._doorway.sweep()
            self._succession.tell_again()
            await self._free()
            await self._bases.sweep()

    async def _free(self) -> None:
        """Free unreferenced contents, a little at a time."""
        store = self._overlay.store
        try:
            while self._overlay.layers.reap():
                await trio.lowlevel.checkpoint()
            store.commit()
            store.reserve.keep()
        except (OSError, sqlite3.Error) as exc:  # a full disk, for example: what is garbage can wait
            if not self._room.is_full:
                log.warning("freeing what nothing refers to: %s", exc)
            await trio.sleep(_AGAIN_S)

    def _home_layers_to_keep(self) -> set[str]:
        """Return the names of the layers of branches that are there, or that undo would bring back."""
        there = {branch_id for _, branch_id in self._overlay.refs.names(branches=True)}
        for step in self._overlay.undo_log.entries():
            there |= {step.branch_id, aside(step.branch_id, step.snapshot)}
        return there


async def follow_forks(bindings: Bindings) -> None:
    """Take the kernel's process events also while nobody asks anything, before their buffer overflows. Runs until cancelled."""
    while True:
        if bindings.forks_fd < 0:
            await trio.sleep(_EVERY_S)
            continue
        await trio.lowlevel.wait_readable(bindings.forks_fd)
        await trio.sleep(_FORKS_EVERY_S)  # many at once
        bindings.drain()
