"""Requests about the steps of agents' sessions, which the hooks of harnesses make."""

from collections import Counter

from agentfs_client import wire
from agentfsd.control.audit_notes import changes_nothing, told_as_event
from agentfsd.control.authorization import own_branch
from agentfsd.control.cooperative import drive
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.reply_records import author_of, wire_change, wire_step
from agentfsd.control.request_context import RequestContext
from agentfsd.domain_errors import invalid
from agentfsd.repositories.git_internals import GitInternals

_MOST_BYTES = 1000  # of a name or a title: they are kept in the database


@control_operation(wire.StepTake, permission=own_branch("branch"), note=told_as_event)
async def take_step(services: Services, request: wire.StepTake, context: RequestContext) -> wire.StepReply:
    """Note a step of a session, with a snapshot of the branch if it has changed."""
    if not request.session:
        raise invalid("a session needs a name", "give the one that the harness has for it")
    if any(len(text.encode()) > _MOST_BYTES for text in (request.session, request.agent, request.key, request.title)):
        raise invalid("a name or a title is too long", f"at most {_MOST_BYTES} bytes")
    branch = services.overlay.refs.branch(request.branch or context.branch).id
    await services.flush(branch)
    author = author_of(context)
    async with services.standing_still(branch, context):
        step, is_new = services.overlay.steps.take(
            branch, request.session, is_prompt=request.prompt, agent=request.agent, key=request.key, title=request.title,
            author_pid=author.pid, author=author.command, is_bound=context.bound_to is not None,
        )  # fmt: skip
    if is_new:
        services.overlay.retention.apply(branch)
        services.tell("snapshot", branch, author.pid, name=step.snapshot)
    notes = services.overlay.notes.untold_count(branch, request.session)
    return wire.StepReply(step=wire_step(step, context.bound_to), is_new=is_new, notes=notes)


@control_operation(wire.StepList, permission=own_branch("branch"), note=changes_nothing)
async def list_steps(services: Services, request: wire.StepList, context: RequestContext) -> wire.StepsReply:
    """List the steps of sessions, oldest first."""
    named = request.branch if context.bound_to is None else context.branch
    branch = None if named is None else services.overlay.refs.branch(named).id
    steps = services.overlay.steps.all(branch, request.session)
    return wire.StepsReply(steps=[wire_step(step, context.bound_to) for step in steps])


@control_operation(wire.StepChanges, permission=own_branch("branch"), note=changes_nothing)
async def step_changes(services: Services, request: wire.StepChanges, context: RequestContext) -> wire.StepChangesReply:
    """List what has changed in a branch since a step of a session."""
    branch = services.overlay.refs.branch(request.branch or context.branch).id
    step, replaced = services.overlay.steps.find(branch, request.session, request.key)
    await services.flush(branch)
    old, new = services.overlay.trees.side(step.snapshot_id), services.overlay.trees.side(branch)
    changes = await drive(services.overlay.comparison.diff_in_steps(old, new), context)
    shown = GitInternals(old, new).without(changes, lambda change: change.path)
    shown = [change for change in shown if not context.hides(change.path, change.old_path)]
    counts = Counter(change.status for change in shown)
    listed = sorted(shown, key=lambda change: change.status != "D")[: max(0, request.most)]
    return wire.StepChangesReply(
        step=wire_step(step, context.bound_to), counts=dict(counts), changes=[wire_change(change) for change in listed],
        replaced=replaced, notes=services.overlay.notes.untold_count(branch, request.session),
    )  # fmt: skip
