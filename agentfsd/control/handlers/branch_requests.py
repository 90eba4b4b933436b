"""Requests that create, list, rename, delete and discard branches."""

import errno
from contextlib import nullcontext

from agentfs_client import wire
from agentfsd.control.audit_notes import (
    changes_nothing,
    noted_worktree,
    told_as_event,
)
from agentfsd.control.authorization import (
    own_branch,
    unbound_only,
)
from agentfsd.control.branch_listing import wire_branch, wire_branches
from agentfsd.control.cooperative import drive
from agentfsd.control.executed_conflicts import objects_to_executed
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.reply_records import author_of, merge_reply
from agentfsd.control.request_context import RequestContext
from agentfsd.control.snapshot_tags import SnapshotRefs
from agentfsd.control.status_text import plural
from agentfsd.core.linked_worktrees import GIT_FILE
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.history import rebasing
from agentfsd.metadata.rows import BranchRow


@control_operation(
    wire.BranchCreate, permission=unbound_only, note=told_as_event, cancellable=True, refs=SnapshotRefs(("source",))
)
async def create_branch(services: Services, request: wire.BranchCreate, context: RequestContext) -> wire.BranchReply:
    """Create a branch."""
    source = services.pin(request.source)
    overlay = services.overlay
    overlay.branches.check_new(request.name)  # before the real directory is frozen, which may take long
    origin = overlay.refs.find(source or overlay.default_id)
    is_frozen = bool(overlay.lowers.name(origin.head if isinstance(origin, BranchRow) else origin.layer))
    async with services.frozen_base(context) if request.frozen and not is_frozen else nullcontext("") as base:
        await services.flush()
        shows_lower = request.source is None and await drive(services.counts.shows_lower(overlay, overlay.default_id))
        branch = overlay.branches.create(
            request.name, source, temporary=request.temporary, shows_lower=shows_lower, base=base
        )  # fmt: skip
    context.peer.temporary |= {branch.id} if request.temporary else set()
    services.tell("branch-created", branch.id, context.caller.pid, name=branch.base)
    return wire.BranchReply(branch=await wire_branch(services, branch.id))


@control_operation(wire.Rebase, permission=unbound_only, note=told_as_event, cancellable=True)
async def rebase_branch(services: Services, request: wire.Rebase, context: RequestContext) -> wire.MergeReply:
    """Put the real directory's present state beneath a branch with a frozen base."""
    overlay, branch = services.overlay, services.overlay.refs.branch(request.branch or context.branch)
    rebasing.check(overlay, branch.id)
    async with services.frozen_base(context) as base:
        await services.flush(branch.id)
        steps = rebasing.rebase(
            overlay, branch.id, base, request.favor, author_of(context), objects_to_executed(services, allowed=request.hooks),
            markers=request.markers, dry_run=request.dry_run,
        )  # fmt: skip
        merged = await drive(steps, context)
    if merged.how != "nothing" and not merged.conflicts and not request.dry_run:
        services.tell("merge", branch.id, context.caller.pid, name=rebasing.BASE)
    await services.settle()
    return merge_reply(merged, branch.name, internal=request.internal)


@control_operation(wire.BranchList, permission=unbound_only, note=changes_nothing)
async def list_branches(services: Services, request: wire.BranchList, context: RequestContext) -> wire.BranchesReply:
    """List all branches."""
    return wire.BranchesReply(branches=await wire_branches(services, context, count=request.count))


@control_operation(wire.BranchShow, permission=own_branch("ref"), note=changes_nothing)
async def show_branch(services: Services, request: wire.BranchShow, context: RequestContext) -> wire.BranchReply:
    """Return one branch."""
    return wire.BranchReply(branch=await wire_branch(services, request.ref or context.branch))


@control_operation(wire.BranchRename, permission=unbound_only, note=told_as_event)
async def rename_branch(services: Services, request: wire.BranchRename, context: RequestContext) -> wire.BranchReply:
    """Rename a branch."""
    old = services.overlay.refs.branch(request.ref).name
    renamed = services.overlay.branches.rename(request.ref, request.new_name)
    services.tell("branch-renamed", renamed.id, context.caller.pid, name=old)
    return wire.BranchReply(branch=await wire_branch(services, renamed.id))


@control_operation(wire.BranchWorktree, permission=unbound_only, note=noted_worktree)
async def set_worktree(services: Services, request: wire.BranchWorktree, context: RequestContext) -> wire.BranchReply:
    """Say which linked worktree of a git repository a branch is."""
    overlay, row = services.overlay, services.overlay.refs.branch(request.ref)
    if row.id == overlay.default_id:
        raise invalid(f"{row.name} is no worktree", "it is what the mount shows; name another branch")
    overlay.worktrees.set(row.id, request.directory)
    overlay.events.names_changed(overlay.trees.by_id(row.id).root, GIT_FILE)
    await services.settle()
    return wire.BranchReply(branch=await wire_branch(services, row.id))


@control_operation(wire.BranchDelete, permission=unbound_only, note=told_as_event)
async def delete_branch(services: Services, request: wire.BranchDelete, context: RequestContext) -> wire.Done:
    """Delete a branch that holds no changes."""
    row = _unused(services, request.ref)
    services.overlay.branches.delete(row.id)
    services.overlay.notes.forget_gone(services.overlay.branches.ids_in_use())
    services.tell("branch-deleted", row.id, context.caller.pid, branch=row.name)
    await services.settle()
    return wire.Done(message=f"deleted branch {request.ref}")


@control_operation(wire.Discard, permission=unbound_only, note=told_as_event)
async def discard_branch(services: Services, request: wire.Discard, context: RequestContext) -> wire.Done:
    """Delete a branch with its changes; reset the default branch to the lower."""
    row = _unused(services, request.ref)
    has_more = services.homes is not None and services.homes.has_changes(row.id)
    kept = services.overlay.branches.discard(row.id, keep=request.keep, even_bare=has_more)
    services.overlay.notes.forget_gone(services.overlay.branches.ids_in_use())
    services.tell("discard", row.id, context.caller.pid, branch=row.name)
    if not services.overlay.refs.exists(row.id):
        services.tell("branch-deleted", row.id, context.caller.pid, branch=row.name)
    elif services.homes is not None:
        services.homes.discard(row.id, kept)
    await services.settle()
    return wire.Done(message=f"discarded {request.ref}")


def _unused(services: Services, ref: str) -> BranchRow:
    """Find a branch by its ref. Refuse with ``branch-in-use`` if processes are in it."""
    row = services.overlay.refs.branch(ref)
    pids = [binding.pid for binding in services.bindings.bindings() if binding.branch_id == row.id]
    if pids:
        shown = ", ".join(map(str, pids[:5])) + (" and others" if len(pids) > 5 else "")
        users = plural(len(pids), "process", "processes")
        raise Refusal(
            errno.EBUSY, "branch-in-use", f"branch {row.name!r} is in use by {users} ({shown})",
            "end them, or unbind them with `agentfsd unbind PID`",
        )  # fmt: skip
    return row
