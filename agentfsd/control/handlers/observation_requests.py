"""Requests about what the daemon and its branches are doing: status, top, events, the audit trail."""

import errno
import math
import time
from collections.abc import Callable
from contextlib import nullcontext

import trio

from agentfs_client import wire
from agentfs_files.filesystem.search import PathMatch, path_matcher
from agentfsd.control.audit_notes import (
    changes_nothing,
)
from agentfsd.control.authorization import (
    everybody,
    own_branch,
    unbound_only,
)
from agentfsd.control.branch_listing import wire_activity
from agentfsd.control.daemon_status import status
from agentfsd.control.event_stream import EventWatcher, stream
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.request_context import RequestContext
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.telemetry.audit_database import AuditQuery, AuditRecord
from agentfsd.telemetry.request_counters import OperationTimes, ProcessActivity

_LEAST_S, _MOST_S = 0.05, 60.0
_MOST_ENTRIES = 10_000


@control_operation(wire.Events, permission=own_branch("branch"), note=changes_nothing, cancellable=True, waits=True)
async def watch_events(services: Services, request: wire.Events, context: RequestContext) -> wire.Done:
    """Send the events of branches until the client goes away."""
    branch_id = services.overlay.refs.branch(request.branch).id if request.branch is not None else context.bound_to
    watcher = EventWatcher(services.overlay, branch_id, context.hides, knows_others=context.bound_to is None)
    with services.overlaps.listening() if services.overlaps is not None else nullcontext():
        await stream(watcher, context, services.bindings)
    return wire.Done(message="the branch has gone")


@control_operation(wire.Status, permission=everybody, note=changes_nothing)
async def show_status(services: Services, request: wire.Status, context: RequestContext) -> wire.StatusReply:
    """Return the status of the daemon."""
    return await status(services, context.bound_to)


@control_operation(wire.OverlapsList, permission=unbound_only, note=changes_nothing)
async def list_overlaps(services: Services, request: wire.OverlapsList, context: RequestContext) -> wire.OverlapsReply:
    """Return which paths several branches have changed."""
    if services.overlaps is None:
        return wire.OverlapsReply(overlaps=[], complete=False)
    complete = await services.overlaps.catch_up(min(request.patience_s, _MOST_S))
    names = {branch_id: name for name, branch_id in services.overlay.refs.names(branches=True)}
    return wire.OverlapsReply(
        overlaps=[
            wire.PathOverlap(
                branches=[names[each] for each in found.branches if each in names], conflict=found.kind,
                between=[names[each] for each in found.between if each in names], **wire.path_fields(path),
            )
            for path, found in sorted(services.overlaps.overlaps.found.items()) if len(names.keys() & {*found.branches}) > 1
        ],
        complete=complete,
    )  # fmt: skip


@control_operation(wire.Top, permission=everybody, note=changes_nothing, cancellable=True, waits=True)
async def top(services: Services, request: wire.Top, context: RequestContext) -> wire.TopReply:
    """Measure the daemon's requests for some time, and return the figures."""
    if not _LEAST_S <= request.seconds <= _MOST_S or math.isnan(request.seconds):
        raise invalid(f"cannot measure for {request.seconds} s", f"give {_LEAST_S} to {_MOST_S:.0f} seconds")
    profile = services.traffic.profile(services.identify.of_thread, context.bound_to)
    began_ns = time.monotonic_ns()
    try:
        await trio.sleep(request.seconds)
    finally:
        profile.stop()
    rows = profile.rows()
    span_ns = time.monotonic_ns() - began_ns
    return wire.TopReply(
        span_ns=span_ns,
        operations=[_wire_operation(*item) for item in sorted(profile.times.items(), key=lambda item: -item[1].count)],
        processes=[_wire_process(row, services.identify.branch_name(row.who.branch_id)) for row in rows],
        read_bytes=sum(row.read_bytes for row in rows), written_bytes=sum(row.written_bytes for row in rows),
        lag_ns=int(services.traffic.lags_s[-1] * 1e9), agents=await wire_activity(services, context),
    )  # fmt: skip


@control_operation(wire.AuditList, permission=own_branch("branch"), note=changes_nothing)
async def list_audit_entries(services: Services, request: wire.AuditList, context: RequestContext) -> wire.AuditReply:
    """Return entries of the audit trail."""
    if not 1 <= request.limit <= _MOST_ENTRIES:
        raise invalid(f"{request.limit} is not a number of entries", f"give 1 to {_MOST_ENTRIES}")
    if services.audit is None or not services.audit.is_on:
        return wire.AuditReply(enabled=False, entries=[])
    branch_id, name = _asked_branch(services, request.branch, context)
    question = AuditQuery(branch_id, name, request.since_ns, request.until_ns, request.pid, request.kind, request.after)
    fits = _path_filter(request.path)
    shown = fits if context.ruled is None else lambda record: not context.hides(record.path, record.old_path) and fits(record)
    records = await services.audit.read(question, shown, request.limit)
    return wire.AuditReply(enabled=True, entries=[_wire_entry(record) for record in records])


@control_operation(wire.RefusalList, permission=own_branch("branch"), note=changes_nothing)
async def list_refusals(services: Services, request: wire.RefusalList, context: RequestContext) -> wire.RefusalsReply:
    branch_id = services.overlay.refs.branch(request.branch or context.branch).id
    refused = services.traffic.refused.of_branch(branch_id)
    return wire.RefusalsReply(
        refusals=[
            wire.RefusedCount(
                op=one.op, path=one.path, why=errno.errorcode.get(one.code, str(one.code)), count=count, command=one.command
            )
            for one, count in refused
        ]
    )


def _asked_branch(services: Services, ref: str | None, context: RequestContext) -> tuple[str, str]:
    """Return (id, "") of the branch to report on, ("", name) for a deleted branch, or ("", "") for all branches.

    A bound process gets its own branch, whatever *ref* is.
    """
    if context.bound_to is not None:
        return context.bound_to, ""
    if ref is None:
        return "", ""
    try:
        return services.overlay.refs.branch(ref).id, ""
    except Refusal:
        return "", ref


def _wire_operation(name: str, times: OperationTimes) -> wire.OperationLoad:
    half, most = times.percentiles(0.5, 0.99)
    return wire.OperationLoad(name=name, count=times.count, p50_ns=half, p99_ns=most, longest_ns=times.longest_ns)


def _wire_process(row: ProcessActivity, branch: str) -> wire.ProcessLoad:
    return wire.ProcessLoad(
        pid=row.who.pid, command=row.who.command, branch=branch, requests=row.requests, read_bytes=row.read_bytes,
        written_bytes=row.written_bytes, busy_ns=row.busy_ns,
    )  # fmt: skip


def _path_filter(pattern: str) -> Callable[[AuditRecord], bool]:
    if not pattern:
        return lambda record: True
    try:
        matches: PathMatch = path_matcher(pattern, by_name=True)
    except ValueError as exc:
        raise Refusal(errno.EINVAL, "bad-pattern", str(exc), "such as 'src/**/*.c' or '*.c'") from None

    def fits(record: AuditRecord) -> bool:
        return any(matches(path.decode("utf-8", "backslashreplace")) for path in (record.path, record.old_path) if path)

    return fits


def _wire_entry(record: AuditRecord) -> wire.AuditEntry:
    return wire.AuditEntry(
        id=record.id, time_ns=record.time_ns, branch=record.branch, uid=record.uid, pid=record.pid, command=record.command,
        kind=record.kind, name=record.name, **wire.path_fields(record.path), **wire.path_fields(record.old_path, "old_path"),
    )  # fmt: skip
