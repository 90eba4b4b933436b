"""The daemon of one mount: builds the rooms, wires them together, and ends in order. It knows no request.

Started by the command line with its orders on one descriptor; says on another, once, whether the mount answers.
"""

import argparse
import contextlib
import errno
import logging
import logging.handlers
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator

import msgspec
import pyfuse3
import trio
import trio.lowlevel

from agentfsd import __version__, config, kernel, mounts, runtime
from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.backstore.memory import MemoryBackstore
from agentfsd.binding.table import Bindings
from agentfsd.config import DaemonConfig, Readiness
from agentfsd.control.file import ControlFile
from agentfsd.control.service import ControlService, DaemonInfo
from agentfsd.control.socket import SocketServer, listen
from agentfsd.core.overlay import Overlay
from agentfsd.errors import Refusal
from agentfsd.fuse.session import FuseSession
from agentfsd.lower.host import HostLower
from agentfsd.metadata.store import Store
from agentfsd.types import Backstore

log = logging.getLogger("agentfsd")

LOG_BYTES = 4 << 20
_REAP_EVERY_S = 0.5
_FLUSH_TIMEOUT_S = 30
_READY_TIMEOUT_S = 30
_NOTICE_MEMORY = "the memory backstore keeps nothing: every branch goes with the mount"


class Daemon:
    """Everything that lives as long as the mount does."""

    def __init__(self, orders: DaemonConfig) -> None:
        self.orders, self.state = orders, runtime.State(orders.state)
        self.lower = HostLower(orders.lower)
        if orders.mountpoint != orders.lower and config.is_within(orders.mountpoint, orders.lower):
            self.lower.mask(os.fsencode(os.path.relpath(orders.mountpoint, orders.lower)))
        self.store = Store.open(self.state.metadata if self.keeps else ":memory:", orders.lower)
        self.backstore = self._open_backstore()
        self.overlay = Overlay(self.store, self.lower, self.backstore)
        self.bindings = Bindings()
        self.started_ns = time.time_ns()
        self.service = ControlService(
            self.overlay, self.bindings, self._info(), flush=self.flush, settle=self.settle, shutdown=self.ask_to_end
        )
        self.server = SocketServer(self.service)
        options = {"allow_other"} if orders.allow_other else set()
        self.session = FuseSession(self.overlay, self.bindings, ControlFile(self.service), orders.mountpoint, frozenset(options))
        self._force = False
        self._end = trio.Event()

    @property
    def keeps(self) -> bool:
        return self.orders.backstore == "hostfs"

    def _open_backstore(self) -> Backstore:
        if self.keeps:
            return HostBackstore(self.state.objects)
        return MemoryBackstore(
            self.state.spill,
            spill_object_bytes=self.orders.memory_object_limit_bytes,
            spill_total_bytes=self.orders.memory_total_limit_bytes,
        )

    def _info(self) -> DaemonInfo:
        orders = self.orders
        return DaemonInfo(
            version=__version__, pid=os.getpid(), lower=orders.lower, mountpoint=orders.mountpoint, state=orders.state,
            session="pyfuse3", backstore=self.backstore.kind, started_ns=self.started_ns, owner_uid=os.geteuid(),
            capabilities={
                "cap.backstore": self.backstore.kind, "cap.fd_forwarding": "off", "session": "pyfuse3",
                "passthrough": "off", "pyfuse3": pyfuse3.__version__,
            },
        )  # fmt: skip

    def record(self) -> runtime.DaemonRecord:
        return runtime.DaemonRecord(
            pid=os.getpid(), start_ticks=runtime.process_start_ticks(os.getpid()), lower=self.orders.lower,
            mountpoint=self.orders.mountpoint, socket=self.state.socket, state=self.orders.state,
            started_ns=self.started_ns, hidden=self.orders.hidden,
        )  # fmt: skip

    def close(self) -> None:
        self.session.close()
        self.bindings.close()
        self.store.close()
        self.backstore.close()
        self.lower.close()

    # -- what requests need of the daemon

    async def flush(self) -> None:
        """Pages that the kernel still holds dirty (of files mapped for writing) come to us first."""
        if not self.overlay.has_open_writers():
            return
        with trio.move_on_after(_FLUSH_TIMEOUT_S):
            await trio.to_thread.run_sync(kernel.sync_mount, self.orders.mountpoint, abandon_on_cancel=True)

    async def settle(self) -> None:
        await self.session.settled()

    def ask_to_end(self, force: bool) -> None:
        if not force and mounts.is_busy(self.orders.mountpoint):
            raise Refusal(
                errno.EBUSY, "mount-busy", f"{self.orders.mountpoint} is in use",
                "leave it (see `fuser -vm`), or use `agentfsd umount --lazy`",
            )  # fmt: skip
        self._force = force
        self._end.set()

    # -- living

    async def run(self, ready: "Ready") -> None:
        """From mounted to unmounted."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._watch_signals)
            nursery.start_soon(self.server.serve, listen(self.state.socket))
            nursery.start_soon(self._reap)
            nursery.start_soon(self._unmount_when_asked)
            if self.orders.idle_exit_s:
                nursery.start_soon(self._end_when_idle)
            nursery.start_soon(self._announce, ready)
            await self.session.serve()
            nursery.cancel_scope.cancel()

    async def _announce(self, ready: "Ready") -> None:
        """Ready means: the mount has answered somebody."""
        with trio.fail_after(_READY_TIMEOUT_S):
            await trio.to_thread.run_sync(os.stat, self.orders.mountpoint, abandon_on_cancel=True)
        runtime.publish(self.record())
        log.info("%s is mounted on %s", self.orders.lower, self.orders.mountpoint)
        ready.tell(Readiness(notice="" if self.keeps else _NOTICE_MEMORY))
        notify_service_manager(b"READY=1")

    async def _watch_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                log.info("%s: unmounting", signal.Signals(number).name)
                self._force = True
                self._end.set()

    async def _unmount_when_asked(self) -> None:
        """The kernel ends the session when the last user of a lazily unmounted mount has gone; we do not wait that long."""
        await self._end.wait()
        notify_service_manager(b"STOPPING=1")
        try:
            await trio.to_thread.run_sync(mounts.unmount, self.orders.mountpoint)
        except OSError as exc:
            if exc.errno == errno.EBUSY and not self._force:
                log.warning("%s is in use: unmounting when its users have gone", self.orders.mountpoint)
            with contextlib.suppress(OSError):
                await trio.to_thread.run_sync(mounts.unmount, self.orders.mountpoint, True)
            if self._force:
                self.session.terminate()

    async def _end_when_idle(self) -> None:
        """Ends when for that long no bound process has lived and no client has been connected."""
        limit_s, idle_since = self.orders.idle_exit_s, trio.current_time()
        while True:
            await trio.sleep(min(1.0, limit_s / 4))
            if self.server.clients or self.bindings.bindings():
                idle_since = trio.current_time()
            elif trio.current_time() - idle_since > limit_s and not mounts.is_busy(self.orders.mountpoint):
                log.info("idle for %s s: unmounting", limit_s)
                self._end.set()
                return

    async def _reap(self) -> None:
        """Frees what nothing refers to, a little at a time."""
        while True:
            await trio.sleep(_REAP_EVERY_S)
            while self.overlay.reap():
                await trio.lowlevel.checkpoint()


class Ready:
    """The pipe to whoever started us."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def tell(self, message: Readiness) -> None:
        """Only the first message counts."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(BrokenPipeError):
                os.write(fd, msgspec.json.encode(message) + b"\n")
            os.close(fd)


def notify_service_manager(message: bytes) -> None:
    """sd_notify(3); nothing when nobody asked for it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel, contextlib.suppress(OSError):
        channel.sendto(message, "\0" + address[1:] if address.startswith("@") else address)


