"""Requests to commit a branch into its parent or into the real directory, and to end a commit that was interrupted."""

import logging
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager

import trio

from agentfs_client import wire
from agentfsd.control.audit_notes import (
    noted_abort,
    told_as_event,
)
from agentfsd.control.authorization import (
    unbound_only,
)
from agentfsd.control.client_paths import requested_paths, requested_picks
from agentfsd.control.cooperative import cancelled, drive
from agentfsd.control.executed_conflicts import objects_to_executed
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.reply_records import author_of, merge_reply
from agentfsd.control.request_context import RequestContext
from agentfsd.core.tree import Tree
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.history import commit, kept_bases, merging, other_lower, partial_commit, paths, picked, settling
from agentfsd.history.kept_files import keep_for_others
from agentfsd.history.lower_commits import Progress, WriteOutcome
from agentfsd.history.merge_records import IGNORED, MergeDecision, PathConflict, Rules
from agentfsd.history.merging import Merged
from agentfsd.history.picked import Picks
from agentfsd.metadata.rows import BranchRow

log = logging.getLogger(__name__)

_TRIES = 2  # a commit is planned again if somebody changed the real directory while it was prepared


@control_operation(wire.Commit, permission=unbound_only, note=told_as_event, cancellable=True)
async def commit_branch(services: Services, request: wire.Commit, context: RequestContext) -> wire.MergeReply:
    """Commit a branch into its parent, or into the real directory if it has no parent."""
    branch = services.overlay.refs.branch(request.branch or context.branch)
    parent = services.overlay.branches.parent(branch.id)
    wanted = paths.parse(requested_paths(request))
    if wanted and request.as_branches:
        raise invalid("git branches have no paths", "leave out the paths, or --as-branches")
    picks = requested_picks(request, wanted)
    services.overlay.unfinished.refuse(branch, "committed")
    await services.flush(branch.id)
    if parent is None:
        await services.commit_turn.thawed()
        with services.commit_turn.take():
            return await _commit_to_lower(services, branch, wanted, picks, request, context)
    rules = Rules("theirs", True) if request.force else Rules() if request.merge else Rules("", True)
    if request.as_branches:
        rules = Rules(way="beside")
    steps = merging.merge_branches(
        services.overlay, [branch.id], parent.id, rules, author_of(context), dry_run=request.dry_run, wanted=wanted,
        picks=picks, objects=objects_to_executed(services, allowed=request.hooks),
    )  # fmt: skip
    merged = await drive(steps, context)
    if merged.how != "nothing" and not merged.conflicts and not request.dry_run:
        services.tell("commit", parent.id, context.caller.pid, name=branch.name)
    await services.settle()
    return merge_reply(merged, parent.name, internal=request.internal)


async def _commit_to_lower(
    services: Services, branch: BranchRow, wanted: tuple[bytes, ...], picks: Picks, request: wire.Commit, context: RequestContext
) -> wire.MergeReply:  # fmt: skip
    rule: commit.Rule = "force" if request.force else "merge" if request.merge else "refuse"
    into, commits = services.info.lower, services.lower_commits()
    commits.check()
    live = services.overlay.lowers.live
    await drive(other_lower.prepare(services.overlay, [branch.id], live), context)
    with services.overlay.trees.frozen(branch.id, over=live) as tree, _picked(services, branch.id, tree, picks) as (shown, made):
        for _ in range(_TRIES):
            plan = await drive(
                commit.plan(services.overlay, shown, wanted, rule, name=branch.name, as_branches=request.as_branches), context
            )
            plan.same = settling.without_attributes(plan.same, made)
            if picks:
                plan.conflicts += partial_commit.dragged_along(plan.listed.changes, wanted)
            objects = objects_to_executed(services, allowed=request.hooks)
            plan.conflicts[:0] = objects(services.overlay.trees.side(None), tree, plan.changed)
            if plan.conflicts or request.dry_run or not plan.steps:
                how = "lower" if plan.steps else "nothing"
                planned = _as_merged(plan, how, plan.conflicts, branch.name, into)
                return merge_reply(planned, into, internal=request.internal)
            await drive(keep_for_others(services.overlay, branch.id, tree, plan), context)
            partial = bool(wanted or request.as_branches or plan.ignored)
            conflicts = await _write(services, plan, branch, tree, partial, context)
            if not conflicts:
                break
    await services.settle()
    return merge_reply(_as_merged(plan, "lower", conflicts, branch.name, into), into, internal=request.internal)


