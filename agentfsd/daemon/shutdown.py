"""Unmount: find the users of the mount, decide when it ends, and wait for them. This module knows no request."""

import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from agentfs_host import mount_table
from agentfsd.binding.table import IN_DOUBT, Bindings
from agentfsd.domain_errors import Refusal
from agentfsd.linux import mounts, occupants
from agentfsd.process.service_manager import ServiceManager

log = logging.getLogger("agentfsd")

_LOOK_EVERY_S = 1.0
_FLUSH_TIMEOUT_S = 30
_LAST_REQUESTS_S = 0.1  # an unmounted session ends by itself within that

_Where = TypeVar("_Where", str, int)


class ConnectionAborted(OSError):
    """Somebody has aborted the kernel's connection: nobody can go on with it."""


class MountShutdown:
    """The end of one mount.

    ``flush`` writes dirty data back, ``withdraw`` removes the daemon from the registry, ``terminate`` ends serving.
    """

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
        self._now = False  # a signal came: the mount ends even if processes use it
        self._unused = False  # it had no user when it was unmounted, so only copies in other mount namespaces can be left
        self._asked = trio.Event()
        self._looking = trio.CapacityLimiter(2)  # a limiter of its own, so that it takes no thread from others

    async def users(self) -> list[int]:
        """Return the processes that use the mount, or are bound to a branch, perhaps in a namespace with a copy of the mount."""
        inside = await self._in_thread(occupants.users, self._mountpoint)
        return sorted({*self._bound(), *inside})

    def _bound(self) -> list[int]:
        """Return the processes that are bound. One whose branch is in doubt is refused everything: it holds nothing back."""
        return [process.pid for process in self._bindings.bindings() if process.branch_id != IN_DOUBT]

    async def _in_thread(self, look: Callable[[_Where], list[int]], where: _Where) -> list[int]:
        """Look for users in a thread: that takes a while, and hangs on some processes."""
        return await trio.to_thread.run_sync(look, where, abandon_on_cancel=True, limiter=self._looking)

    async def ask(self, force: bool) -> None:
        """Unmount for `agentfsd umount`. With *force* the mount ends now, and the daemon with its last user.

        Raises:
            Refusal: The mount is in use, and *force* is not given.
        """
        users = await self.users()
        self._unused = not users
        if users and not force:
            raise Refusal(
                errno.EBUSY, "mount-busy", f"{self._mountpoint} is in use by process {occupants.shown(users)}",
                "end them or leave it, or use `agentfsd umount --lazy`",
            )  # fmt: skip
        self._asked.set()

    def now(self) -> None:
        """Unmount at once, even if processes use the mount."""
        self._now = True
        self._asked.set()

    def check_asked(self) -> None:
        """Raise ConnectionAborted when the kernel's connection has ended though no process unmounted it."""
        mounted = mount_table.mount_at(self._mountpoint)
        if not self._asked.is_set() and mounted is not None and mount_table.is_dead(mounted):
            raise ConnectionAborted(errno.ENOTCONN, "the kernel's connection was aborted", self._mountpoint)

    async def unmount_when_asked(self) -> None:
        """Unmount once that was requested.

        The kernel then ends the session with the last user of the mount; after a signal we do not wait for that. We do not wait
        either when the mount had no user: a container or service that has started since may hold a copy for ever.
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
        """Unmount, lazily if need be. False when even that is refused."""
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
        """Return when another process has unmounted us and no user is left, even if a namespace holds a copy of the mount."""
        while True:
            await trio.sleep(_LOOK_EVERY_S)
            if any(mounted.device == device for mounted in mount_table.mount_table()) or self._bound():
                continue
            if not await self._in_thread(occupants.users_of, device):
                log.info("%s was unmounted and nobody uses it any more", self._mountpoint)
                self._terminate()
                return

    async def when_idle(self, limit_s: float, clients: Callable[[], int]) -> None:
        """Return when no bound process has lived and no client has been connected for *limit_s* seconds."""
        idle_since = trio.current_time()
        while True:
            await trio.sleep(min(1.0, limit_s / 4))
            if clients() or self._bound():
                idle_since = trio.current_time()
            elif trio.current_time() - idle_since > limit_s and not await self.users():
                with contextlib.suppress(OSError), trio.move_on_after(_FLUSH_TIMEOUT_S):
                    await self._flush()
                if clients() or self._bound():  # that took time; from here on little passes before nothing is mounted
                    continue
                log.info("idle for %s s: unmounting", limit_s)
                self._unused = True
                self._asked.set()
                return
