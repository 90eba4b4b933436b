"""What a service manager hears of a daemon: that it is ready, still answers, reloads, ends. Knows no overlay, no request.

Source: sd_notify(3), sd_watchdog_enabled(3), systemd.service(5).
"""

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable

import trio

log = logging.getLogger(__name__)

_PATIENCE_S = 1.0  # one that takes nothing is no reason to keep everybody waiting
_LINE_BYTES = 3000  # a message of more than 4096 bytes is thrown away by systemd, with the READY=1 in it
_FED_PER_WATCHDOG = 3  # two chances are lost before it bites


class ServiceManager:
    """Whoever started us and listens at NOTIFY_SOCKET; without one, nothing is said to anybody."""

    def __init__(self, *, awaited: bool) -> None:
        """*awaited*: whether we are the process that it started. A daemon that has left it is none of its business."""
        self._address = os.environ.get("NOTIFY_SOCKET", "") if awaited else ""

    @property
    def listens(self) -> bool:
        return bool(self._address)

    def ready(self, status: str) -> None:
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """To be followed by ready()."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell("RELOADING=1", f"MONOTONIC_USEC={now_us}", "STATUS=reading settings")

    def stopping(self) -> None:
        self._tell("STOPPING=1", "STATUS=unmounting")

    def status(self, text: str) -> None:
        self._tell(f"STATUS={text}")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        message = b"\n".join(line.replace("\n", " ").encode(errors="replace")[:_LINE_BYTES] for line in lines)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel, contextlib.suppress(OSError):
            channel.settimeout(_PATIENCE_S)
            channel.sendto(message, address)

    def watchdog_s(self) -> float:
        """Within what time it wants to hear again that we live; 0 when it does not."""
        if not self._address or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return 0.0
        limit_us = os.environ.get("WATCHDOG_USEC", "")
        return int(limit_us) / 1e6 if limit_us.isdecimal() else 0.0

    async def feed(self, answered: Callable[[], None]) -> None:
        """Feeds the watchdog each time that *answered* has returned, in a thread; not while it waits, nor when it raises OSError.

        It is called in the event loop's time: a loop that hangs feeds nobody.
        """
        limit_s, thread = self.watchdog_s(), trio.CapacityLimiter(1)  # its own: the others may all be copying
        while limit_s:
            try:
                await trio.to_thread.run_sync(answered, abandon_on_cancel=True, limiter=thread)
            except OSError as exc:
                log.error("the watchdog is not fed: %s", exc)
            else:
                self._tell("WATCHDOG=1")
            await trio.sleep(limit_s / _FED_PER_WATCHDOG)
