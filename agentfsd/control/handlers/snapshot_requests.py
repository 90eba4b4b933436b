"""Requests that take, list, delete and prune snapshots, and that show the history they form."""

from agentfs_client import wire
from agentfsd.control.audit_notes import (
    changes_nothing,
    noted_prune,
    told_as_event,
)
from agentfsd.control.authorization import (
    own_branch,
    own_made_snapshot,
    own_snapshot,
    unbound_only,
)
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.reply_records import author_of, wire_snapshot
from agentfsd.control.request_context import RequestContext
from agentfsd.control.snapshot_tags import SnapshotRefs
from agentfsd.core.declared_settings import parse_age
from agentfsd.core.overlay_snapshots import KEPT, RUN
from agentfsd.core.retention import Retention


@control_operation(wire.SnapshotCreate, permission=own_branch("branch"), note=told_as_event)
async def create_snapshot(services: Services, request: wire.SnapshotCreate, context: RequestContext) -> wire.SnapshotReply:
    """Take a snapshot of a branch."""
    branch = services.overlay.refs.branch(request.branch or context.branch).id
    await services.flush(branch)
    author, kind = author_of(context), KEPT if request.keep else RUN if request.around_run else ""
    async with services.standing_still(branch, context):
        snapshot = services.overlay.snapshots.create(
            branch, request.name, request.tag, author.pid, author.command, kind, temporary=request.temporary
        )
    context.peer.temporary |= {snapshot.id} if request.temporary else set()
    services.overlay.retention.apply(branch)
    services.tell("snapshot", branch, author.pid, name=snapshot.name)
    context.peer.made.add(snapshot.id)
    return wire.SnapshotReply(snapshot=wire_snapshot(snapshot))


@control_operation(wire.SnapshotList, permission=own_branch("branch"), note=changes_nothing)
async def list_snapshots(services: Services, request: wire.SnapshotList, context: RequestContext) -> wire.SnapshotsReply:
    """List the snapshots of one branch or of all, oldest first."""
    branch = request.branch if context.bound_to is None else context.branch
    snapshots = services.overlay.snapshots.all(branch)
    return wire.SnapshotsReply(snapshots=[wire_snapshot(services.overlay.snapshots.count(info.id)) for info in snapshots])


@control_operation(
    wire.SnapshotShow, permission=own_snapshot, note=changes_nothing, refs=SnapshotRefs(("ref",), snapshots_only=True)
)
async def show_snapshot(services: Services, request: wire.SnapshotShow, context: RequestContext) -> wire.SnapshotReply:
    """Return one snapshot."""
    return wire.SnapshotReply(snapshot=wire_snapshot(services.overlay.snapshots.count(request.ref)))


@control_operation(
    wire.SnapshotDelete, permission=own_made_snapshot, note=told_as_event, refs=SnapshotRefs(("ref",), snapshots_only=True)
)
async def delete_snapshot(services: Services, request: wire.SnapshotDelete, context: RequestContext) -> wire.Done:
    """Delete a snapshot."""
    row = services.overlay.refs.snapshot(request.ref)
    services.overlay.snapshots.delete(row.id)
    branch = "" if services.overlay.refs.exists(row.branch_id) else row.branch
    services.tell("snapshot-deleted", row.branch_id, context.caller.pid, branch=branch, name=row.name)
    await services.settle()
    return wire.Done(message=f"deleted snapshot {row.name}")


@control_operation(wire.TemporaryKeep, permission=unbound_only, note=changes_nothing)
async def keep_temporary(services: Services, request: wire.TemporaryKeep, context: RequestContext) -> wire.Done:
    """Make the temporary branches and snapshots of this conversation permanent."""
    services.overlay.temporary.keep(context.peer.temporary)
    context.peer.temporary.clear()
    return wire.Done()


@control_operation(wire.Log, permission=own_branch("ref"), note=changes_nothing, refs=SnapshotRefs(("ref",)))
async def log(services: Services, request: wire.Log, context: RequestContext) -> wire.SnapshotsReply:
    """Return the snapshots in the history of a branch or snapshot, newest first."""
    return wire.SnapshotsReply(
        snapshots=[wire_snapshot(info) for info in services.overlay.snapshots.log(request.ref or context.branch)]
    )


@control_operation(wire.Prune, permission=unbound_only, note=noted_prune)
async def prune(services: Services, request: wire.Prune, context: RequestContext) -> wire.SnapshotsReply:
    """Delete the snapshots beyond the limits, or only list them."""
    settings = services.overlay.settings.retention
    retention = Retention(
        settings.max_count if request.max_count is None else request.max_count,
        settings.max_age_s if request.max_age is None else parse_age(request.max_age),
        settings.keep_tagged if request.keep_tagged is None else request.keep_tagged,
        settings.keep_named if request.keep_named is None else request.keep_named,
    )
    pruned = services.overlay.retention.prune(retention, request.branch, dry_run=request.dry_run)
    await services.settle()
    return wire.SnapshotsReply(snapshots=[wire_snapshot(info) for info in pruned])
