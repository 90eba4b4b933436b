"""The status of a daemon: what is mounted where and how, the resources it uses, and unfinished work."""

import trio
from msgspec import structs

from agentfs_client import wire
from agentfsd.backstore.free_space import is_full
from agentfsd.control.branch_listing import wire_bindings, wire_branches
from agentfsd.control.handler_services import Services
from agentfsd.domain_errors import Refusal
from agentfsd.lower import commit_writer
from agentfsd.telemetry.slow_requests import SlowOperation


async def status(services: Services, bound_to: str | None) -> wire.StatusReply:
    """Collect the status of the daemon and its branches.

    It can take long if there are many files and branches; other requests are answered meanwhile.

    Args:
        services: The parts of the daemon.
        bound_to: The id of the branch that the caller is bound to; the status then shows no other branch. None: it shows all.
    """
    info, usage = services.info, await trio.to_thread.run_sync(services.overlay.backstore.usage)
    branches = await wire_branches(services)
    damage = [] if bound_to else await trio.to_thread.run_sync(services.overlay.damage_notes)
    return wire.StatusReply(
        daemon=info.version, pid=info.pid, lower=info.lower, mountpoint=info.mountpoint, state=info.state,
        session=info.session, backstore=info.backstore, started_ns=info.started_ns,
        branch=services.branch_name(bound_to), bound=bound_to is not None,
        branches=[_for(branch, bound_to) for branch in branches if bound_to in (None, branch.id)],
        bindings=[] if bound_to else wire_bindings(services),
        usage=services.overlay.usage(usage), resources=_resources(services), session_why=info.capabilities.get("session.why", ""),
        fd_forwarding=forwarding_kind(services),
        cap_backstore=info.capabilities.get("cap.backstore", info.backstore),
        backstore_why=info.capabilities.get("backstore.why", ""),
        connections=_connections(services, bound_to), pending_commit=None if bound_to else _pending(services),
        slow=[_wire_slow(slow) for slow in services.traffic.slow.recent if bound_to in (None, slow.branch_id)],
        restarts=info.restarts, succeeds=info.succeeds,
        audit=services.audit is not None and services.audit.is_on, metrics=info.metrics, damage=damage,
    )  # fmt: skip


def _for(branch: wire.Branch, bound_to: str | None) -> wire.Branch:
    """Return what the caller may know of a branch: a bound process is not told what others change."""
    return branch if bound_to is None else structs.replace(branch, overlaps=0, conflicts=0, merged_into="", merged_since=0)


def _resources(services: Services) -> dict[str, int]:
    room = services.overlay.backstore.statvfs()
    return {
        **services.measure(), "disk_free_bytes": room.f_bavail * room.f_frsize,
        "disk_total_bytes": room.f_blocks * room.f_frsize,
        "disk_full": int(services.overlay.backstore.persistent and is_full(room)),
        "garbage_objects": len(services.overlay.layers.garbage()),
        "slow_requests": services.traffic.slow.count, "requests": sum(tally.count for tally in services.traffic.tallies.values()),
        "lag_us": int(max(services.traffic.lags_s) * 1e6),
    }  # fmt: skip


def _connections(services: Services, bound_to: str | None) -> list[wire.KernelConnection]:
    return [
        wire.KernelConnection(branch=services.branch_name(branch_id) if branch_id else "", session=session, io=io)
        for branch_id, session, io in services.connections()
        if bound_to is None or branch_id in ("", bound_to)
    ]


def _pending(services: Services) -> wire.PendingCommit | None:
    try:
        commit = commit_writer.pending(services.info.state)
    except Refusal:
        return wire.PendingCommit(branch="", phase="unreadable", paths=0, running=services.commit_turn.is_taken)
    if commit is None:
        return None
    branch = services.identify.branch_name(commit.note.get("branch", ""))
    return wire.PendingCommit(branch=branch, phase=commit.phase, paths=commit.paths, running=services.commit_turn.is_taken)


def forwarding_kind(services: Services) -> str:
    """Return the capability cap.fd_forwarding: "off", or how real descriptors are given out."""
    return services.forwarding.kind if services.forwarding is not None else "off"


def _wire_slow(slow: SlowOperation) -> wire.SlowRequest:
    return wire.SlowRequest(
        time_ns=slow.time_ns, took_ns=slow.took_ns, request=slow.op, where=slow.where, branch=slow.branch, pid=slow.pid,
        command=slow.command,
    )  # fmt: skip
