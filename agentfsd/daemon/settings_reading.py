"""When a mount reads its settings file: at its start, and again for SIGHUP. A newer version of agentfsd then takes over, too."""

import logging
import sqlite3
from collections.abc import Awaitable, Callable

import trio

from agentfsd.core.overlay import Overlay
from agentfsd.daemon import settings_file
from agentfsd.daemon.observation import Observation
from agentfsd.handoff.descriptor_forwarding import Forwarding
from agentfsd.process import installed_code
from agentfsd.process.service_manager import ServiceManager

log = logging.getLogger("agentfsd")

_TIMEOUT_S = 5.0


class SettingsReading:
    """Reads and applies the settings of one mount.

    Args:
        path: The settings file; "" for none.
        overlay: Has most of the settings.
        forwarding: Has those of the preloaded library.
        observation: Follows some of them.
        manager: The service manager, which is told when a reload begins and ends.
        status: Returns what the daemon says of itself.
        restart: Has the next daemon take over.
    """

    def __init__(
        self, path: str, overlay: Overlay, forwarding: Forwarding, observation: Observation, manager: ServiceManager,
        status: Callable[[], str], restart: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._path, self._overlay, self._forwarding, self._observation = path, overlay, forwarding, observation
        self._manager, self._status, self._restart = manager, status, restart
        self._reading = trio.CapacityLimiter(1)  # a limiter of its own: a read that hangs takes no thread from others

    def read(self) -> None:
        """Read and apply the settings. Refusal for an invalid one; then none is changed."""
        settings_file.apply(settings_file.read(self._path), self._overlay, self._forwarding)

    async def reload(self) -> None:
        """Read the settings again. Requests go on meanwhile, even if the file lies on a share that hangs."""
        self._manager.reloading()
        status = self._status()
        try:
            with trio.fail_after(_TIMEOUT_S):
                found = await trio.to_thread.run_sync(
                    settings_file.read, self._path, abandon_on_cancel=True, limiter=self._reading
                )
            settings_file.apply(found, self._overlay, self._forwarding)
        except (OSError, sqlite3.Error, trio.TooSlowError) as exc:  # of the second a full disk, for example
            why = exc.strerror if isinstance(exc, OSError) else exc
            if isinstance(exc, trio.TooSlowError):
                why = f"{self._path} was not read within {_TIMEOUT_S:.0f} s"
            log.error("the settings stay as they were: %s", why)
            status += f"; the settings stay as they were: {why}"
        else:
            self._observation.apply_settings()
            self._observation.note_settings(self._path)
            log.info("settings read: %s", self._path or "there is no file of them")
        self._manager.ready(status)
        if installed_code.has_changed():
            await self._be_replaced()

    async def _be_replaced(self) -> None:
        """Have a daemon of the version that was installed meanwhile take over."""
        try:
            await self._restart()
        except OSError as exc:
            log.warning("the daemon of the new version does not take over: %s", exc.strerror or exc)