def serve(orders: DaemonConfig, ready: Ready) -> None:
    """The whole life of a daemon. Refusal or OSError when it cannot begin."""
    orders = config.check(orders)
    state = runtime.State(orders.state)
    with runtime.locked(state):
        _start_log(orders, state)
        daemon = Daemon(orders)
        record = daemon.record()
        try:
            daemon.session.mount()
            trio.run(daemon.run, ready)
        finally:
            runtime.withdraw(record)
            daemon.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(state.socket)
            log.info("unmounted %s", orders.mountpoint)


def _start_log(orders: DaemonConfig, state: runtime.State) -> None:
    handler: logging.Handler
    if orders.foreground:
        handler = logging.StreamHandler()
    else:
        handler = logging.handlers.RotatingFileHandler(state.log, maxBytes=LOG_BYTES, backupCount=1)
    logging.basicConfig(
        level=os.environ.get("AGENTFS_LOG", "INFO"), handlers=[handler], format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def raise_descriptor_limit() -> None:
    """One descriptor for each open file and for each process that was seen."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _read_orders(fd: int) -> Iterator[bytes]:
    while chunk := os.read(fd, 1 << 16):
        yield chunk


def main() -> int:
    parser = argparse.ArgumentParser(prog="agentfsd.daemon", description="started by `agentfsd mount`")
    parser.add_argument("--config-fd", type=int, required=True)
    parser.add_argument("--ready-fd", type=int, default=-1)
    arguments = parser.parse_args()
    ready = Ready(arguments.ready_fd)
    os.umask(0o077)
    for fd in (arguments.config_fd, arguments.ready_fd):
        if fd >= 0:
            os.set_inheritable(fd, False)
    raise_descriptor_limit()
    try:
        orders = msgspec.json.decode(b"".join(_read_orders(arguments.config_fd)), type=DaemonConfig)
        os.close(arguments.config_fd)
        serve(orders, ready)
    except OSError as exc:
        _report(exc, ready)
        return 1
    return 0


def _report(exc: OSError, ready: Ready) -> None:
    code, hint = (exc.code, exc.hint) if isinstance(exc, Refusal) else ("failed", "")
    message = exc.strerror or str(exc)
    if exc.filename:
        message = f"{os.fsdecode(exc.filename)}: {message}"
    log.error("%s", message)
    ready.tell(Readiness(error=message, errno=exc.errno or errno.EIO, code=code, hint=hint))


if __name__ == "__main__":
    sys.exit(main())
