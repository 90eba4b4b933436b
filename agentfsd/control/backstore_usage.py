"""Measure how much the backstore holds. This module sees objects by number, never their content."""

import os
from collections.abc import Iterable

import trio

from agentfs_client import wire
from agentfs_host import mount_table
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.core.overlay import Overlay
from agentfsd.domain_errors import DamagedContent
from agentfsd.types import Backstore


async def backstore_status(overlay: Overlay, info: DaemonInfo) -> wire.BackstoreReply:
    """Count and measure every object of the backstore, in a thread."""
    store, garbage = overlay.backstore, overlay.layers.garbage()
    usage, freed = await trio.to_thread.run_sync(lambda: (store.usage(), _amount(store, garbage)))
    room, mounted = store.statvfs(), mount_table.mount_of(os.path.realpath(store.place))
    return wire.BackstoreReply(
        kind=store.kind, why=info.capabilities.get("backstore.why", ""), place=store.place,
        filesystem=mounted.fstype if mounted is not None else "", native_snapshots=store.native_snapshots,
        objects=usage["objects"], size_bytes=usage["bytes"],
        spilled_objects=usage.get("spilled_objects", 0), spilled_bytes=usage.get("spilled_bytes", 0),
        garbage_objects=freed[0], garbage_bytes=freed[1], reserve_bytes=overlay.store.reserve.size_bytes,
        free_bytes=room.f_bavail * room.f_frsize, total_bytes=room.f_blocks * room.f_frsize,
    )  # fmt: skip


def _amount(store: Backstore, numbers: Iterable[int]) -> tuple[int, int]:
    """Return how many of these objects exist, and how many bytes are allocated for them."""
    objects = size_bytes = 0
    for number in numbers:
        try:
            size_bytes += store.stat(number).st_blocks * 512
        except DamagedContent:
            continue
        objects += 1
    return objects, size_bytes
