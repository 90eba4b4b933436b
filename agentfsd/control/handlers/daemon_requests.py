"""Requests about the daemon itself: greeting, backstore, settings, checks and shutdown."""

import trio

from agentfs_client import wire
from agentfsd.control.audit_notes import (
    changes_nothing,
    noted_by_handler,
    noted_collection,
    noted_restart,
    noted_setting,
    noted_shutdown,
)
from agentfsd.control.authorization import (
    everybody,
    unbound_only,
)
from agentfsd.control.backstore_usage import backstore_status
from agentfsd.control.cooperative import drive
from agentfsd.control.daemon_status import forwarding_kind
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.request_context import RequestContext

_LOOKS, _LOOK_S = 10, 0.15  # how often gc looks whether kept contents can be freed now


@control_operation(wire.Hello, permission=everybody, note=changes_nothing)
async def hello(services: Services, request: wire.Hello, context: RequestContext) -> wire.HelloOk:
    """Greet a client: return the protocol version, and the caller's branch."""
    return wire.HelloOk(
        version=wire.PROTOCOL_VERSION, daemon=services.info.version, branch=context.branch, bound=context.bound_to is not None
    )


@control_operation(wire.Capabilities, permission=everybody, note=changes_nothing)
async def capabilities(services: Services, request: wire.Capabilities, context: RequestContext) -> wire.CapabilitiesReply:
    """Return what this daemon can do."""
    return wire.CapabilitiesReply(capabilities=services.info.capabilities | {"cap.fd_forwarding": forwarding_kind(services)})


@control_operation(wire.BackstoreStatus, permission=unbound_only, note=changes_nothing)
async def show_backstore(services: Services, request: wire.BackstoreStatus, context: RequestContext) -> wire.BackstoreReply:
    """Return the backstore's kind, contents and free space."""
    return await backstore_status(services.overlay, services.info)


@control_operation(wire.Fsck, permission=unbound_only, note=changes_nothing, cancellable=True)
async def check(services: Services, request: wire.Fsck, context: RequestContext) -> wire.ProblemsReply:
    """Check everything that is stored, and return the problems."""
    return wire.ProblemsReply(problems=await drive(services.overlay.fsck_in_steps(scrub=request.scrub), context))


@control_operation(wire.Shutdown, permission=unbound_only, note=noted_shutdown)
async def shut_down(services: Services, request: wire.Shutdown, context: RequestContext) -> wire.Done:
    """Unmount and end the daemon after the reply."""
    await services.shutdown(request.force)
    return wire.Done(message="unmounting")


@control_operation(wire.Restart, permission=unbound_only, note=noted_restart)
async def restart(services: Services, request: wire.Restart, context: RequestContext) -> wire.Done:
    """Have the next daemon take over after the reply."""
    await services.restart()
    return wire.Done(message="the next daemon takes over")


@control_operation(wire.CollectGarbage, permission=unbound_only, note=noted_collection, cancellable=True)
async def collect_garbage(services: Services, request: wire.CollectGarbage, context: RequestContext) -> wire.FreedReply:
    """Delete contents without references, and return how much space that freed."""
    before = await trio.to_thread.run_sync(services.overlay.backstore.usage)
    if request.forget_undo:
        services.overlay.undo_log.forget_all()
    layers = services.overlay.layers
    await drive(layers.reap_in_steps(), context)
    for _ in range(_LOOKS):
        if not layers.garbage():
            break
        await trio.sleep(_LOOK_S)  # a run's connection ends a moment after its branch was discarded; until then it keeps contents
        await drive(layers.reap_in_steps(), context)
    if services.bases is not None:
        await services.bases.sweep()
    after = await trio.to_thread.run_sync(services.overlay.backstore.usage)
    freed = {name: max(0, before[name] - after[name]) for name in ("objects", "bytes")}
    return wire.FreedReply(objects=freed["objects"], freed_bytes=freed["bytes"])


_noted_change = noted_setting("policy")


@control_operation(wire.PolicyGet, permission=unbound_only, note=changes_nothing)
async def get_policy(services: Services, request: wire.PolicyGet, context: RequestContext) -> wire.PolicyReply:
    """Return the value of every setting."""
    return wire.PolicyReply(policy=services.overlay.settings.values())


@control_operation(wire.PolicySet, permission=unbound_only, note=noted_by_handler)
async def set_policy(services: Services, request: wire.PolicySet, context: RequestContext) -> wire.PolicyReply:
    """Change a setting and note the change in the audit trail.

    A change that turns the trail on is the first entry in it, and one that turns it off is the last.
    """
    services.overlay.settings.set(request.name, request.value)
    reply = wire.PolicyReply(policy=services.overlay.settings.values())
    is_on = services.audit is not None and services.audit.is_on
    if not is_on:
        services.apply_settings()
    services.note(_noted_change(request, reply), context)
    if is_on:
        services.apply_settings()
    return reply
