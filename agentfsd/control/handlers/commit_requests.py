"""Requests to commit a branch into its parent or into the real directory, and to end a commit that was interrupted."""

import errno
import json
import logging
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping

import msgspec
import trio

from agentfs_client import wire
from agentfs_host.mount_table import mount_table
from agentfsd.control.audit_notes import (
    noted_abort,
    told_as_event,
)
from agentfsd.control.authorization import (
    unbound_only,
)
from agentfsd.control.client_paths import requested_paths
from agentfsd.control.cooperative import cancelled, drive
from agentfsd.control.executed_conflicts import objects_to_executed
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.reply_records import author_of, merge_reply
from agentfsd.control.request_context import RequestContext
from agentfsd.core.inode import LowerIdentity
from agentfsd.core.tree import Tree
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.history import commit, merging, paths, settling
from agentfsd.history.merge import PathConflict, Rules
from agentfsd.history.merging import Merged
from agentfsd.lower import commit_writer
from agentfsd.lower.commit_plan import Drifted, Identity
from agentfsd.lower.host_lower import HostLower
from agentfsd.metadata.rows import BranchRow

log = logging.getLogger(__name__)


@control_operation(wire.Commit, permission=unbound_only, note=told_as_event, cancellable=True)
async def commit_branch(services: Services, request: wire.Commit, context: RequestContext) -> wire.MergeReply:
    branch = services.overlay.refs.branch(request.branch or context.branch)
    parent = services.overlay.branches.parent(branch.id)
    wanted = paths.parse(requested_paths(request))
    if wanted and request.as_branches:
        raise invalid("git branches have no paths", "leave out the paths, or --as-branches")
    await services.flush(branch.id)
    if parent is None:
        with services.commit_turn.take():
            return await _commit_to_lower(services, branch, wanted, request, context)
    rules = Rules("theirs", True) if request.force else Rules() if request.merge else Rules("", True)
    if request.as_branches:
        rules = Rules(way="beside")
    steps = merging.merge_branches(
        services.overlay, [branch.id], parent.id, rules, author_of(context), dry_run=request.dry_run, wanted=wanted,
        objects=objects_to_executed(services.overlay, allowed=request.hooks),
    )  # fmt: skip
    merged = await drive(steps, context)
    if merged.how != "nothing" and not merged.conflicts and not request.dry_run:
        services.tell("commit", parent.id, context.caller.pid, name=branch.name)
    await services.settle()
    return merge_reply(merged, parent.name)


async def _commit_to_lower(
    services: Services, branch: BranchRow, wanted: tuple[bytes, ...], request: wire.Commit, context: RequestContext
) -> wire.MergeReply:  # fmt: skip
    rule: commit.Rule = "force" if request.force else "merge" if request.merge else "refuse"
    into = services.info.lower
    if commit_writer.pending(services.info.state) is not None:
        hint = "finish it with `agentfsd commit --resume`, or take it back with --abort"
        raise Refusal(errno.EBUSY, "commit-pending", "an earlier commit was interrupted", hint)
    _check_place(services, into)
    with services.overlay.trees.frozen(branch.id) as tree:
        plan = await drive(
            commit.plan(services.overlay, tree, wanted, rule, name=branch.name, as_branches=request.as_branches), context
        )
        objects = objects_to_executed(services.overlay, allowed=request.hooks)
        plan.conflicts[:0] = objects(services.overlay.trees.side(None), tree, plan.changed)
        if plan.conflicts or request.dry_run or not plan.steps:
            how = "lower" if plan.steps else "nothing"
            return merge_reply(Merged(how, plan.changed, plan.conflicts, plan.said), into)
        conflicts = await _write(services, plan, branch, tree, bool(wanted) or request.as_branches, context)
    await services.settle()
    return merge_reply(Merged("lower", plan.changed, conflicts, plan.said), into)


def _check_place(services: Services, into: str) -> None:
    """Refuse if the lower that the daemon holds open is not the directory at its path: the commit would write elsewhere.

    Raises:
        Refusal: The directory was moved or removed, or something is mounted over it.
    """
    lower = _lower(services)
    place = lower.place()
    if place == f"{into} (deleted)":
        hint = "`agentfsd export` saves a branch elsewhere; unmount and mount again for a new directory there"
        raise Refusal(errno.ESTALE, "lower-gone", f"the real directory {into} was removed", hint)
    if place.startswith("/") and place != into:
        hint = "move it back; or unmount, and mount it where it is, with the same --state"
        raise Refusal(errno.ESTALE, "lower-gone", f"the real directory is not {into} any more: it is {place} now", hint)
    covers = [found for found in mount_table() if found.mountpoint == into and found.fstype != "fuse.agentfsd"]
    if covers and covers[-1].device != lower.device():
        message = f"the real directory is hidden: {covers[-1].fstype} is mounted over it on {into}"
        raise Refusal(errno.ESTALE, "lower-gone", message, "unmount that first")


