"""Requests about the commands that were run in branches."""

from agentfs_client import wire
from agentfsd.control.audit_notes import changes_nothing
from agentfsd.control.authorization import own_branch, unbound_only
from agentfsd.control.branch_listing import wire_branch
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.request_context import RequestContext
from agentfsd.domain_errors import invalid
from agentfsd.metadata.rows import RunRow

_MOST_CHARACTERS = 1000  # of a command: it is kept in the database


@control_operation(wire.RunAdd, permission=unbound_only, note=changes_nothing)
async def record_run(services: Services, request: wire.RunAdd, context: RequestContext) -> wire.RunReply:
    """Record how a command ended that was run in a branch. A process of a branch could claim to have passed its tests."""
    if not 0 <= request.started_ns <= request.ended_ns < 1 << 63:
        raise invalid("a run cannot end before it begins", "give both times in ns since the epoch")
    if not 0 <= request.exit_code < 1 << 31:
        raise invalid(f"{request.exit_code} is no exit code", "give 0 to 255; 128 and the number for a signal")
    branch_id = services.overlay.refs.branch(request.branch or context.branch).id
    await services.flush(branch_id)
    branch = await wire_branch(services, branch_id)
    row = services.overlay.runs.add(
        branch_id, request.command[:_MOST_CHARACTERS], request.exit_code, request.started_ns, request.ended_ns,
        branch.changed if branch.counted else -1,
    )  # fmt: skip
    await services.settle()
    return wire.RunReply(run=_described(row, branch.name))


@control_operation(wire.RunList, permission=own_branch("branch"), note=changes_nothing)
async def list_runs(services: Services, request: wire.RunList, context: RequestContext) -> wire.RunsReply:
    """List the commands that were run in branches, oldest first."""
    named = request.branch if context.bound_to is None else context.branch
    branch_id = None if named is None else services.overlay.refs.branch(named).id
    names = {one: name for name, one in services.overlay.refs.names(branches=True)}
    rows = services.overlay.runs.of(branch_id, last_only=request.last_only, each_command=request.each_command)
    return wire.RunsReply(runs=[_described(row, names[row.branch_id]) for row in rows if row.branch_id in names])


def _described(row: RunRow, branch: str) -> wire.RecordedRun:
    return wire.RecordedRun(
        id=row.id, branch=branch, branch_id=row.branch_id, command=row.command, exit_code=row.exit_code,
        started_ns=row.started_ns, ended_ns=row.ended_ns, changed=row.changed,
    )  # fmt: skip
