"""Tell the service manager that the daemon is ready, answers, reloads or ends. This module knows no overlay and no request.

Source: sd_notify(3), sd_watchdog_enabled(3), systemd.service(5).
"""

import array
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence

import trio

log = logging.getLogger(__name__)

_PATIENCE_S = 1.0  # after that a notification is dropped, so that a manager that hangs does not block the daemon
_LINE_BYTES = 3000  # a message of more than 4096 bytes is thrown away by systemd, with the READY=1 in it
_FED_PER_WATCHDOG = 3  # so the watchdog fires only after two missed feeds


class ServiceManager:
    """The service manager at NOTIFY_SOCKET. Without that variable nothing is sent."""

    def __init__(self, *, awaited: bool) -> None:
        """*awaited*: whether this is the process that the manager started. A daemonised process does not notify systemd."""
        self._address = os.environ.get("NOTIFY_SOCKET", "") if awaited else ""

    @property
    def listens(self) -> bool:
        return bool(self._address)

    def ready(self, status: str) -> None:
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report a reload. Call ready() afterwards."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell("RELOADING=1", f"MONOTONIC_USEC={now_us}", "STATUS=reading settings")

    def stopping(self) -> None:
        self._tell("STOPPING=1", "STATUS=unmounting")

    def status(self, text: str) -> None:
        self._tell(f"STATUS={text}")

    # -- its file descriptor store: it is a Holder of kept descriptors

    def keep(self, name: str, fd: int) -> None:
        """See Holder. It does not poll the descriptor: that would wake it up for every request of the kernel."""
        self._send("FDSTORE=1", "FDPOLL=0", f"FDNAME={name}", descriptors=[fd])

    def drop(self, name: str) -> None:
        """See Holder."""
        self._send("FDSTOREREMOVE=1", f"FDNAME={name}")

    def succeeded_by(self, pid: int) -> None:
        """Report that another process is the service's main process from now on."""
        self._tell(f"MAINPID={pid}")

    def _tell(self, *lines: str) -> None:
        with contextlib.suppress(OSError):
            self._send(*lines)

    def _send(self, *lines: str, descriptors: Sequence[int] = ()) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        message = b"\n".join(line.replace("\n", " ").encode(errors="replace")[:_LINE_BYTES] for line in lines)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.settimeout(_PATIENCE_S)
            # not socket.send_fds: up to Python 3.11.2 it ignores the address
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            channel.sendmsg([message], rights, 0, address)

    def watchdog_s(self) -> float:
        """Return the watchdog interval in seconds; 0 when there is no watchdog."""
        if not self._address or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return 0.0
        limit_us = os.environ.get("WATCHDOG_USEC", "")
        return int(limit_us) / 1e6 if limit_us.isdecimal() else 0.0

    async def feed(self, answered: Callable[[], None]) -> None:
        """Feed the watchdog each time that *answered* returns. A thread calls it.

        While *answered* waits, or when it raises OSError, the watchdog is not fed. The event loop starts each call,
        so a loop that hangs does not feed the watchdog either.
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
