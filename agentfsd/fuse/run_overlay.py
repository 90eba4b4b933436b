"""One branch as an overlay of the kernel: its mount, the runs that use it, and what they have written."""

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from agentfsd.core.branch_events import EventKind
from agentfsd.core.overlay import Overlay
from agentfsd.core.overlay_events import NamedPlace
from agentfsd.core.tree import Inode
from agentfsd.fuse.branch_mounts import BranchMount
from agentfsd.linux import home_layers
from agentfsd.overlayfs.branch_overlay import BranchOverlay

_GRACE_S = 10.0  # after a daemon was killed while a run began
_ATTEMPTS = 5  # to take over between two changes of a branch's state
_SHORT_S, _SHORT_BYTES = 0.004, 1 << 18  # what does not hold up others for long


@dataclass(slots=True)
class RunOverlay:
    """An overlay that is mounted, or whose processes may have outlived the daemon that had mounted it.

    Attributes:
        overlay: What lies on disk for it.
        mount: Its mount; None if nobody holds it any more.
        source: What the mount table shows as its source.
        users: How many runs use it.
        since_s: When this daemon got it, by the monotonic clock.
        is_resumed: The daemon before had mounted it.
        root: A descriptor of one more mount of it, by which the daemon changes what programs see; -1 for none.
        turn: Held by whoever takes over, or ends it.
        pushing: Held by whoever changes what programs see.
        took_s: How long the last look took.
        next_look_s: When to look again, if nobody asks.
        retry_s: When to try again to end it, if that has failed.
    """

    overlay: BranchOverlay
    mount: BranchMount | None
    source: str
    users: int = 0
    since_s: float = field(default_factory=time.monotonic)
    is_resumed: bool = False
    root: int = -1
    turn: trio.Lock = field(default_factory=trio.Lock)
    pushing: trio.Lock = field(default_factory=trio.Lock)
    next_look_s: float = 0.0
    retry_s: float = 0.0
    took_s: float = 1.0

    @property
    def has_holder(self) -> bool:
        """Whether a process holds the mount, so that further runs can join it."""
        return self.mount is not None and not self.mount.is_lost

    @property
    def may_begin(self) -> bool:
        """Whether a run may be about to use it: the daemon before knew of that, and we do not."""
        return self.is_resumed and self.has_holder and time.monotonic() - self.since_s < _GRACE_S

    async def is_mounted(self) -> bool:
        """Return whether a process has it mounted, whatever that is bound to."""
        holder = 0
        if self.mount is not None:
            if self.has_holder and not self.mount.holder_pid:
                with suppress(OSError):  # it has ended
                    os.close(await self.mount.copy())  # which says who the holder is
            holder = self.mount.holder_pid
        return await trio.to_thread.run_sync(home_layers.is_mounted_anywhere, self.source, holder)

    async def take_over(self) -> None:
        """Bring into the branch what runs have written until now, after showing them its state if that was replaced. OSError."""
        for _ in range(_ATTEMPTS):
            await self.push()
            began_s = time.monotonic()
            look = self.overlay.look()
            await _somewhere(look.scan, is_short=self.took_s < _SHORT_S)
            self.took_s = time.monotonic() - began_s
            if not self.overlay.is_replaced:  # meanwhile
                self.overlay.apply(look)
                return

    async def push(self) -> None:
        """Show runs the state that the branch has got by a restore, a merge or an undo, if there is one. OSError."""
        async with self.pushing:
            if self.overlay.is_replaced:
                await self.reach()
                self.overlay.push(self.root)

    async def reach(self) -> None:
        """Get what push() needs.

        Raises:
            OSError: EBUSY if nobody can change what runs see.
        """
        if self.root >= 0:
            return
        with suppress(OSError):
            if self.mount is not None and self.has_holder:
                self.root = await self.mount.copy()
        if self.root < 0:
            raise OSError(
                errno.EBUSY, "processes of an earlier run use the branch as an overlay which nobody can change: end them"
            )

    async def own_contents(self) -> None:
        """Give the branch contents of its own: nothing that runs write later changes them. OSError."""
        copies = self.overlay.copies()
        try:
            for copy in copies:
                await _somewhere(copy.run, is_short=copy.size_bytes < _SHORT_BYTES)
        except BaseException:
            for copy in copies:
                copy.abandon()
            raise
        self.overlay.install(copies)

    def unmount(self) -> None:
        """End the holder's mount. Those of runs stay."""
        if self.root >= 0:
            os.close(self.root)
            self.root = -1
        if self.mount is not None:
            self.mount.close()


class TakeoverReport:
    """Tells of what a takeover brings. It is known which run did it, not which process."""

    def __init__(self, overlay: Overlay) -> None:
        self._events = overlay.events

    @property
    def is_heard(self) -> bool:
        return bool(self._events.listeners)

    def tell(self, kind: EventKind, inode: Inode, place: NamedPlace | None = None, before: NamedPlace | None = None) -> None:
        self._events.tell_change(kind, inode, 0, lambda _: 0, place, before)

    def tell_write(self, inode: Inode) -> None:
        self._events.tell_write(inode, 0, lambda _: 0)

    def names_changed(self, directory: Inode, *names: bytes) -> None:
        self._events.names_changed(directory, *names)

    def file_changed(self, inode: Inode, *, data: bool) -> None:
        self._events.file_changed(inode, data=data)


async def _somewhere(work: Callable[[], object], *, is_short: bool) -> None:
    """Do some work here if it is short, else in a thread."""
    if is_short:
        work()
    else:
        await trio.to_thread.run_sync(work)
