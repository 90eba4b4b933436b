"""The daemon of one mount: builds the rooms, wires them together, and ends in order. It knows no request.

Started by the command line with its orders on one descriptor; says on another, once, whether the mount answers.
"""

import argparse
import contextlib
import errno
import faulthandler
import logging
import logging.handlers
import os
import resource
import signal
import sqlite3
import sys
import time

import msgspec
import trio
import trio.lowlevel

from agentfs_client.control import ControlClient
from agentfsd import __version__, config, contents, kernel, mounts, preferences, process, runtime
from agentfsd.backstore.free_space import wait_for_room
from agentfsd.binding.table import Bindings
from agentfsd.config import DaemonConfig, Readiness
from agentfsd.contents import Contents
from agentfsd.control.control_file import ControlFile
from agentfsd.control.control_socket import ControlSocketServer, listen
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.control.service import ControlService
from agentfsd.core.overlay import Overlay
from agentfsd.ending import Ending
from agentfsd.errors import NO_ROOM, Refusal
from agentfsd.escape import printable
from agentfsd.fuse.branch_mounts import BranchMounts
from agentfsd.fuse.mount import IO_MODES, FuseMount
from agentfsd.fuse.native import descriptor_ioctl, fuse_device
from agentfsd.fuse.native.native_session import Unsupported
from agentfsd.handoff.descriptor_forwarding import Forwarding
from agentfsd.handoff.descriptor_mounts import DescriptorMounts
from agentfsd.handoff.interpose_server import InterposeServer
from agentfsd.keeping import Keeping
from agentfsd.lower.host_lower import HostLower
from agentfsd.lower.watch import LowerWatch
from agentfsd.metadata.row_store import unreadable
from agentfsd.observation import Observation
from agentfsd.supervision import ServiceManager
from agentfsd.types import BranchView

log = logging.getLogger("agentfsd")

_REAP_EVERY_S = 0.5
_REAP_AGAIN_S = 10.0  # after a failure
_FLUSH_TIMEOUT_S = 30
_READY_TIMEOUT_S = 30
_LOOK_AT_ROOM_S = 1.0
_SETTINGS_TIMEOUT_S = 5.0
_FULL_AGAIN_S = 15.0  # with the units' StartLimit a service manager then never gives up


