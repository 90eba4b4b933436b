"""What the backstore holds, for people and programs. It looks at objects by number, never at what is in them."""

import os
from collections.abc import Iterable

import trio

from agentfs_client import wire
from agentfsd import mounts
from agentfsd.control.info import DaemonInfo
from agentfsd.core.overlay import Overlay
from agentfsd.types import Backstore


async def backstore_status(overlay: Overlay, info: DaemonInfo) -> wire.BackstoreReply:
    """Every object is looked at, in a thread."""
    store, garbage = overlay.backstore, overlay.garbage()
    usage, garbage_bytes = await trio.to_thread.run_sync(lambda: (store.usage(), _allocated(store, garbage)))
    room, mounted = store.statvfs(), mounts.mount_of(os.path.realpath(store.place))
    return wire.BackstoreReply(
        kind=store.kind, why=info.capabilities.get("backstore.why", ""), place=store.place,
        filesystem=mounted.fstype if mounted is not None else "", native_snapshots=store.native_snapshots,
        objects=usage["objects"], size_bytes=usage["bytes"],
        spilled_objects=usage.get("spilled_objects", 0), spilled_bytes=usage.get("spilled_bytes", 0),
        garbage_objects=len(garbage), garbage_bytes=garbage_bytes, reserve_bytes=overlay.store.reserve_bytes,
        free_bytes=room.f_bavail * room.f_frsize, total_bytes=room.f_blocks * room.f_frsize,
    )  # fmt: skip


def _allocated(store: Backstore, numbers: Iterable[int]) -> int:
    found = 0
    for number in numbers:
        try:
            found += store.stat(number).st_blocks * 512
        except FileNotFoundError:
            continue
    return found
