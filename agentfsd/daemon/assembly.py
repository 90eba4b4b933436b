"""The daemon of one mount: it builds the services, connects them, and closes them in order. It knows no request.

The command line starts it with its config on one descriptor; it reports once, on another, whether the mount answers.
"""

import contextlib
import logging
import logging.handlers
import os
import resource
import signal
import sqlite3
import time
from dataclasses import replace
from functools import partial

import trio
import trio.lowlevel

from agentfs_client import registry
from agentfs_client.control import ControlClient
from agentfs_host import mount_table, syncing
from agentfsd import __version__
from agentfsd.asking.questions import Questions
from agentfsd.binding.binding_records import BindingRecords
from agentfsd.binding.table import Bindings
from agentfsd.control.control_file import ControlFile
from agentfsd.control.control_socket import ControlSocketServer, listen
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.control.handler_services import Services
from agentfsd.control.overlap_watch import OverlapWatch
from agentfsd.control.service import ControlService
from agentfsd.core import declared_settings
from agentfsd.core.overlay import Overlay
from agentfsd.daemon import inheritance
from agentfsd.daemon.base_making import BaseMaking
from agentfsd.daemon.housekeeping import Housekeeping, follow_forks
from agentfsd.daemon.inheritance import Inheritance
from agentfsd.daemon.maintenance import Maintenance
from agentfsd.daemon.observation import Observation
from agentfsd.daemon.run_views import RunViews
from agentfsd.daemon.settings_reading import SettingsReading
from agentfsd.daemon.shutdown import MountShutdown
from agentfsd.daemon.state_contents import StateContents
from agentfsd.daemon.succession import Succession
from agentfsd.fuse.branch_mounts import BranchMounts
from agentfsd.fuse.home_mounts import HomeMounts
from agentfsd.fuse.mount import FuseMount
from agentfsd.fuse.native import descriptor_ioctl, fuse_device
from agentfsd.fuse.run_overlays import RunOverlays
from agentfsd.handoff.descriptor_forwarding import Forwarding
from agentfsd.handoff.descriptor_mounts import DescriptorMounts
from agentfsd.handoff.interpose_server import InterposeServer
from agentfsd.linux import mounts
from agentfsd.lower.frozen_bases import FrozenBases
from agentfsd.lower.host_lower import HostLower
from agentfsd.lower.watch import LowerWatch
from agentfsd.metadata.database_refusals import unreadable
from agentfsd.process import apart, descriptors, readiness
from agentfsd.process.readiness import Readiness
from agentfsd.process.service_manager import ServiceManager
from agentfsd.state import daemon_records, state_directory
from agentfsd.state.daemon_config import DaemonConfig
from agentfsd.state.home_layer_store import HomeLayerStore
from agentfsd.telemetry.process_identity import ProcessIdentifier

log = logging.getLogger("agentfsd")

_FLUSH_TIMEOUT_S = 30
_READY_TIMEOUT_S = 30
_LOOK_AT_ROOM_S = 1.0
_LOWER, _COVERED, _CONTROL, _DOORWAY = "lower", "covered", "control.socket", "doorway.socket"  # names of kept descriptors


