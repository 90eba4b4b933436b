"""Requests about what the daemon and its branches are doing: status, top, the audit trail; and what each request took."""

import errno
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from agentfs_client import wire
from agentfs_files.filesystem.search import PathMatch, path_matcher
from agentfsd.backstore.free_space import is_full
from agentfsd.binding.table import Bindings
from agentfsd.control import audit_notes
from agentfsd.control.cooperative import drive
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.control.progress_channel import ClientGone
from agentfsd.control.request_context import RequestContext
from agentfsd.core.overlay import Overlay
from agentfsd.errors import Refusal, invalid
from agentfsd.handoff.descriptor_forwarding import Forwarding
from agentfsd.lower import commit_writer
from agentfsd.telemetry.audit_database import AuditQuery, AuditRecord
from agentfsd.telemetry.audit_trail import AuditTrail
from agentfsd.telemetry.process_identity import ProcessIdentifier
from agentfsd.telemetry.request_counters import OperationTimes, ProcessActivity, RequestCounters
from agentfsd.telemetry.slow_requests import SlowOperation
from agentfsd.types import DEFAULT_BRANCH, BranchInfo

_GONE = "(deleted)"
_LEAST_S, _MOST_S = 0.05, 60.0
_MOST_ENTRIES = 10_000
_UNMEASURED = (wire.Events, wire.Top)  # they wait for something to happen


