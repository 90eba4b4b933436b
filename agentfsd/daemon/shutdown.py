"""The end of a mount: who would miss it, when it goes, and whom that has to wait for. It knows no request and builds nothing."""

import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from agentfs_host import mount_table
from agentfsd.binding.table import Bindings
from agentfsd.domain_errors import Refusal
from agentfsd.linux import mounts, occupants
from agentfsd.process.service_manager import ServiceManager

log = logging.getLogger("agentfsd")

_LOOK_EVERY_S = 1.0
_FLUSH_TIMEOUT_S = 30
_LAST_REQUESTS_S = 0.1  # an unmounted session ends by itself within that

_Where = TypeVar("_Where", str, int)


class MountShutdown:
    """``flush`` has what is dirty written back, ``withdraw`` takes the daemon out of the registry, ``terminate`` ends serving."""

    def __init__(
        self,
        mountpoint: str,
        bindings: Bindings,
        manager: ServiceManager,
        *,
        flush: Callable[[], Awaitable[None]],
        withdraw: Callable[[], None],
        terminate: Callable[[], None],
    ) -> None:
        self._mountpoint, self._bindings, self._manager = mountpoint, bindings, manager
        self._flush, self._withdraw, self._terminate = flush, withdraw, terminate
        self._now = False  # told by a signal: whoever still uses the mount loses it
        self._unused = False  # nobody used it when it was to end: only copies in other mount namespaces can be left
        self._asked = trio.Event()
        self._looking = trio.CapacityLimiter(2)  # of its own: it takes no thread from others

    async def users(self) -> list[int]:
        """Who would miss the mount: who is in it, and who is bound, perhaps in a namespace with a copy of it."""
        inside = await self._in_thread(occupants.users, self._mountpoint)
        return sorted({*(found.pid for found in self._bindings.bindings()), *inside})

    async def _in_thread(self, look: Callable[[_Where], list[int]], where: _Where) -> list[int]:
        """Looking at all processes takes a while, and with some of them for ever: others go on meanwhile."""
        return await trio.to_thread.run_sync(look, where, abandon_on_cancel=True, limiter=self._looking)

    async def ask(self, force: bool) -> None:
        """What `agentfsd umount` asks; with *force* the mount goes now and the daemon when its last user has gone."""
        users = await self.users()
        self._unused = not users
        if users and not force:
            raise Refusal(
                errno.EBUSY, "mount-busy", f"{self._mountpoint} is in use by process {occupants.shown(users)}",
                "end them or leave it, or use `agentfsd umount --lazy`",
            )  # fmt: skip
        self._asked.set()

    def now(self) -> None:
        """Whoever uses it."""
        self._now = True
        self._asked.set()

    def check_asked(self) -> None:
        """OSError when nobody asked, nobody has unmounted it, and the kernel serves nobody there any more."""
        mounted = mount_table.mount_at(self._mountpoint)
        if not self._asked.is_set() and mounted is not None and mount_table.is_dead(mounted):
            raise OSError(errno.ENOTCONN, "the kernel's connection was aborted", self._mountpoint)

    async def unmount_when_asked(self) -> None:
        """Once unmounted, the kernel ends the session with the last user of the mount; a signal does not wait for that.

        Nor do we when there was no user: a container or service started meanwhile may hold a copy of the mount for ever.
        """
        await self._asked.wait()
        if self._now:
            self._manager.stopping()
        with contextlib.suppress(OSError), trio.move_on_after(_FLUSH_TIMEOUT_S):  # what cannot be flushed is no reason to stay
            await self._flush()
        while not await self._unmount() and not self._now:
            self._asked = trio.Event()  # it can be asked again
            await self._asked.wait()
        self._withdraw()
        if self._now or self._unused:
            self._manager.stopping()
            await trio.sleep(_LAST_REQUESTS_S)
            self._terminate()
        else:
            self._manager.status("unmounted; ends with the last process that uses the mount")

    async def _unmount(self) -> bool:
        """Takes the mount away, lazily if it must be; False when that is refused altogether."""
        for lazy in (False, True):
            try:
                await trio.to_thread.run_sync(mounts.unmount, self._mountpoint, lazy)
            except OSError as exc:
                self._unused = False
                what = "it stays mounted" if lazy else "unmounting it lazily"
                users = occupants.shown(await self.users()) or "nobody that we may see"
                log.warning("%s: %s; %s, in use by %s", self._mountpoint, exc.strerror, what, users)
            else:
                return True
        return False

    async def watch_mount(self, device: int) -> None:
        """Ends when somebody else has unmounted us and nobody is left, though a namespace may hold a copy of the mount."""
        while True:
            await trio.sleep(_LOOK_EVERY_S)
            if any(mounted.device == device for mounted in mount_table.mount_table()) or self._bindings.bindings():
                continue
            if not await self._in_thread(occupants.users_of, device):
                log.info("%s was unmounted and nobody uses it any more", self._mountpoint)
                self._terminate()
                return

    async def when_idle(self, limit_s: float, clients: Callable[[], int]) -> None:
        """Ends when for that long no bound process has lived and no client has been connected."""
        idle_since = trio.current_time()
        while True:
            await trio.sleep(min(1.0, limit_s / 4))
            if clients() or self._bindings.bindings():
                idle_since = trio.current_time()
            elif trio.current_time() - idle_since > limit_s and not await self.users() and not clients():
                log.info("idle for %s s: unmounting", limit_s)
                self._unused = True
                self._asked.set()
                return