class Daemon:
    """Everything that lives as long as the mount does."""

    def __init__(self, config: DaemonConfig, held: StateContents, inherited: Inheritance) -> None:
        self.config, self.state, self.held = config, state_directory.StateDirectory(config.state), held
        self.kept, self._inherited = inherited.kept, inherited
        self.succession: Succession | None = None
        self.manager = ServiceManager(awaited=config.foreground)
        self._why_not_restarted = inheritance.why_not_restarted(
            config, persistent=held.backstore.persistent, has_manager=self.manager.listens
        )
        records = _binding_records(self.state.bindings)
        self.lower = self._open_lower(config)
        self.store = held.store
        try:
            spared = {record.branch_id for record in records.found} if records is not None else set()
            frozen = FrozenBases(self.state.bases, self.lower)
            self.overlay = Overlay(held.store, self.lower, held.backstore, spared=spared, open_base=frozen.open)
        except sqlite3.DatabaseError as exc:
            raise unreadable(held.place.metadata, exc) from exc
        self.base_making = BaseMaking(self.overlay, frozen)
        self.bindings = Bindings(records)
        self.questions = Questions(self._ask_limit_s, self.bindings.process_of)
        self.overlay.rules.on_changed.append(self.questions.forget_answers)
        self.watch = LowerWatch(self.lower)
        self.started_ns = time.time_ns()
        self.ending = MountShutdown(
            config.mountpoint,
            self.bindings,
            self.manager,
            flush=self.flush,
            withdraw=lambda: daemon_records.withdraw(self.record()),
            terminate=lambda: self.mount.terminate(),
        )
        self.service = ControlService(
            Services(
                overlay=self.overlay,
                bindings=self.bindings,
                info=self._info("", ""),
                flush=self.flush,
                settle=self.settle,
                write_back=self.write_back,
                shutdown=self.ending.ask,
                restart=self._restart,
                measure=self.measure,
                open_for_writing=lambda branch_id: self.mount.main.cache.handles.open_for_writing(branch_id),
                identify=ProcessIdentifier(self.bindings, self.overlay),
                questions=self.questions,
                bases=self.base_making,
            )
        )
        self.server = ControlSocketServer(self.service)
        self.branch_mounts = BranchMounts(config.state, self.kept)
        self.homes = HomeMounts(
            self.branch_mounts, HomeLayerStore(self.state), self.bindings.is_in, self.kept,
            others=lambda: [record.pid for record in daemon_records.live_daemons()],
        )  # fmt: skip
        options = frozenset({*config.mount_options, *(["allow_other"] if config.allow_other else [])})
        self.mount = FuseMount(
            self.overlay, self.bindings, ControlFile(self.service), self.watch, config.mountpoint, options, config.session,
            self.branch_mounts, self.kept,
        )  # fmt: skip
        self.overlays = RunOverlays(
            self.branch_mounts, self.overlay, held.place, (config.lower, self.lower.root_fd), self.bindings,
            lambda branch_id: any(True for _ in self.mount.main.cache.handles.open_for_writing(branch_id)),
            self.mount.options_in_force, self.kept,
        )  # fmt: skip
        self.views = DescriptorMounts(self.lower, config.lower, self.held.backstore, self.held.place.objects, self.kept)
        self.forwarding = Forwarding(
            self.overlay,
            self.write_back,
            self.mount.pages_back_soon,
            self.views.why_not,
            _open_files_limit() // 2,
            "ro" in config.mount_options,
        )
        self.doorway = InterposeServer(self.state.doorway, os.geteuid(), self.kept.take(_DOORWAY))
        self.kept.keep(_DOORWAY, self.doorway.fileno())
        self._former_socket = self.kept.take(_CONTROL)
        self.service.services = replace(
            self.service.services,
            forwarding=self.forwarding,
            interpose_path=self.doorway.path,
            descriptor_ioctl=descriptor_ioctl.TELL,
            homes=self.homes,
            runs=self.overlays,
            open_view=RunViews(self.mount.runs, self.overlays, prefers_overlays=config.hidden and os.geteuid() == 0).open,
        )
        self.overlap_watch = OverlapWatch(self.overlay)
        self.service.services = replace(self.service.services, overlaps=self.overlap_watch)
        self.mount.connections.questions = self.questions
        self.mount.connections.forwarding, self.mount.connections.doorway = self.forwarding, self.doorway
        self.observation = Observation(
            self.overlay, self.bindings, self.service, self.mount, self.overlays, self.state.audit, self.measure
        )
        self.settings = SettingsReading(
            config.settings, self.overlay, self.forwarding, self.observation, self.manager, self._status, self._restart
        )
        self._hangup_ends = descriptors.has_terminal()
        self._is_ready = self._told_to_end = False

    def _open_lower(self, config: DaemonConfig) -> HostLower:
        """Open the lower; where the mount of the daemon before covers it, by the descriptors that it has left."""
        hides_mountpoint = config.mountpoint != config.lower and mount_table.is_within(config.mountpoint, config.lower)
        is_hidden = hides_mountpoint or mount_table.is_within(config.lower, config.mountpoint)
        is_hidden = is_hidden and config.replaces_dead and not self.kept.is_resumed
        with fuse_device.uncovered(config.mountpoint, config.allow_other) if is_hidden else contextlib.nullcontext():
            lower = HostLower(config.lower, share=config.prefer_native_snapshots, root_fd=self.kept.take(_LOWER))
            self.kept.keep(_LOWER, lower.root_fd)
            if hides_mountpoint:
                covered = os.fsencode(os.path.relpath(config.mountpoint, config.lower))
                self.kept.keep(_COVERED, lower.mask(covered, self.kept.take(_COVERED)))
        return lower

    def _info(self, session: str, why: str) -> DaemonInfo:
        config = self.config
        return DaemonInfo(
            version=__version__, pid=os.getpid(), lower=config.lower, mountpoint=config.mountpoint, state=config.state,
            session=session, backstore=self.held.backstore.kind, started_ns=self.started_ns, owner_uid=os.geteuid(),
            restarts=self.succession.why_not if self.succession is not None else "",
            succeeds=self.mount.main.nodes.records.ledger.life if session else 0,
            capabilities={
                "cap.backstore": self.held.capability, "session": session,
                "session.why": why, "backstore.why": self.held.why,
            },
            shown_at=(config.mountpoint, *([config.lower] if config.hidden else [])), read_only="ro" in config.mount_options,
        )  # fmt: skip

    @property
    def is_succeeded(self) -> bool:
        """Whether another daemon goes on with the mount, or tries to, if this one ends without close()."""
        return self.succession.is_settled if self.succession is not None else self.kept.is_resumed

    async def _restart(self) -> None:
        assert self.succession is not None
        await self.succession.restart()

    def begin(self) -> None:
        """Mount, or go on with the mount of the daemon before. OSError when that is refused or the settings are invalid."""
        self.settings.read()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._remember)
        self.homes.prepare()
        self.overlays.prepare()
        self.branch_mounts.resume(self._inherited.keeper, self._inherited.keeper_pid)
        inheritance.keep_config(self.config, self.kept)
        taken = self.bindings.take_over()
        if taken:
            log.info("%d processes have the branches that they had with the daemon before", taken)
        self.overlays.resume()
        self.mount.mount()
        self.homes.resume()
        self.questions.follows(self.mount.main.nodes.records.ledger.life)
        self.kept.close_former()
        self.succession = self._succession()
        self.held.in_use = True
        self.observation.apply_settings()
        self.service.services = replace(self.service.services, info=self._info(self.mount.kind, self.mount.why))

    def _remember(self, number: int, _: object) -> None:
        """Keep a signal that comes while the event loop does not listen. Its default action would leave a dead mount."""
        self._told_to_end = self._told_to_end or number == signal.SIGTERM or self._hangup_ends

    def _ask_limit_s(self) -> float:
        return declared_settings.parse_age(self.overlay.settings.values()["asks.timeout"])

    def _succession(self) -> Succession:
        why_not = self._why_not_restarted or self.mount.why_not_resumable
        return Succession(
            self.kept, self.branch_mounts, self.manager, why_not,
            be_answered=self._be_answered, publish=lambda: daemon_records.publish(self.record()), commit=self.store.commit,
            idle=self.service.idle, log_path="" if self.config.foreground else self.state.log,
        )  # fmt: skip

    def record(self) -> registry.DaemonRecord:
        keeper = self.branch_mounts.keeper_pid
        return registry.DaemonRecord(
            pid=os.getpid(), start_ticks=registry.process_start_ticks(os.getpid()), lower=self.config.lower,
            mountpoint=self.config.mountpoint, socket=self.state.socket, state=self.config.state,
            started_ns=self.started_ns, hidden=self.config.hidden, keeper=keeper,
            keeper_ticks=registry.process_start_ticks(keeper) if keeper else 0,
        )  # fmt: skip

    def close(self) -> None:
        mounted = mount_table.mount_at(self.config.mountpoint)
        self.homes.close()
        self.overlays.close()
        self.mount.close(unmount=mounted is not None and mounted.fstype == mount_table.FSTYPE)
        self.observation.close()
        self.doorway.close()
        self.views.close()
        self.bindings.close()
        self.watch.close()
        self.overlay.lowers.close()
        self.lower.close()
        self.kept.end()

    # -- what requests need of the daemon

    async def flush(self, branch_id: str | None = None) -> None:
        """Have the kernel write back the dirty pages of files that are mapped for writing. *branch_id* None: of every branch."""
        await self.mount.flush_mapped(branch_id)
        if not self.mount.writers:
            return
        with trio.move_on_after(_FLUSH_TIMEOUT_S):
            sync = partial(syncing.sync_mount, self.config.mountpoint)
            await trio.to_thread.run_sync(apart.run, sync, abandon_on_cancel=True)

    async def settle(self) -> None:
        await self.mount.settled()

    async def write_back(self) -> None:
        await self.mount.settled()

    def measure(self) -> dict[str, int]:
        """Return the daemon's resources: memory, descriptors, and what it keeps about the kernel and processes."""
        with open("/proc/self/statm", "rb") as file:
            rss_pages = int(file.read().split()[1])
        processes, others = self.bindings.seen()
        return {
            "rss_bytes": rss_pages * resource.getpagesize(), "descriptors": len(os.listdir("/proc/self/fd")),
            **self.mount.measure(), "inodes": self.overlay.trees.loaded(), "processes": processes, "threads": others,
            "database_bytes": self.store.size_bytes(), "forwarded": len(self.forwarding), "forwardings": self.forwarding.given,
        }  # fmt: skip

    # -- living

    async def run(self, ready: readiness.ReadinessPipe) -> None:
        """Run from the mount to its end."""
        if self.config.metrics:
            self.service.services.info.metrics = self.observation.serve_metrics(self.config.metrics)
        async with trio.open_nursery() as nursery:
            await nursery.start(self._watch_signals)
            listener = listen(self.state.socket, self._former_socket)
            self.kept.keep(_CONTROL, listener.socket.fileno())
            nursery.start_soon(self.server.serve, listener)
            nursery.start_soon(self._housekeeping().run)
            nursery.start_soon(follow_forks, self.bindings)
            nursery.start_soon(self._watch_room)
            if self.held.backstore.persistent:
                nursery.start_soon(Maintenance(self.store, self.overlay, self.held.place).run)
            nursery.start_soon(self.observation.run)
            nursery.start_soon(self.overlap_watch.run)
            nursery.start_soon(self._follow_lower)
            nursery.start_soon(self.overlays.follow_lower)
            nursery.start_soon(self.ending.unmount_when_asked)
            assert self.succession is not None
            nursery.start_soon(self.succession.hand_over)
            if self.config.idle_exit_s:
                nursery.start_soon(
                    self.ending.when_idle,
                    self.config.idle_exit_s,
                    lambda: self.server.recent_clients() + len(self.overlay.worktrees),  # those are paths that others know
                )
            nursery.start_soon(self._announce, ready, nursery)
            await self.mount.serve()
            nursery.cancel_scope.cancel()
        self.ending.check_asked()

    def _housekeeping(self) -> Housekeeping:
        assert self.succession is not None
        return Housekeeping(
            self.overlay, self.held.room, self.bindings, self.mount, self.overlays, self.homes, self.forwarding, self.doorway,
            self.succession, self.base_making,
        )  # fmt: skip

    async def _announce(self, ready: readiness.ReadinessPipe, nursery: trio.Nursery) -> None:
        """Report readiness after the mount has answered a request."""
        if self.config.frozen:
            await self.base_making.freeze_main(self.service.services.lower_commits().check)  # not what a killed commit has left
        self.base_making.check_main()
        with trio.fail_after(_READY_TIMEOUT_S):
            root = await trio.to_thread.run_sync(os.stat, self.config.mountpoint, abandon_on_cancel=True)
        device = self.mount.is_at(root.st_dev)
        nursery.start_soon(self.ending.watch_mount, device)
        mounts.read_far_ahead(device)
        daemon_records.publish(self.record())
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.state.given_up)
        log.info("%s is mounted on %s", self.config.lower, self.config.mountpoint)
        notices = [self.held.notice, *self.overlay.damage_notes(), "" if self.config.frozen else self.base_making.notice()]
        ready.tell(Readiness(notice="; ".join(sentence for sentence in notices if sentence)))
        self.manager.ready(self._status())
        self._is_ready = True
        assert self.succession is not None
        self.succession.begin(inheritance.keeper_place(self.config))
        nursery.start_soon(self.succession.watch_keeper, self.mount.start_holder)
        nursery.start_soon(self.manager.feed, self._be_answered)
        if not self.config.foreground:
            descriptors.stderr_to(self.state.log)

    def _status(self) -> str:
        status = f"{self.config.lower} is mounted on {self.config.mountpoint}"
        if self.held.room.is_full:
            status += f"; no room is left in {self.held.backstore.place}: writes fail with ENOSPC until there is"
        return status

    def _be_answered(self) -> None:
        """Return when the mount and the socket have answered. Call it in a thread. OSError."""
        apart.run(lambda: os.statvfs(self.config.mountpoint))  # which the kernel never answers by itself
        with ControlClient.connect(self.state.socket) as client:
            client.capabilities()

    async def _watch_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            if self._told_to_end:
                self.ending.now()
            async for number in signals:
                if number == signal.SIGHUP and not self._hangup_ends:
                    if self._is_ready:  # before, they have just been read
                        await self.settings.reload()
                    continue
                log.info("%s: unmounting", signal.Signals(number).name)
                self.ending.now()

    async def _follow_lower(self) -> None:
        """Invalidate what the kernel has cached of files that other processes changed in the lower."""
        while self.watch.fd >= 0:
            await trio.lowlevel.wait_readable(self.watch.fd)
            self.mount.connections.lower_changed()
            self.overlays.lower_changed()

    async def _watch_room(self) -> None:
        """Log once when the disk becomes full, and once when it no longer is."""
        room, place = self.held.room, self.held.backstore.place
        while True:
            with contextlib.suppress(OSError):
                if room.has_changed():
                    if room.is_full:
                        log.warning("no room is left in %s: writes fail with ENOSPC; nothing acknowledged is lost", place)
                    else:
                        log.info("there is room again in %s", place)
                        self.observation.apply_settings()  # there may be an audit trail now
                    self.manager.status(self._status())
            await trio.sleep(_LOOK_AT_ROOM_S)


def _binding_records(path: str) -> BindingRecords | None:
    """Open the records of bindings; None where the disk is full: a daemon serves without them, too."""
    try:
        return BindingRecords(path)
    except OSError as exc:
        log.warning("%s: %s: after a crash bound processes are unbound", path, exc.strerror)
        return None


def _open_files_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