class Daemon:
    """Everything that lives as long as the mount does."""

    def __init__(self, orders: DaemonConfig, held: Contents) -> None:
        self.orders, self.state, self.held = orders, runtime.State(orders.state), held
        self.lower = HostLower(orders.lower, share=orders.prefer_native_snapshots)
        if orders.mountpoint != orders.lower and config.is_within(orders.mountpoint, orders.lower):
            self.lower.mask(os.fsencode(os.path.relpath(orders.mountpoint, orders.lower)))
        self.store = held.store
        try:
            self.overlay = Overlay(held.store, self.lower, held.backstore)
        except sqlite3.DatabaseError as exc:
            raise unreadable(held.place.metadata, exc) from exc
        self.bindings = Bindings()
        self.watch = LowerWatch(self.lower)
        self.started_ns = time.time_ns()
        self.manager = ServiceManager(awaited=orders.foreground)
        self.ending = Ending(
            orders.mountpoint,
            self.bindings,
            self.manager,
            flush=self.flush,
            withdraw=lambda: runtime.withdraw(self.record()),
            terminate=lambda: self.mount.terminate(),
        )
        self.service = ControlService(
            self.overlay,
            self.bindings,
            self._info("", ""),
            flush=self.flush,
            settle=self.settle,
            write_back=self.write_back,
            shutdown=self.ending.ask,
            measure=self.measure,
            open_view=self.open_view,
        )
        self.server = ControlSocketServer(self.service)
        options = frozenset({*orders.mount_options, *(["allow_other"] if orders.allow_other else [])})
        self.mount = FuseMount(
            self.overlay, self.bindings, ControlFile(self.service), self.watch, orders.mountpoint, options, orders.session,
            BranchMounts(orders.state),
        )  # fmt: skip
        self.views = DescriptorMounts(self.lower, orders.lower, self.held.backstore, self.held.place.objects)
        self.forwarding = Forwarding(
            self.overlay,
            self.write_back,
            self.mount.pages_back_soon,
            self.views.why_not,
            _open_files_limit() // 2,
            "ro" in orders.mount_options,
        )
        self.doorway = InterposeServer(self.state.doorway, os.geteuid())
        self.service.forwarding, self.service.doorway, self.service.tell_command = (
            self.forwarding,
            self.doorway,
            descriptor_ioctl.TELL,
        )
        self.mount.connections.forwarding, self.mount.connections.doorway = self.forwarding, self.doorway
        self.observation = Observation(self.overlay, self.bindings, self.service, self.mount, self.state.audit, self.measure)
        self._hangup_ends = process.has_terminal()
        self._is_ready = self._told_to_end = False
        self._reading = trio.CapacityLimiter(1)  # of its own: what hangs there takes no thread from others

    def _info(self, session: str, why: str) -> DaemonInfo:
        orders = self.orders
        return DaemonInfo(
            version=__version__, pid=os.getpid(), lower=orders.lower, mountpoint=orders.mountpoint, state=orders.state,
            session=session, backstore=self.held.backstore.kind, started_ns=self.started_ns, owner_uid=os.geteuid(),
            capabilities={
                "cap.backstore": self.held.capability, "session": session,
                "session.why": why, "backstore.why": self.held.why,
            },
            shown_at=(orders.mountpoint, *([orders.lower] if orders.hidden else [])), read_only="ro" in orders.mount_options,
        )  # fmt: skip

    def begin(self) -> None:
        """Mounts; OSError with a sentence when that is refused, or the settings make no sense."""
        self._read_settings()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._remember)
        self.mount.mount()
        self.held.in_use = True
        self.observation.follow_policy()
        self.service.info = self._info(self.mount.kind, self.mount.why)

    def _remember(self, number: int, _: object) -> None:
        """Of a signal before the event loop listens, or after: whoever died of it would leave a dead mount."""
        self._told_to_end = self._told_to_end or number == signal.SIGTERM or self._hangup_ends

    def record(self) -> runtime.DaemonRecord:
        return runtime.DaemonRecord(
            pid=os.getpid(), start_ticks=runtime.process_start_ticks(os.getpid()), lower=self.orders.lower,
            mountpoint=self.orders.mountpoint, socket=self.state.socket, state=self.orders.state,
            started_ns=self.started_ns, hidden=self.orders.hidden,
        )  # fmt: skip

    def close(self) -> None:
        mounted = mounts.mount_at(self.orders.mountpoint)
        self.mount.close(unmount=mounted is not None and mounted.fstype == mounts.FSTYPE)
        self.observation.close()
        self.doorway.close()
        self.views.close()
        self.bindings.close()
        self.watch.close()
        self.lower.close()

    # -- what requests need of the daemon

    async def open_view(self, branch_id: str, io: str) -> BranchView:
        """A mount of one branch for a run; Refusal when the kernel cannot do what is asked."""
        if io not in IO_MODES:
            raise Refusal(errno.EINVAL, "bad-io", f"there is no way {io!r} to carry data", f"there are {', '.join(IO_MODES)}")
        try:
            return await self.mount.runs.open(branch_id, io)
        except Unsupported as exc:
            raise Refusal(errno.EPROTO, "no-native-session", str(exc), "--io is for kernels that can do this") from exc

    async def flush(self, branch_id: str | None = None) -> None:
        """Pages that the kernel still holds dirty (of files mapped for writing) come to us first."""
        await self.mount.flush_mapped(branch_id)
        if not self.mount.writers:
            return
        with trio.move_on_after(_FLUSH_TIMEOUT_S):
            await trio.to_thread.run_sync(kernel.sync_mount, self.orders.mountpoint, abandon_on_cancel=True)

    async def settle(self) -> None:
        await self.mount.settled()

    async def write_back(self) -> None:
        await self.mount.settled()

    def measure(self) -> dict[str, int]:
        """What the daemon takes: memory, descriptors, and what it remembers of the kernel's and of processes."""
        with open("/proc/self/statm", "rb") as file:
            rss_pages = int(file.read().split()[1])
        processes, others = self.bindings.seen()
        return {
            "rss_bytes": rss_pages * resource.getpagesize(), "descriptors": len(os.listdir("/proc/self/fd")),
            **self.mount.measure(), "inodes": self.overlay.loaded(), "processes": processes, "threads": others,
            "database_bytes": self.store.size_bytes(), "forwarded": len(self.forwarding), "forwardings": self.forwarding.given,
        }  # fmt: skip

    # -- living

    async def run(self, ready: process.Ready) -> None:
        """From mounted to unmounted."""
        if self.orders.metrics:
            self.service.info.metrics = self.observation.serve_metrics(self.orders.metrics)
        async with trio.open_nursery() as nursery:
            await nursery.start(self._watch_signals)
            nursery.start_soon(self.server.serve, listen(self.state.socket))
            nursery.start_soon(self._reap)
            nursery.start_soon(self._watch_room)
            if self.held.backstore.persistent:
                nursery.start_soon(Keeping(self.store, self.overlay, self.held.place).run)
            nursery.start_soon(self.observation.run)
            nursery.start_soon(self._follow_lower)
            nursery.start_soon(self.ending.unmount_when_asked)
            if self.orders.idle_exit_s:
                nursery.start_soon(self.ending.when_idle, self.orders.idle_exit_s, lambda: self.server.clients)
            nursery.start_soon(self._announce, ready, nursery)
            await self.mount.serve()
            nursery.cancel_scope.cancel()
        self.ending.check_asked()

    async def _announce(self, ready: process.Ready, nursery: trio.Nursery) -> None:
        """Ready means: the mount has answered somebody."""
        with trio.fail_after(_READY_TIMEOUT_S):
            root = await trio.to_thread.run_sync(os.stat, self.orders.mountpoint, abandon_on_cancel=True)
        nursery.start_soon(self.ending.watch_mount, root.st_dev)
        mounts.read_far_ahead(root.st_dev)
        runtime.publish(self.record())
        log.info("%s is mounted on %s", self.orders.lower, self.orders.mountpoint)
        notices = [self.held.notice, *self.overlay.findings()]
        ready.tell(Readiness(notice="; ".join(sentence for sentence in notices if sentence)))
        self.manager.ready(self._status())
        self._is_ready = True
        nursery.start_soon(self.mount.start_holder)
        nursery.start_soon(self.manager.feed, self._be_answered)
        if not self.orders.foreground:
            process.stderr_to(self.state.log)

    def _status(self) -> str:
        status = f"{self.orders.lower} is mounted on {self.orders.mountpoint}"
        if self.held.room.is_full:
            status += f"; no room is left in {self.held.backstore.place}: writes fail with ENOSPC until there is"
        return status

    def _be_answered(self) -> None:
        """Returns when the mount and the socket have answered; to be called in a thread. OSError."""
        os.statvfs(self.orders.mountpoint)  # which the kernel never answers by itself
        with ControlClient.connect(self.state.socket) as client:
            client.capabilities()

    def _read_settings(self) -> None:
        """Refusal, and none is changed, where one makes no sense."""
        preferences.apply(preferences.read(self.orders.settings), self.overlay, self.forwarding)

    async def reload(self) -> None:
        """Reads the settings again; whoever is in the mount notices nothing, though the file lie on a share that hangs."""
        self.manager.reloading()
        status = self._status()
        try:
            with trio.fail_after(_SETTINGS_TIMEOUT_S):
                found = await trio.to_thread.run_sync(
                    preferences.read, self.orders.settings, abandon_on_cancel=True, limiter=self._reading
                )
            preferences.apply(found, self.overlay, self.forwarding)
        except (OSError, sqlite3.Error, trio.TooSlowError) as exc:  # of the second a full disk, for example
            why = exc.strerror if isinstance(exc, OSError) else exc
            if isinstance(exc, trio.TooSlowError):
                why = f"{self.orders.settings} was not read within {_SETTINGS_TIMEOUT_S:.0f} s"
            log.error("the settings stay as they were: %s", why)
            status += f"; the settings stay as they were: {why}"
        else:
            self.observation.follow_policy()
            self.observation.note_settings(self.orders.settings)
            log.info("settings read: %s", self.orders.settings or "there is no file of them")
        self.manager.ready(status)

    async def _watch_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            if self._told_to_end:
                self.ending.now()
            async for number in signals:
                if number == signal.SIGHUP and not self._hangup_ends:
                    if self._is_ready:  # before, they have just been read
                        await self.reload()
                    continue
                log.info("%s: unmounting", signal.Signals(number).name)
                self.ending.now()

    async def _follow_lower(self) -> None:
        """Tells the kernel what others changed in the lower."""
        while self.watch.fd >= 0:
            await trio.lowlevel.wait_readable(self.watch.fd)
            self.mount.connections.lower_changed()

    async def _reap(self) -> None:
        """Frees what nothing refers to, a little at a time."""
        while True:
            await trio.sleep(_REAP_EVERY_S)
            self.bindings.drain()
            self.mount.unite()
            self.mount.runs.sweep()
            self.forwarding.sweep()
            self.doorway.sweep()
            try:
                while self.overlay.reap():
                    await trio.lowlevel.checkpoint()
                self.store.commit()
                self.store.reserve.keep()
            except (OSError, sqlite3.Error) as exc:  # a full disk, for example: what is garbage can wait
                if not self.held.room.is_full:
                    log.warning("freeing what nothing refers to: %s", exc)
                await trio.sleep(_REAP_AGAIN_S)

    async def _watch_room(self) -> None:
        """Says once that the disk is full, and once that it is not any more."""
        room, place = self.held.room, self.held.backstore.place
        while True:
            with contextlib.suppress(OSError):
                if room.has_changed():
                    if room.is_full:
                        log.warning("no room is left in %s: writes fail with ENOSPC; nothing acknowledged is lost", place)
                    else:
                        log.info("there is room again in %s", place)
                        self.observation.follow_policy()  # there may be an audit trail now
                    self.manager.status(self._status())
            await trio.sleep(_LOOK_AT_ROOM_S)