@contextmanager
def _picked(services: Services, branch_id: str, tree: Tree, picks: Picks) -> Iterator[tuple[Tree, Container[bytes]]]:
    """Open the branch's tree as it is to be committed, with only the lines that were picked of some files: these are returned."""
    trees = services.overlay.trees
    with kept_bases.made_from(trees, branch_id, over=tree.lower) as old:
        made = picked.contents(old, tree, picks)
    with picked.applied(trees, tree, made) as shown:
        yield shown, made


def _as_merged(plan: commit.Plan, how: str, conflicts: list[PathConflict], source: str, into: str) -> Merged:
    decided = [(source, MergeDecision(path, IGNORED, into)) for path in plan.ignored]
    return Merged(how, plan.listed, conflicts, plan.said, decided=decided)


async def _write(
    services: Services, plan: commit.Plan, branch: BranchRow, tree: Tree, partial: bool, context: RequestContext
) -> list[PathConflict]:
    """Write the plan. Once the first name has changed, it runs to the end, even if the client closes its end."""
    commits = services.lower_commits()
    note = commits.note(plan, branch.id, tree, partial=partial)
    outcome = await trio.to_thread.run_sync(
        lambda: commits.write(
            plan, note, cancelled=cancelled, staging=_telling(context, "writing"), applying=_telling(context, "replacing")
        )
    )
    if not outcome.done:
        commits.know_again(outcome.originals)
        return outcome.conflicts
    whole = not partial and not _in_use(services, branch.id)
    await _keep_up(services, note, plan.same, whole, outcome, context)
    services.tell("commit", branch.id, context.caller.pid, name=branch.name)
    return []


async def _keep_up(
    services: Services, note: Mapping[str, str], same: list[settling.Same], whole: bool, outcome: WriteOutcome,
    context: RequestContext,
) -> None:  # fmt: skip
    """Take the committed paths out of the branch, then delete the journal, even if the client closes its end."""
    branch_id, seen, once = note["branch"], int(note["layer"]), note.get("id", "")
    with trio.CancelScope(shield=True):
        await drive(settling.settle(services.overlay, branch_id, seen, same, whole=whole, once=once), context)
        if services.overlay.refs.exists(branch_id):
            services.overlay.undo_log.note_commit(services.overlay.refs.branch(branch_id).name)
            if note.get("whole"):
                services.overlay.branches.note_commit(branch_id)
        try:
            if outcome.clean is not None:
                await trio.to_thread.run_sync(outcome.clean)
        except Refusal as exc:  # the commit itself is done
            log.warning("%s: %s", exc.message, exc.hint)
        settling.settle_root(services.overlay, branch_id)


@control_operation(wire.CommitEnd, permission=unbound_only, note=noted_abort, cancellable=True)
async def end_commit(services: Services, request: wire.CommitEnd, context: RequestContext) -> wire.MergeReply:
    """Finish or undo an interrupted commit into the real directory."""
    await services.commit_turn.thawed()
    with services.commit_turn.take():
        return await _end(services, request, context)


async def _end(services: Services, request: wire.CommitEnd, context: RequestContext) -> wire.MergeReply:
    commits = services.lower_commits()
    pending = commits.interrupted()
    outcome = await trio.to_thread.run_sync(
        lambda: commits.end(pending, abort=request.abort, progress=_telling(context, "replacing"))
    )
    if outcome.conflicts:
        return merge_reply(Merged("nothing", conflicts=outcome.conflicts), services.info.lower)
    if outcome.done:
        branch_id = pending.note["branch"]
        whole = bool(pending.note["whole"]) and not _in_use(services, branch_id)
        await _keep_up(services, pending.note, pending.same, whole, outcome, context)
        if services.overlay.refs.exists(branch_id):
            services.tell("commit", branch_id, context.caller.pid, name=services.overlay.refs.branch(branch_id).name)
    else:
        commits.know_again(outcome.originals)
    await services.settle()
    return merge_reply(Merged("lower" if outcome.done != request.abort else "nothing", pending.listed), services.info.lower)


def _telling(context: RequestContext, phase: str) -> Progress:
    return lambda done, total, size: context.progress(done, total, phase)


def _in_use(services: Services, branch_id: str) -> bool:
    return any(binding.branch_id == branch_id for binding in services.bindings.bindings())
