"""Requests about which process sees which branch, by a binding or by a private mount."""

import errno

from agentfs_client import wire
from agentfsd.control.audit_notes import (
    changes_nothing,
    noted_view,
    told_as_event,
)
from agentfsd.control.authorization import (
    no_process,
    own_process,
    unbound_only,
)
from agentfsd.control.branch_listing import wire_bindings
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.request_context import RequestContext
from agentfsd.domain_errors import Refusal
from agentfsd.types import DEFAULT_BRANCH


@control_operation(wire.BranchBind, permission=own_process, note=told_as_event)
async def bind_process(services: Services, request: wire.BranchBind, context: RequestContext) -> wire.Done:
    """Bind a process, and optionally its descendants, to a branch."""
    row = services.overlay.refs.branch(request.branch)
    if request.pid == services.info.pid:
        raise Refusal(errno.EINVAL, "bad-pid", f"process {request.pid} is the daemon itself", "name another process")
    try:
        services.bindings.on_bind(row.id)  # the kernel must drop what it cached before the process sees another branch
        await services.settle()
        services.bindings.bind(request.pid, row.id)
        if request.descendants and context.caller.pid:
            services.bindings.bind_children(context.caller.pid, row.id)
    except ProcessLookupError:
        raise no_process(request.pid) from None
    services.tell("bound", row.id, request.pid, by=context.caller.pid)
    await services.settle()
    return wire.Done(message=f"process {request.pid} sees {row.name} from now on")


@control_operation(wire.ViewOpen, permission=unbound_only, note=noted_view)
async def open_view(services: Services, request: wire.ViewOpen, context: RequestContext) -> wire.ViewReply:
    """Pass a mount that shows one branch, for a private mount namespace."""
    row = services.overlay.refs.branch(request.branch)
    if services.open_view is None or context.channel is None:
        raise Refusal(errno.EOPNOTSUPP, "no-views", "the control file carries no mounts", "ask over the daemon's socket")
    if context.caller.uid != services.info.owner_uid:
        raise Refusal(errno.EACCES, "not-owner", f"only uid {services.info.owner_uid} can enter the namespace of that mount")
    view = await services.open_view(row.id, request.io)
    context.peer.at_end.append(view.leave)
    context.peer.outgoing += [view.mount, *([view.user_namespace] if view.user_namespace is not None else [])]
    home_why = await _open_home(services, row.id, request.home, context) if request.home else ""
    await services.settle()  # wait until the kernel has dropped what the mount cached of the branch
    has_home = bool(request.home) and not home_why
    return wire.ViewReply(io=view.io, joined=view.joined, has_home=has_home, home_why=home_why)


@control_operation(wire.ViewLeave, permission=unbound_only, note=changes_nothing)
async def leave_views(services: Services, request: wire.ViewLeave, context: RequestContext) -> wire.Done:
    """Take note that the runs for which this conversation has opened views have ended."""
    while context.peer.at_end:
        context.peer.at_end.pop()()
    return wire.Done()


async def _open_home(services: Services, branch_id: str, home: str, context: RequestContext) -> str:
    """Send along the home directory with the branch's changes. Return "", or why that is impossible."""
    assert services.homes is not None
    try:
        view = await services.homes.open(branch_id, home)
    except Refusal as exc:
        return exc.strerror or str(exc)
    context.peer.at_end.append(view.leave)
    context.peer.outgoing.append(view.mount)
    return ""


@control_operation(wire.BranchUnbind, permission=unbound_only, note=told_as_event)
async def unbind_process(services: Services, request: wire.BranchUnbind, context: RequestContext) -> wire.Done:
    """Remove the binding of a process."""
    branch_id = services.bindings.branch_of(request.pid)
    if not services.bindings.unbind(request.pid):
        raise Refusal(
            errno.ESRCH, "not-bound", f"process {request.pid} has no binding of its own", "`agentfsd bindings` shows them"
        )
    if branch_id is not None:
        services.tell("unbound", branch_id, request.pid, by=context.caller.pid)
    return wire.Done(message=f"process {request.pid} sees {DEFAULT_BRANCH} from now on")


@control_operation(wire.BranchBindings, permission=unbound_only, note=changes_nothing)
async def list_bindings(services: Services, request: wire.BranchBindings, context: RequestContext) -> wire.BindingsReply:
    """List the processes that are bound to a branch, explicitly or by inheritance."""
    return wire.BindingsReply(bindings=wire_bindings(services))