async def _write(
    services: Services, plan: commit.Plan, branch: BranchRow, tree: Tree, partial: bool, context: RequestContext
) -> list[PathConflict]:
    """Execute the plan. Return the conflicts if files in the lower changed at this moment; nothing is committed then.

    Once the first name has changed, the commit runs to the end, even if the client closes its connection.
    """
    changed = json.dumps([b64encode(path).decode() for path in plan.changed])
    note = {
        "branch": branch.id, "layer": str(tree.head), "whole": "" if partial else "yes", "paths": changed,
        "same": msgspec.json.encode(plan.same).decode(), "id": str(time.time_ns()),
    }  # fmt: skip

    originals: list[tuple[bytes, Identity]] = []

    def write() -> commit_writer.LowerCommit:
        made = commit_writer.stage(
            _lower(services), services.info.state, plan.steps, note=note, cancelled=cancelled,
            progress=lambda done, total, size: context.progress(done, total, "writing"),
        )  # fmt: skip
        originals.extend(commit_writer.originals(services.info.state))
        made.apply(lambda done, total, size: context.progress(done, total, "replacing"), clean=False)
        return made

    try:
        made = await trio.to_thread.run_sync(write)
    except Drifted as exc:
        _know_again(services, originals)
        return [PathConflict(path, "drift", "changed in the real directory at this moment") for path in exc.paths]
    whole = not partial and not _in_use(services, branch.id)
    await _keep_up(services, note, plan.same, whole, made.clean, context)
    services.tell("commit", branch.id, context.caller.pid, name=branch.name)
    return []


def _know_again(services: Services, originals: list[tuple[bytes, Identity]]) -> None:
    """Note the new change times of files that an undone commit took out of the lower and put back.

    The daemon itself changed those times, so the files do not count as changed in the lower.
    """
    touched = {}
    for path, found in originals:
        try:
            info = _lower(services).stat(path)
        except OSError:
            continue
        now = LowerIdentity(info.st_ino, 0, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        old = LowerIdentity(found.ino, 0, found.size, found.mtime_ns, found.ctime_ns)
        if now != old and now._replace(ctime_ns=old.ctime_ns) == old:
            touched[old] = now
    services.overlay.lower_changes.touched(touched)


async def _keep_up(
    services: Services,
    note: Mapping[str, str],
    same: list[settling.Same],
    whole: bool,
    clean: Callable[[], object],
    context: RequestContext,
) -> None:
    """Adapt the branch to what the lower has now, then delete the journal, even if the client closes its connection."""
    branch_id, seen, once = note["branch"], int(note["layer"]), note.get("id", "")
    with trio.CancelScope(shield=True):
        await drive(settling.settle(services.overlay, branch_id, seen, same, whole=whole, once=once), context)
        try:
            await trio.to_thread.run_sync(clean)
        except Refusal as exc:  # the commit itself is done
            log.warning("%s: %s", exc.message, exc.hint)
        settling.settle_root(services.overlay, branch_id)


@control_operation(wire.CommitEnd, permission=unbound_only, note=noted_abort, cancellable=True)
async def end_commit(services: Services, request: wire.CommitEnd, context: RequestContext) -> wire.MergeReply:
    with services.commit_turn.take():
        return await _end(services, request, context)


async def _end(services: Services, request: wire.CommitEnd, context: RequestContext) -> wire.MergeReply:
    pending = commit_writer.pending(services.info.state)
    if pending is None:
        raise Refusal(errno.ENOENT, "no-commit-pending", "no commit was interrupted")
    lower, state, note = _lower(services), services.info.state, pending.note
    originals = commit_writer.originals(state)

    def work() -> bool:
        def told(done: int, total: int, size: int) -> None:
            context.progress(done, total, "replacing")

        if request.abort and pending.phase != "committed":
            return commit_writer.abort(lower, state, told)
        return commit_writer.resume(lower, state, told, clean=False)

    try:
        done = await trio.to_thread.run_sync(work)
    except Drifted as exc:
        _know_again(services, originals)
        conflicts = [PathConflict(path, "drift", "changed in the real directory since") for path in exc.paths]
        return merge_reply(Merged("nothing", [], conflicts), services.info.lower)
    if done:
        whole = bool(note["whole"]) and not _in_use(services, note["branch"])
        same = msgspec.json.decode(note["same"], type=list[settling.Same])
        await _keep_up(services, note, same, whole, lambda: commit_writer.resume(lower, state), context)
        if services.overlay.refs.exists(note["branch"]):
            services.tell("commit", note["branch"], context.caller.pid, name=services.overlay.refs.branch(note["branch"]).name)
    else:
        _know_again(services, originals)
    await services.settle()
    changed = [b64decode(path) for path in json.loads(note["paths"])]
    return merge_reply(Merged("lower" if done != request.abort else "nothing", changed), services.info.lower)


def _in_use(services: Services, branch_id: str) -> bool:
    return any(binding.branch_id == branch_id for binding in services.bindings.bindings())


def _lower(services: Services) -> HostLower:
    lower = services.overlay.parts.lower
    if not isinstance(lower, HostLower):
        raise Refusal(errno.EROFS, "read-only-lower", "this lower cannot be written")
    return lower
