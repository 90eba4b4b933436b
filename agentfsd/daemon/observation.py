"""Counters, slow requests, the audit trail and metrics of a daemon. This module answers no request."""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from agentfsd import __version__
from agentfsd.binding.table import Bindings
from agentfsd.control.service import ControlService
from agentfsd.core.declared_settings import parse_bytes
from agentfsd.core.overlay import Overlay
from agentfsd.fuse.mount import FuseMount
from agentfsd.fuse.run_overlays import RunOverlays
from agentfsd.state import daemon_config
from agentfsd.telemetry.audit_trail import AuditTrail
from agentfsd.types import Caller

if TYPE_CHECKING:
    from agentfsd.telemetry.metrics import MetricsServer, MetricsSnapshot

log = logging.getLogger(__name__)

_LAG_EVERY_S = 0.5


class Observation:
    """Everything that observes a daemon. ``measure`` returns its resources: see wire.StatusReply.resources."""

    def __init__(
        self,
        overlay: Overlay,
        bindings: Bindings,
        service: ControlService,
        mount: FuseMount,
        overlays: RunOverlays,
        trail: str,
        measure: Callable[[], dict[str, int]],
    ) -> None:
        self._overlay, self._bindings, self._service, self._measure = overlay, bindings, service, measure
        self.traffic = mount.connections.traffic
        self.audit = AuditTrail(overlay, mount.connections.identify, trail)
        service.services = replace(
            service.services,
            traffic=self.traffic,
            identify=mount.connections.identify,
            connections=lambda: [*mount.sessions(), *overlays.sessions()],
            apply_settings=self.apply_settings,
            audit=self.audit,
        )
        self._served: MetricsServer | None = None

    def apply_settings(self) -> None:
        """Apply the overlay's settings, at the start and after each change. What cannot be observed does not stop the daemon."""
        settings = self._overlay.settings.values()
        self.traffic.slow.set_limit(int(settings["log.slow_ms"]))
        try:
            self.audit.set(enabled=settings["audit.enabled"] == "yes", max_bytes=parse_bytes(settings["audit.max_bytes"]))
        except OSError as exc:
            log.warning("no audit trail is written: %s", exc.strerror)

    def note_settings(self, path: str) -> None:
        """Record that a settings file was read again. The sender of the signal is not known."""
        if path:
            self.audit.note("policy", Caller(os.getpid(), os.geteuid(), os.getegid()), name=f"read again from {path}")

    async def run(self) -> None:
        """Observe as long as the daemon lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._measure_lag)
            await self.audit.keep_writing()

    async def _measure_lag(self) -> None:
        """Measure how late a task that only sleeps is resumed: answers are late by as much."""
        while True:
            began_s = trio.current_time()
            await trio.sleep(_LAG_EVERY_S)
            self.traffic.lags_s.append(max(0.0, trio.current_time() - began_s - _LAG_EVERY_S))

    def serve_metrics(self, address: str) -> str:
        """Serve metrics. Call it in the event loop.

        Returns:
            The address.

        Raises:
            Refusal: The address cannot be used.
        """
        from agentfsd.telemetry import metrics

        wanted = daemon_config.parse_address(address)
        self._served = metrics.MetricsServer(
            wanted, self._picture, self._overlay.backstore.usage, trio.lowlevel.current_trio_token()
        )
        return str(wanted if wanted.path else wanted._replace(port=self._served.port))

    def close(self) -> None:
        self.audit.close()
        if self._served is not None:
            self._served.close()

    def _picture(self) -> "MetricsSnapshot":
        from agentfsd.telemetry.metrics import MetricsSnapshot, RequestMetrics

        traffic, taken = self.traffic, self._measure()
        usage = self._overlay.usage({})
        room = self._overlay.backstore.statvfs()
        return MetricsSnapshot(
            __version__,
            [
                RequestMetrics(tally.channel, tally.op, tuple(tally.classes), tally.total_ns, tally.errors)
                for tally in traffic.tallies.values()
                if tally.count
            ],
            {
                "read_bytes": (traffic.read_bytes, "Read by requests; other reads of the kernel are not counted."),
                "written_bytes": (traffic.written_bytes, "Written by requests; other writes of the kernel are not counted."),
                "slow_requests": (traffic.slow.count, "Requests that took longer than log.slow_ms."),
                "audit_lost_records": (self.audit.lost, "Records of the audit trail that could not be kept."),
                "forwarded_descriptors": (taken["forwardings"], "Real descriptors that were given out."),
            },
            {
                "branches": (usage["branches"], "Branches."),
                "snapshots": (usage["snapshots"], "Snapshots."),
                "bound_processes": (len(self._bindings.bindings()), "Live processes that are bound to a branch."),
                "connections": (taken["connections"], "Connections of the kernel: the mount point's and private mounts."),
                "open_files": (taken["handles"], "Opens that the kernel has told of."),
                "nodes": (taken["nodes"], "Files and directories that the kernel knows."),
                "pending_notifications": (taken["notifications"], "Changes that the kernel has not been told of yet."),
                "garbage_objects": (
                    len(self._overlay.layers.garbage()), "Contents that nothing refers to and are yet to be freed.",
                ),
                "resident_memory_bytes": (taken["rss_bytes"], "Memory of the daemon."),
                "open_descriptors": (taken["descriptors"], "Descriptors of the daemon."),
                "database_bytes": (taken["database_bytes"], "The metadata database."),
                "disk_free_bytes": (room.f_bavail * room.f_frsize, "Free where contents are kept."),
                "disk_size_bytes": (room.f_blocks * room.f_frsize, "Of the file system where contents are kept."),
                "loop_lag_seconds": (max(traffic.lags_s), "The longest wait for the event loop within the last minute."),
                "audit_enabled": (int(self.audit.is_on), "1 while the audit trail is written."),
            },
        )  # fmt: skip
