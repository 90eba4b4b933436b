"""Describe branches and bindings for replies."""

from collections import Counter, defaultdict

from agentfs_client import wire
from agentfsd.control.change_counts import Budget, ChangeCount
from agentfsd.control.cooperative import drive
from agentfsd.control.handler_services import Services
from agentfsd.control.overlap_watch import PATIENCE_S
from agentfsd.control.reply_records import wire_repository
from agentfsd.control.request_context import RequestContext
from agentfsd.core.ids import made_ns
from agentfsd.core.merged_branches import MergedInto
from agentfsd.escape import quoted
from agentfsd.history.resolving import state_of_branch
from agentfsd.metadata.rows import SnapshotRow
from agentfsd.types import BranchInfo


def _wire(
    services: Services, info: BranchInfo, count: ChangeCount, processes: int, taken: SnapshotRow | None,
    notes: int, shared: tuple[int, int] = (0, 0), last_path: str = "", merged: MergedInto | None = None,
) -> wire.Branch:  # fmt: skip
    """Describe a branch.

    Args:
        services: Services of the daemon.
        info: The branch.
        count: The count of its changes.
        processes: The number of processes in it.
        taken: Its newest snapshot.
        notes: The number of its open notes.
        shared: Its overlaps, and how many of them conflict.
        merged: Where it was merged; None: nowhere.
        last_path: What was changed last in it, as _last_path() returns it.
    """
    merge = state_of_branch(services.overlay, info.id)
    return wire.Branch(
        name=info.name, id=info.id, base=info.base, created_ns=info.created_ns, processes=processes,
        changed=count.changed, counted=count.counted, repositories=[wire_repository(told) for told in count.repositories],
        last=info.last, last_name=taken.name if taken is not None else "", last_ns=taken.created_ns if taken is not None else 0,
        changed_ns=services.audit.changed.get(info.id, 0) if services.audit is not None else 0,
        committed_ns=services.overlay.branches.committed_ns(info.id), worktree=services.overlay.worktrees.directory(info.id),
        overlaps=shared[0], conflicts=shared[1], merging=merge.names, undecided=len(merge.undecided), notes=notes,
        frozen_ns=_frozen_ns(services, info.id), last_path=last_path,
        merged_into=services.branch_name(merged.into) if merged is not None else "",
        merged_since=merged.since if merged is not None else 0,
    )  # fmt: skip


def _frozen_ns(services: Services, branch_id: str) -> int:
    base = services.overlay.lowers.name(services.overlay.refs.branch(branch_id).head)
    return made_ns(base) if base else 0


async def wire_branch(services: Services, ref: str) -> wire.Branch:
    """Describe one branch. Other requests are answered while its changes are counted."""
    branch_id = services.overlay.refs.branch(ref).id
    count = await drive(services.counts.of(services.overlay, branch_id, Budget()))
    busy = sum(binding.branch_id == branch_id for binding in services.bindings.bindings())
    taken = services.overlay.snapshots.newest().get(branch_id)
    notes = services.overlay.notes.open_counts().get(branch_id, 0)
    merged = services.overlay.branches.merged().get(branch_id)
    return _wire(services, services.overlay.branches.info(branch_id), count, busy, taken, notes, merged=merged)


async def wire_branches(services: Services, context: RequestContext | None = None, *, count: bool = True) -> list[wire.Branch]:
    """Describe every branch, oldest first. Other requests are answered while their changes are counted.

    Args:
        services: Services of the daemon.
        context: The request, if its client may know of all branches: it is told what was changed last in each.
        count: Whether to count, and to wait for what others changed, too; both may take seconds after the daemon has started.
    """
    budget, counts, refs = Budget(), dict[str, ChangeCount](), services.overlay.refs
    for info in services.overlay.branches.all():
        counting = services.counts.of(services.overlay, info.id, budget)
        counts[info.id] = await drive(counting) if count else ChangeCount(0, False)
    services.counts.forget_gone(services.overlay)
    busy = Counter(binding.branch_id for binding in services.bindings.bindings())
    infos = [services.overlay.branches.info(branch_id) for branch_id in counts if refs.exists(branch_id)]
    shared = await _overlaps(services, patient=count)
    merged = services.overlay.branches.merged()
    taken, notes = services.overlay.snapshots.newest(), services.overlay.notes.open_counts()
    return [
        _wire(
            services, info, counts[info.id], busy[info.id], taken.get(info.id), notes.get(info.id, 0),
            shared.get(info.id, (0, 0)), _last_path(services, info.id, context), merged.get(info.id),
        )
        for info in infos
    ]  # fmt: skip


async def _overlaps(services: Services, *, patient: bool) -> dict[str, tuple[int, int]]:
    if services.overlaps is None:
        return {}
    await services.overlaps.catch_up(PATIENCE_S if patient and not services.overlaps.is_wanted else 0)
    return services.overlaps.overlaps.counts()


async def wire_activity(services: Services, context: RequestContext) -> list[wire.AgentActivity]:
    """Describe what happens in each branch that the caller may know of, the branch changed last first."""
    commands = defaultdict[str, list[str]](list)
    for binding in wire_bindings(services):
        if binding.command and binding.command not in commands[binding.branch]:
            commands[binding.branch].append(binding.command)
    if context.bound_to is None:
        shown = await wire_branches(services)
    else:
        shown = [await wire_branch(services, context.bound_to)] if services.overlay.refs.exists(context.bound_to) else []
    return [
        wire.AgentActivity(
            branch=branch.name, processes=branch.processes, commands=commands[branch.name], changed=branch.changed,
            counted=branch.counted, changed_ns=branch.changed_ns, last_path=_last_path(services, branch.id, context),
            overlaps=branch.overlaps, conflicts=branch.conflicts,
        )
        for branch in sorted(shown, key=lambda branch: -branch.changed_ns)
    ]  # fmt: skip


def _last_path(services: Services, branch_id: str, context: RequestContext | None) -> str:
    """Return what was changed last in a branch, escaped for people; "" if that is not known, or the client may not see it."""
    path = services.audit.last_path.get(branch_id, b"") if services.audit is not None else b""
    return "" if context is None or context.hides(path) else quoted(path)


def wire_bindings(services: Services) -> list[wire.Binding]:
    """Describe every binding of a process to a branch."""
    return [
        wire.Binding(
            pid=binding.pid,
            branch=services.branch_name(binding.branch_id),
            explicit=binding.explicit,
            command=binding.command,
            since_ns=binding.since_ns,
        )
        for binding in services.bindings.bindings()
    ]
