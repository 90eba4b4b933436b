"""Requests that merge branches, restore snapshots and undo operations."""

import errno
from contextlib import nullcontext

from agentfs_client import wire
from agentfsd.control.audit_notes import (
    changes_nothing,
    told_as_event,
)
from agentfsd.control.authorization import (
    all_of,
    own_branch,
    own_history,
    unbound_only,
)
from agentfsd.control.client_paths import requested_paths, requested_picks
from agentfsd.control.cooperative import drive
from agentfsd.control.executed_conflicts import objects_to_executed
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.reply_records import author_of, merge_reply
from agentfsd.control.request_context import RequestContext
from agentfsd.control.snapshot_tags import SnapshotRefs
from agentfsd.control.status_text import plural
from agentfsd.core.rule_set import ALLOW, RuleSet
from agentfsd.core.undo_log import UndoStep
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.history import merging, paths, restoring
from agentfsd.history.merge_records import Rules
from agentfsd.history.picked import Picks


@control_operation(
    wire.Merge, permission=unbound_only, note=told_as_event, cancellable=True, refs=SnapshotRefs(("sources",), ("target",))
)
async def merge(services: Services, request: wire.Merge, context: RequestContext) -> wire.MergeReply:
    """Merge branches or snapshots into a branch."""
    target = services.overlay.refs.branch(request.target or context.branch)
    sources = [services.overlay.refs.find(source).id for source in request.sources]
    rules = Rules(request.favor, request.whole_files, request.markers, request.conflicts, request.histories)
    if request.conflicts and request.favor:
        raise invalid("conflicts are decided for a side, or are left in the branch", "leave out one of the two")
    wanted = paths.parse(requested_paths(request))
    picks = requested_picks(request, wanted)
    if wanted and request.histories == "beside":
        raise invalid("git branches have no paths", "leave out the paths, or --as-branches")
    await services.flush()
    steps = merging.merge_branches(
        services.overlay, sources, target.id, rules, author_of(context), dry_run=request.dry_run, wanted=wanted, picks=picks,
        objects=objects_to_executed(services, allowed=request.hooks),
        leave_conflicting=request.leave_conflicting,
    )  # fmt: skip
    merged = await drive(steps, context)
    if merged.merged and not request.dry_run:
        services.tell("merge", target.id, context.caller.pid, name=" ".join(merged.merged))
    await services.settle()
    return merge_reply(merged, target.name, internal=request.internal)


@control_operation(
    wire.Restore,
    permission=all_of(own_branch("branch"), own_history("ref")),
    note=told_as_event,
    cancellable=True,
    refs=SnapshotRefs(("ref",), ("branch",)),
)
async def restore(services: Services, request: wire.Restore, context: RequestContext) -> wire.Done:
    """Restore a branch, or some of its paths, from a snapshot."""
    branch = services.overlay.refs.branch(request.branch or context.branch)
    source = services.overlay.refs.find(request.ref) if request.ref is not None else None
    author, wanted = author_of(context), paths.parse(requested_paths(request))
    picks = requested_picks(request, wanted)
    await services.flush()
    if context.ruled is not None:
        _check_picked(picks, context.ruled.rules)
        await _check_restored(services, source.id if source else None, branch.id, wanted, context, context.ruled.rules)
    async with services.standing_still(branch.id, context, changes=True):
        if wanted:
            steps = restoring.restore_paths(services.overlay, branch.id, source.id if source else None, wanted, author, picks)
            listed = await drive(steps, context)
            if listed is not None:
                services.tell("restore", branch.id, author.pid, name=source.name if source is not None else "")
            count = plural(len(listed.changes) if listed is not None else 0, "change")
            taken_back = f"taken back in {branch.name}: {count}"
            message = f"as in {source.name} again: {count} in {branch.name}" if source is not None else taken_back
        elif source is None:
            raise invalid("no snapshot was named", "name a snapshot, or the paths to restore")
        else:
            services.overlay.branches.restore(branch.id, source.id, author.pid, author.command)
            services.tell("restore", branch.id, author.pid, name=source.name)
            message = f"{branch.name} is at {source.name} again"
        await services.push()
    await services.settle()
    return wire.Done(message=message)


def _check_picked(picks: Picks, rules: RuleSet) -> None:
    """Refuse lines of files that a rule keeps from the caller: whether they fit would tell what is in the files."""
    for path in (path for file in picks for path in (file.path, file.old_path)):
        if rules.verdict_of_path(path) != ALLOW:
            raise Refusal(errno.EACCES, "ruled", "a rule keeps you from a path of which lines were picked", "name other paths")


async def _check_restored(
    services: Services, ref: str | None, branch_id: str, wanted: tuple[bytes, ...], context: RequestContext, rules: RuleSet
) -> None:
    """Refuse to bring back what a rule keeps the caller from changing."""
    trees = services.overlay.trees
    with trees.made_from(branch_id) if ref is None else nullcontext(trees.side(ref)) as before:
        ours = trees.side(branch_id)
        changes = await drive(services.overlay.comparison.diff_in_steps(ours, before), context)
        found = [path for change in paths.among(changes, wanted) for path in (change.path, change.old_path)]
        if ours.lower is not before.lower:
            found += await drive(restoring.differing_paths(services.overlay, ours, before, wanted or (b"",)), context)
    for path in filter(None, found):
        if rules.verdict_of_path(path) != ALLOW:
            shown = "a hidden path" if context.hides(path) else repr(path.decode("utf-8", "backslashreplace"))
            raise Refusal(
                errno.EACCES, "ruled", f"a rule keeps you from changing {shown}, which is not as in that state",
                "name the paths to restore; `agentfsd rules` lists the rules",
            )  # fmt: skip


@control_operation(wire.Undo, permission=unbound_only, note=told_as_event)
async def undo(services: Services, request: wire.Undo, context: RequestContext) -> wire.UndoLogReply:
    """Undo the last operation that can be undone."""
    author = author_of(context)
    await services.flush()
    if services.homes is not None:
        for step in services.overlay.undo_log.entries()[:1]:  # first, since a layer without an entry of the log is removed
            services.homes.bring_back(step.branch_id, step.snapshot)
    undone = services.overlay.undo_log.undo(author.pid, author.command)
    services.tell("undo", undone.branch_id, author.pid, name=undone.snapshot)
    await services.settle()
    return wire.UndoLogReply(entries=[_undo_entry(undone)])


@control_operation(wire.UndoList, permission=unbound_only, note=changes_nothing)
async def list_undoable(services: Services, request: wire.UndoList, context: RequestContext) -> wire.UndoLogReply:
    """List the operations that can be undone, the newest first."""
    return wire.UndoLogReply(entries=[_undo_entry(step) for step in services.overlay.undo_log.entries()])


def _undo_entry(step: UndoStep) -> wire.UndoEntry:
    return wire.UndoEntry(kind=step.kind, branch=step.branch, snapshot=step.snapshot, committed=step.committed)