class ObserveHandlers:
    """Part of ControlService."""

    overlay: Overlay
    bindings: Bindings
    info: DaemonInfo
    traffic: RequestCounters
    identify: ProcessIdentifier
    audit: AuditTrail | None = None
    connections: Callable[[], list[tuple[str, str, str]]]  # branch id, session and io of each
    forwarding: Forwarding | None = None
    _measure: Callable[[], dict[str, int]]
    _committing: bool
    follow_policy: Callable[[], None]  # of whoever the settings are for, when one has changed

    # -- status

    async def status(self, bound_to: str | None) -> wire.StatusReply:
        """What a process that is bound to a branch (its id) is told leaves out other branches. Takes its time with many files and
        branches, and nobody else's."""
        info, usage = self.info, await trio.to_thread.run_sync(self.overlay.backstore.usage)
        branches = await self._branches()
        damage = [] if bound_to else await trio.to_thread.run_sync(self.overlay.findings)
        return wire.StatusReply(
            daemon=info.version, pid=info.pid, lower=info.lower, mountpoint=info.mountpoint, state=info.state,
            session=info.session, backstore=info.backstore, started_ns=info.started_ns,
            branch=self._branch_name(bound_to), bound=bound_to is not None,
            branches=[branch for branch in branches if bound_to in (None, branch.id)],
            bindings=[] if bound_to else self._bindings(),
            usage=self.overlay.usage(usage), resources=self._resources(), session_why=info.capabilities.get("session.why", ""),
            fd_forwarding=self._forwards(),
            cap_backstore=info.capabilities.get("cap.backstore", info.backstore),
            backstore_why=info.capabilities.get("backstore.why", ""),
            connections=self._connections(bound_to), pending_commit=None if bound_to else self._pending(),
            slow=[_wire_slow(slow) for slow in self.traffic.slow.recent if bound_to in (None, slow.branch_id)],
            audit=self.audit is not None and self.audit.is_on, metrics=info.metrics, damage=damage,
        )  # fmt: skip

    async def _status(self, request: wire.Status, context: RequestContext) -> wire.StatusReply:
        return await self.status(context.bound_to)

    def _resources(self) -> dict[str, int]:
        room = self.overlay.backstore.statvfs()
        return {
            **self._measure(), "disk_free_bytes": room.f_bavail * room.f_frsize,
            "disk_total_bytes": room.f_blocks * room.f_frsize,
            "disk_full": int(self.overlay.backstore.persistent and is_full(room)), "garbage_objects": len(self.overlay.garbage()),
            "slow_requests": self.traffic.slow.count, "requests": sum(tally.count for tally in self.traffic.tallies.values()),
            "lag_us": int(max(self.traffic.lags_s) * 1e6),
        }  # fmt: skip

    def _connections(self, bound_to: str | None) -> list[wire.Connection]:
        return [
            wire.Connection(branch=self._branch_name(branch_id) if branch_id else "", session=session, io=io)
            for branch_id, session, io in self.connections()
            if bound_to is None or branch_id in ("", bound_to)
        ]

    def _pending(self) -> wire.PendingCommit | None:
        try:
            found = commit_writer.pending(self.info.state)
        except Refusal:
            return wire.PendingCommit(branch="", phase="unreadable", paths=0, running=self._committing)
        if found is None:
            return None
        branch = self.identify.branch_name(found.note.get("branch", ""))
        return wire.PendingCommit(branch=branch, phase=found.phase, paths=found.paths, running=self._committing)

    def _forwards(self) -> str:
        return self.forwarding.kind if self.forwarding is not None else "off"

    def _branch_name(self, branch_id: str | None) -> str:
        """A process can outlive its branch: it then sees nothing at all, never another branch."""
        if branch_id is None:
            return DEFAULT_BRANCH
        return self.identify.branch_name(branch_id) or _GONE

    def _wire_branch(self, info: BranchInfo, processes: int = 0) -> wire.Branch:
        last = self.overlay.snapshot_row(info.last) if info.last else None
        return wire.Branch(
            name=info.name, id=info.id, base=info.base, created_ns=info.created_ns, changed=info.changed, processes=processes,
            last=info.last, last_name=last.name if last is not None else "", last_ns=last.created_ns if last is not None else 0,
            changed_ns=self.audit.changed.get(info.id, 0) if self.audit is not None else 0,
        )  # fmt: skip

    async def _branches(self) -> list[wire.Branch]:
        busy = Counter(binding.branch_id for binding in self.bindings.bindings())
        found = await drive(self.overlay.describing())
        return [self._wire_branch(info, busy[info.id]) for info in found]

    def _bindings(self) -> list[wire.Binding]:
        return [
            wire.Binding(
                pid=found.pid,
                branch=self._branch_name(found.branch_id),
                explicit=found.explicit,
                command=found.command,
                since_ns=found.since_ns,
            )
            for found in self.bindings.bindings()
        ]

    # -- top

    async def _top(self, request: wire.Top, context: RequestContext) -> wire.TopReply:
        if not _LEAST_S <= request.seconds <= _MOST_S or math.isnan(request.seconds):
            raise invalid(f"{request.seconds} s is no span to look at", f"give {_LEAST_S} to {_MOST_S:.0f} seconds")
        profile = self.traffic.profile(self.identify.of_thread, context.bound_to)
        began_ns = time.monotonic_ns()
        try:
            await trio.sleep(request.seconds)
        finally:
            profile.stop()
        rows = profile.rows()
        return wire.TopReply(
            span_ns=time.monotonic_ns() - began_ns,
            operations=[_wire_operation(*item) for item in sorted(profile.times.items(), key=lambda item: -item[1].count)],
            processes=[_wire_process(row, self.identify.branch_name(row.who.branch_id)) for row in rows],
            read_bytes=sum(row.read_bytes for row in rows), written_bytes=sum(row.written_bytes for row in rows),
            lag_ns=int(self.traffic.lags_s[-1] * 1e9),
        )  # fmt: skip

    # -- the audit trail

    async def _audit_list(self, request: wire.AuditList, context: RequestContext) -> wire.AuditReply:
        if not 1 <= request.limit <= _MOST_ENTRIES:
            raise invalid(f"{request.limit} is no number of entries", f"give 1 to {_MOST_ENTRIES}")
        if self.audit is None or not self.audit.is_on:
            return wire.AuditReply(enabled=False, entries=[])
        branch_id, name = self._asked_branch(request.branch, context)
        question = AuditQuery(branch_id, name, request.since_ns, request.until_ns, request.pid, request.kind, request.after)
        found = await self.audit.read(question, _path_filter(request.path), request.limit)
        return wire.AuditReply(enabled=True, entries=[_wire_entry(record) for record in found])

    def _asked_branch(self, ref: str | None, context: RequestContext) -> tuple[str, str]:
        """The id, or for a branch that is no more the name that it had."""
        if context.bound_to is not None:
            return context.bound_to, ""
        if ref is None:
            return "", ""
        try:
            return self.overlay.branch_row(ref).id, ""
        except Refusal:
            return "", ref

    def _note(self, note: audit_notes.AuditNote | None, context: RequestContext) -> None:
        if note is None or self.audit is None:
            return
        branch_id = context.bound_to or "" if note.branch is None else self.overlay.branch_row(note.branch).id
        self.audit.note(note.kind, context.caller, branch_id, note.name)

    # -- settings

    async def _policy_get(self, request: wire.PolicyGet, context: RequestContext) -> wire.PolicyReply:
        return wire.PolicyReply(policy=self.overlay.policy())

    async def _policy_set(self, request: wire.PolicySet, context: RequestContext) -> wire.PolicyReply:
        """One that begins the audit trail is its first entry, one that ends it the last."""
        self.overlay.set_policy(request.name, request.value)
        reply, is_on = wire.PolicyReply(policy=self.overlay.policy()), self.audit is not None and self.audit.is_on
        if not is_on:
            self.follow_policy()
        self._note(audit_notes.note_of(request, reply), context)
        if is_on:
            self.follow_policy()
        return reply

    # -- what each request takes

    @contextmanager
    def _counted(self, request: wire.AnyRequest, context: RequestContext) -> Iterator[None]:
        tag = str(type(request).__struct_config__.tag)
        tally, began_ns = self.traffic.tally("control", tag), time.monotonic_ns()
        try:
            yield
        except ClientGone:
            raise
        except Exception:
            tally.errors += 1
            raise
        finally:
            took_ns = 0 if isinstance(request, _UNMEASURED) else time.monotonic_ns() - began_ns
            tally.total_ns += took_ns
            tally.classes[took_ns.bit_length()] += 1
            if took_ns > self.traffic.slow.limit_ns:
                _, command = self.identify.of_process(context.caller.pid)
                branch = getattr(request, "branch", None) or context.branch
                self.traffic.slow.note(
                    SlowOperation(
                        time.time_ns(),
                        took_ns,
                        tag,
                        audit_notes.subject(request),
                        branch,
                        context.bound_to or "",
                        context.caller.pid,
                        command,
                    )
                )


def _wire_operation(name: str, times: OperationTimes) -> wire.OperationLoad:
    half, most = times.percentiles(0.5, 0.99)
    return wire.OperationLoad(name=name, count=times.count, p50_ns=half, p99_ns=most, longest_ns=times.longest_ns)


def _wire_process(row: ProcessActivity, branch: str) -> wire.ProcessLoad:
    return wire.ProcessLoad(
        pid=row.who.pid, command=row.who.command, branch=branch, requests=row.requests, read_bytes=row.read_bytes,
        written_bytes=row.written_bytes, busy_ns=row.busy_ns,
    )  # fmt: skip


def _wire_slow(slow: SlowOperation) -> wire.SlowRequest:
    return wire.SlowRequest(
        time_ns=slow.time_ns, took_ns=slow.took_ns, request=slow.op, where=slow.where, branch=slow.branch, pid=slow.pid,
        command=slow.command,
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