def _open_files_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def serve(orders: DaemonConfig, ready: process.Ready) -> None:
    """The whole life of a daemon. Refusal or OSError when it cannot begin."""
    orders = orders if orders.replaces_dead else config.check(orders)  # what it replaces may hide the lower
    state = runtime.State(orders.state)
    with runtime.locked(state, lambda holder: mounts.mount_at(holder.mountpoint) is None):
        process.start_log(orders, state)
        _stand_clear(orders)
        with contents.opened(orders, state) as held:
            _live(orders, held, ready)


def _live(orders: DaemonConfig, held: Contents, ready: process.Ready) -> None:
    if orders.replaces_dead:
        mounts.clear_dead(orders.mountpoint)
    daemon = Daemon(orders, held)
    record = daemon.record()
    try:
        daemon.begin()
        process.collect_seldom()
        trio.run(daemon.run, ready)
    finally:
        runtime.withdraw(record)
        daemon.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(record.socket)
        log.info("unmounted %s", orders.mountpoint)


def _read_orders(fd: int) -> DaemonConfig:
    with open(fd, "rb") as file:
        return msgspec.json.decode(file.read(), type=DaemonConfig)


def _stand_clear(orders: DaemonConfig) -> None:
    """Nothing of ours may be looked up beneath the mount once it is there: nobody would answer."""
    os.chdir("/")
    sys.path[:] = [path for path in sys.path if not config.is_within(os.path.realpath(path), orders.mountpoint)]
    sys.path_importer_cache.clear()


def main() -> int:
    parser = argparse.ArgumentParser(prog="agentfsd.daemon", description="started by `agentfsd mount`")
    parser.add_argument("--config-fd", type=int, required=True)
    parser.add_argument("--ready-fd", type=int, default=-1)
    arguments = parser.parse_args()
    ready, orders = process.Ready(arguments.ready_fd), None
    os.umask(0o077)
    for fd in (arguments.config_fd, arguments.ready_fd):
        if fd >= 0:
            os.set_inheritable(fd, False)
    process.raise_descriptor_limit()
    faulthandler.enable()  # a service manager's SIGABRT then leaves in the log where we hung
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # somebody opens a file while we ask by a lease who has it open
    try:
        orders = _read_orders(arguments.config_fd)
        if not orders.foreground:
            process.keep_only(arguments.ready_fd)
        serve(orders, ready)
    except Exception as exc:  # noqa: BLE001 - whoever started us is told every reason
        _report(exc, ready)
        if orders is not None:
            _make_way(orders, ServiceManager(awaited=orders.foreground), exc)
        return 1
    finally:
        process.let_go_of_output()
    return 0


def _make_way(orders: DaemonConfig, manager: ServiceManager, exc: Exception) -> None:
    """For the daemon that a service manager starts next. Until then nobody shall write to what lies beneath."""
    if not manager.listens:
        return
    before = runtime.State(orders.state).last_record()
    if orders.replaces_dead or (before is not None and before.pid == os.getpid()):
        there = mounts.mount_at(orders.mountpoint)
        if there is None or there.fstype != mounts.FSTYPE:
            fuse_device.mount_dead(orders.mountpoint, orders.allow_other)
    if isinstance(exc, OSError) and exc.errno in NO_ROOM:
        manager.status(f"no room is left in {orders.state}: it is tried again every {_FULL_AGAIN_S:.0f} s")
        wait_for_room(orders.state, _FULL_AGAIN_S)


def _report(exc: Exception, ready: process.Ready) -> None:
    while isinstance(exc, ExceptionGroup):
        exc = exc.exceptions[0]
    code, hint = (exc.code, exc.hint) if isinstance(exc, Refusal) else ("failed", "")
    message = f"{type(exc).__name__}: {exc}"
    if isinstance(exc, OSError):
        message = f"{os.fsdecode(exc.filename)}: {exc.strerror}" if exc.filename else exc.strerror or str(exc)
    number = exc.errno if isinstance(exc, OSError) and exc.errno else errno.EIO
    if logging.getLogger().handlers:
        log.error("%s%s", message, f" ({hint})" if hint else "", exc_info=None if isinstance(exc, OSError) else exc)
    elif not ready.awaited:
        sys.stderr.write(f"agentfsd: {printable(message)}\n" + (f"  hint: {printable(hint)}\n" if hint else ""))
    ready.tell(Readiness(error=message, errno=number, code=code, hint=hint))


if __name__ == "__main__":
    sys.exit(main())
